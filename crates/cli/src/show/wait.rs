//! `redlock wait`: until a lock is held, free, or something else.

use std::collections::BTreeMap;
use std::pin::pin;
use std::str::FromStr;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::ResourceExt as _;
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::cluster::objects::LockObject;
use crate::cluster::target::{Named, Target};
use crate::cluster::{Cluster, Problem};
use crate::console;
use crate::output::format::{millis, span};
use crate::output::{Answer, Paint, Printer, Tone};
use crate::show::lock_row;
use crate::show::status::LockArgs;
use redlock_api::conditions::LockCondition;
use redlock_api::watches::limited_watch;
use redlock_api::{GoDuration, MilliTime};
use redlock_engine::time::{Clock as _, SystemClock};

/// Which lock, for what, and how long.
#[derive(Debug, clap::Args)]
pub struct WaitArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// The state to wait for.
    ///
    /// `held`, `free`, `finished`, `gone`, `holder=<identity>`, or `reason=<reason of Held>`.
    #[arg(long = "for", value_name = "WHAT", default_value = "held")]
    wanted: Wanted,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    timeout: GoDuration,
}

/// The condition of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The lock has a holder, and the operator renews the hold.
    Held,
    /// The lock has no holder.
    Free,
    /// Every claim on the lock has ended.
    Finished,
    /// The lock has no object.
    Gone,
    /// The lock has this holder.
    Holder(String),
    /// The condition Held has this reason.
    Reason(String),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.split_once('=')) {
            ("held", _) => Ok(Self::Held),
            ("free", _) => Ok(Self::Free),
            ("finished", _) => Ok(Self::Finished),
            ("gone", _) => Ok(Self::Gone),
            (_, Some(("holder", who))) if !who.is_empty() => Ok(Self::Holder(who.to_owned())),
            (_, Some(("reason", reason))) if !reason.is_empty() => Ok(Self::Reason(reason.to_owned())),
            _ => Err("use held, free, finished, gone, holder=<identity> or reason=<reason>".into()),
        }
    }
}

impl Wanted {
    /// Whether the objects of the target meet the condition.
    fn is_met(&self, locks: &[&LockObject]) -> bool {
        let is_renewed = |lock: &&&LockObject| lock.is_held() && lock.status.ending.is_none();
        match self {
            Self::Held => locks.iter().any(|lock| is_renewed(&lock)),
            Self::Free => locks.iter().all(|lock| lock.status.holder.is_none()),
            Self::Finished => !locks.is_empty() && locks.iter().all(|lock| lock.is_finished()),
            Self::Gone => locks.is_empty(),
            Self::Holder(who) => locks.iter().any(|lock| is_renewed(&lock) && lock.who() == *who),
            Self::Reason(reason) => locks.iter().any(|lock| {
                let held = lock.condition(LockCondition::Held);
                lock.reason() == reason || held.is_some_and(|held| held.reason == *reason)
            }),
        }
    }
}

/// The result of a wait.
struct Waited {
    target: Target,
    met: bool,
    took: Duration,
    locks: Vec<LockObject>,
    now: MilliTime,
}

impl Answer for Waited {
    fn value(&self) -> Value {
        json!({"lock": self.target.name(), "met": self.met, "waitedMs": self.took.as_millis(),
            "items": self.locks.iter().map(|lock| lock_row::value(lock, self.now)).collect::<Vec<_>>()})
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let took = span(millis(self.took));
        let word = if self.met { paint.tone(Tone::Good, "met") } else { paint.tone(Tone::Bad, "not met") };
        format!("{}: {word} after {took}; {}\n", self.target, summary(&self.locks.iter().collect::<Vec<_>>()))
    }

    fn names(&self) -> Vec<String> {
        self.locks.iter().map(|lock| format!("dlock/{}", lock.name_any())).collect()
    }
}

/// The locks in one line.
fn summary(locks: &[&LockObject]) -> String {
    let one = |lock: &&LockObject| match lock.status.fencing_token.filter(|_| lock.is_held()) {
        Some(token) => {
            format!("dlock/{} is {} by {} with token {token}", lock.name_any(), lock_row::state(lock), lock.who())
        }
        None => format!("dlock/{} is {}", lock.name_any(), lock_row::state(lock)),
    };
    if locks.is_empty() { "there is no such lock".into() } else { locks.iter().map(one).collect::<Vec<_>>().join(", ") }
}

/// Waits for the condition. Returns whether it was met in time.
///
/// # Errors
/// If the API server does not answer the first request, or refuses it.
pub async fn run(args: WaitArgs) -> anyhow::Result<bool> {
    let cluster = Cluster::connect(&args.lock.cluster).await?;
    let (target, printer) = (args.lock.target(&cluster)?, Printer::new(args.lock.output));
    let waited = wait(&cluster, target, &args.wanted, args.timeout, printer).await?;
    printer.show(&waited)?;
    Ok(waited.met)
}

async fn wait(
    cluster: &Cluster,
    target: Target,
    wanted: &Wanted,
    longest: GoDuration,
    printer: Printer,
) -> Result<Waited, Problem> {
    let begun = SystemClock.boottime();
    let mut listed = None;
    let watching = until(cluster, &target, wanted, printer, &mut listed);
    let met = tokio::time::timeout(longest.get(), watching).await.ok().transpose()?.is_some();
    let took = SystemClock.boottime().since(begun);
    let locks = listed.ok_or_else(|| {
        Problem::new(
            format!("failed to list locks in namespace {}: no complete answer within {longest}", target.namespace),
            format!("Check the way to the API server {}: redlock doctor", cluster.server),
        )
    })?;
    Ok(Waited { target, met, took, locks: locks.into_values().collect(), now: cluster.now() })
}

/// Waits for the condition. `listed` has the locks of the last complete list and of later changes.
async fn until(
    cluster: &Cluster,
    target: &Target,
    wanted: &Wanted,
    printer: Printer,
    listed: &mut Option<BTreeMap<String, LockObject>>,
) -> Result<(), Problem> {
    let api = cluster.api::<LockObject>(Some(&target.namespace));
    let config = match &target.lock {
        Named::Object(name) => watcher::Config::default().fields(&format!("metadata.name={name}")),
        Named::Key(_) => watcher::Config::default(),
    };
    // A watch repeats its request without an error if the kind does not exist, so a list shows each refusal first.
    let params = kube::api::ListParams::default().limit(1);
    let doing = format!("list locks in namespace {}", target.namespace);
    cluster.call(&doing, api.list(&params)).await?;
    let mut events = pin!(limited_watch(api, config));
    let (mut new, mut printed) = (BTreeMap::new(), String::new());
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Init)) => new.clear(),
            Ok(Some(watcher::Event::InitApply(lock))) if target.means(&lock) => drop(new.insert(lock.name_any(), lock)),
            Ok(Some(watcher::Event::InitDone)) => *listed = Some(std::mem::take(&mut new)),
            Ok(Some(watcher::Event::Apply(lock))) if target.means(&lock) => {
                listed.get_or_insert_default().insert(lock.name_any(), lock);
            }
            Ok(Some(watcher::Event::Delete(lock))) => {
                listed.get_or_insert_default().remove(&lock.name_any());
            }
            Ok(_) => {}
            // The watcher restarts after any other error.
            Err(error) => {
                if let Some(denied) = Problem::of_denied_watch(&doing, &error) {
                    return Err(denied);
                }
            }
        }
        let Some(listed) = listed else { continue };
        let locks: Vec<&LockObject> = listed.values().collect();
        if wanted.is_met(&locks) {
            return Ok(());
        }
        let line = summary(&locks);
        if printer.is_terminal && line != printed {
            console::write_error(&format!("waiting: {line}\n"));
            printed = line;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::cluster::fake::{failure, is_watch, list};
    use crate::cluster::objects::fake::{held, lost, now, waiting};
    use crate::output::OutputArgs;

    #[test]
    fn awaited_conditions_are_read_from_the_locks() {
        let (a, b) = (held("a"), waiting("b", "Queued", "", Some(1)));
        let met = |wanted: &str, locks: &[&LockObject]| wanted.parse::<Wanted>().unwrap().is_met(locks);
        assert!(met("held", &[&b, &a]) && !met("held", &[&b]) && !met("held", &[]));
        assert!(met("free", &[&b]) && met("free", &[]) && !met("free", &[&a]));
        assert!(met("holder=a", &[&a]) && !met("holder=b", &[&a, &b]));
        assert!(met("reason=Queued", &[&a, &b]) && !met("reason=Queued", &[&a]));
        assert!(met("gone", &[]) && !met("gone", &[&b]));
        let mut ended = waiting("c", "Released", "", None);
        ended.status.conditions[1].type_ = "Finished".into();
        ended.status.conditions[1].status = "True".into();
        assert!(met("finished", &[&ended]) && !met("finished", &[&ended, &b]) && !met("finished", &[]));
        let mut ending = held("a");
        ending.status.ending =
            serde_json::from_value(json!({"since": "2026-01-01T12:00:00.000Z", "reason": "Broken"})).unwrap();
        for lock in [&ending, &lost("a")] {
            assert!(!met("held", &[lock]) && !met("free", &[lock]), "a hold that runs out is neither");
        }
        assert!("held-by".parse::<Wanted>().is_err() && "holder=".parse::<Wanted>().is_err());
    }

    /// A wait of a minute for a holder. The API server answers only this number of lists, with a free lock.
    async fn waited(lists: usize, code: u16) -> Result<Waited, Problem> {
        let answered = AtomicUsize::new(0);
        let lock = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": {"key": "reindex"}});
        let cluster = Cluster::answering(move |request| {
            let is_answered = !is_watch(request) && answered.fetch_add(1, Ordering::SeqCst) < lists;
            if is_answered { list(std::slice::from_ref(&lock)) } else { failure(code, "Failed") }
        });
        let target = Target::parse("shop/reindex", None, "").unwrap();
        let printer = Printer::new(OutputArgs::default());
        wait(&cluster, target, &Wanted::Held, GoDuration::from_secs(60), printer).await
    }

    /// The first list finds a refusal. The second one is that of the watch.
    #[tokio::test(start_paused = true)]
    async fn an_incomplete_list_is_no_answer_about_locks() {
        let problem = waited(1, 500).await.err().unwrap();
        assert!(problem.what.contains("no complete answer within 1m"), "{}", problem.what);
        let waited = waited(2, 500).await.unwrap();
        assert_eq!((waited.met, waited.locks.len()), (false, 1), "the watch fails");
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_ends_during_a_wait_is_no_answer_about_locks() {
        for code in [401, 403] {
            assert_eq!(waited(2, code).await.err().unwrap().code, Some(code));
        }
    }

    #[test]
    fn the_output_of_a_wait_names_the_final_state() {
        let waited = |met| Waited {
            target: Target::parse("shop/reindex", None, "").unwrap(),
            met,
            took: Duration::from_millis(1_500),
            locks: vec![held("a")],
            now: now(),
        };
        assert_eq!(
            waited(true).text(Paint::PLAIN, false),
            "shop/reindex: met after 1.5s; dlock/a is Held by a with token 42\n"
        );
        assert_eq!((&waited(false).value()["met"], &waited(false).value()["waitedMs"]), (&json!(false), &json!(1_500)));
    }
}
