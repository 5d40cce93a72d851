//! `redlock status` and `redlock history`: one lock in full, and who had it before.

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::cluster::{Cluster, ClusterArgs};
use super::objects::LockObject;
use super::output::{Answer, Cell, OutputArgs, Paint, Printer, Table, Tone};
use super::target::Target;
use super::text::{between, date, moment, span};
use super::{line, list};
use redlock_api::conditions::LockCondition;
use redlock_api::{MilliTime, PastHold};

/// A lock, and the form of the output.
#[derive(Debug, clap::Args)]
pub struct LockArgs {
    /// The lock: `<namespace>/<key>`, `<key>` with -n, or `dlock/<name>`.
    pub lock: String,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The form of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl LockArgs {
    /// What it means in this cluster.
    ///
    /// # Errors
    /// If it names no lock.
    pub fn target(&self, cluster: &Cluster) -> Result<Target, super::cluster::Problem> {
        Target::parse(&self.lock, cluster.named_namespace.as_deref(), &cluster.namespace)
    }
}

/// All that competes for one key, or one object.
struct LocksView {
    target: Target,
    locks: Vec<LockObject>,
    now: MilliTime,
}

impl Answer for LocksView {
    fn value(&self) -> Value {
        let conditions = |lock: &LockObject| {
            let mut value = line::value(lock, self.now);
            value["conditions"] = json!(lock.status.conditions);
            value
        };
        json!({
            "lock": self.target.name(),
            "held": self.locks.iter().any(LockObject::is_held),
            "items": self.locks.iter().map(conditions).collect::<Vec<_>>(),
        })
    }

    fn text(&self, paint: Paint, wide: bool) -> String {
        let mut text = String::new();
        for lock in self.locks.iter().filter(|lock| lock.is_held()) {
            text += &details(lock, self.now, paint);
        }
        if text.is_empty() {
            text = format!(
                "{} {}\n",
                paint.tone(Tone::Title, &self.target.to_string()),
                paint.tone(Tone::Bad, "is not held.")
            );
        }
        let mut table = line::titles(wide);
        self.locks.iter().for_each(|lock| table.push(line::cells(lock, self.now, wide)));
        text += &format!("\n{}", table.render(paint));
        for lock in self.locks.iter().filter(|lock| !lock.is_finished()) {
            for condition in lock.status.conditions.iter().filter(|condition| is_relevant(condition)) {
                text += &format!(
                    "{}: {} ({}): {}\n",
                    lock.name_any(),
                    condition.type_,
                    condition.reason,
                    condition.message
                );
            }
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.locks.iter().map(|lock| format!("dlock/{}", lock.name_any())).collect()
    }
}

/// What differs from a lock that is held and well.
fn is_relevant(condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition) -> bool {
    let is = |type_: LockCondition| condition.type_ == type_.as_str();
    let is_told_by_another = is(LockCondition::Ready) || is(LockCondition::Finished);
    condition.status != "True" && !is_told_by_another
}

fn details(lock: &LockObject, now: MilliTime, paint: Paint) -> String {
    let status = &lock.status;
    let holder = status.holder.clone().unwrap_or_default();
    let mut lines = vec![("holder", holder.identity.clone())];
    lines.extend(holder.pod_name.filter(|pod| *pod != holder.identity).map(|pod| ("pod", pod)));
    lines.extend(holder.node_name.map(|node| ("node", node)));
    lines.extend(status.fencing_token.map(|token| ("token", token.to_string())));
    lines.extend(status.acquired_at.map(|at| ("held since", moment(at, now))));
    lines.extend(lock.valid_until().map(|until| ("valid until", moment(until, now))));
    lines.extend(status.votes.clone().map(|votes| ("votes", votes)));
    lines.extend(lock.quorum().map(|(namespace, name)| ("quorum", format!("{namespace}/{name}"))));
    if let Some(stopping) = &status.stopping {
        let why = stopping.message.clone().unwrap_or_default();
        lines.push(("stopping", format!("{}, since {}: {why}", stopping.reason, moment(stopping.since, now))));
    }
    if let Some(ending) = &status.ending {
        let until = ending.until.map(|until| format!(", until {}", moment(until, now))).unwrap_or_default();
        lines.push(("ending", format!("{}{until}: {}", ending.reason, ending.message.clone().unwrap_or_default())));
    }
    let word =
        if status.ending.is_some() { (Tone::Waiting, "is held, and is ending.") } else { (Tone::Good, "is held.") };
    let title = format!("{} {}\n", paint.tone(Tone::Title, &lock.lock()), paint.tone(word.0, word.1));
    lines.iter().fold(title, |text, (name, value)| text + &format!("  {:<13}{value}\n", format!("{name}:")))
}

/// Prints a lock.
///
/// # Errors
/// If there is none, or the API server does not answer.
pub async fn run(args: LockArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let target = args.target(&cluster)?;
    let locks = list::find(&cluster, &target).await?.meant;
    Printer::new(args.output).show(&LocksView { target, locks, now: cluster.now() })
}

/// One hold, past or present.
#[derive(Clone, Debug)]
struct Past {
    object: String,
    hold: PastHold,
    is_present: bool,
}

/// All holds that the objects of a key remember, newest first.
struct History {
    target: Target,
    holds: Vec<Past>,
    now: MilliTime,
}

impl History {
    fn of(target: Target, locks: &[LockObject], now: MilliTime) -> Self {
        let mut holds = Vec::new();
        for lock in locks {
            let past = |hold: &PastHold| Past { object: lock.name_any(), hold: hold.clone(), is_present: false };
            holds.extend(lock.status.history.iter().map(past));
            if let Some(holder) = lock.status.holder.as_ref().filter(|_| lock.is_held()) {
                let hold = PastHold {
                    identity: holder.identity.clone(),
                    fencing_token: lock.status.fencing_token,
                    from: lock.status.acquired_at,
                    to: now,
                    reason: line::state(lock),
                    message: None,
                };
                holds.push(Past { object: lock.name_any(), hold, is_present: true });
            }
        }
        holds.sort_by_key(|past| (std::cmp::Reverse(past.hold.fencing_token), std::cmp::Reverse(past.hold.to)));
        Self { target, holds, now }
    }
}

impl Answer for History {
    fn value(&self) -> Value {
        let hold = |past: &Past| {
            let mut value = json!(past.hold);
            value["object"] = json!(past.object);
            value["held"] = json!(past.is_present);
            value["heldForMs"] = json!(past.hold.from.map(|from| between(from, past.hold.to)));
            if past.is_present {
                value.as_object_mut().map(|fields| fields.remove("to"));
            }
            value
        };
        json!({"lock": self.target.name(), "items": self.holds.iter().map(hold).collect::<Vec<_>>()})
    }

    fn text(&self, paint: Paint, wide: bool) -> String {
        if self.holds.is_empty() {
            return format!("{} was never held. (A deleted object takes its history with it.)\n", self.target);
        }
        let mut titles = vec!["HOLDER", "TOKEN", "FROM", "HELD-FOR", "END", "MESSAGE"];
        if wide {
            titles.insert(1, "OBJECT");
        }
        let mut table = Table::new(titles);
        for Past { object, hold, is_present } in &self.holds {
            let tone = match hold.reason.as_str() {
                _ if *is_present => Tone::Good,
                "Released" | "SteppedDown" | "MaxHoldReached" => Tone::Plain,
                _ => Tone::Bad,
            };
            let held_for = hold.from.map(|from| span(between(from, hold.to))).unwrap_or_default();
            let mut cells = vec![
                hold.identity.clone().into(),
                hold.fencing_token.map(|token| token.to_string()).unwrap_or_default().into(),
                hold.from.map(date).unwrap_or_default().into(),
                held_for.into(),
                Cell::toned(tone, hold.reason.clone()),
                hold.message.clone().unwrap_or_default().into(),
            ];
            if wide {
                cells.insert(1, object.clone().into());
            }
            table.push(cells);
        }
        format!("{}{}", table.render(paint), paint.tone(Tone::Dim, &format!("as of {}\n", date(self.now))))
    }

    fn names(&self) -> Vec<String> {
        self.holds.iter().map(|past| past.hold.identity.clone()).collect()
    }
}

/// Prints who had a lock.
///
/// # Errors
/// If there is none, or the API server does not answer.
pub async fn history(args: LockArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let target = args.target(&cluster)?;
    let locks = list::find(&cluster, &target).await?.meant;
    Printer::new(args.output).show(&History::of(target, &locks, cluster.now()))
}

#[cfg(test)]
mod tests {
    use super::super::objects::fake::{held, lock, now, waiting};
    use super::*;

    fn target() -> Target {
        Target::parse("shop/reindex", None, "default").unwrap()
    }

    #[test]
    fn a_status_tells_the_holder_and_the_queue() {
        let locks = vec![held("a"), waiting("b", "Queued", "a has the key", Some(1))];
        let view = LocksView { target: target(), locks, now: now() };
        let text = view.text(Paint::PLAIN, false);
        assert!(text.starts_with("shop/reindex is held.\n  holder:      a\n  token:       42\n"), "{text}");
        assert!(text.contains("  valid until: 12:00:08 UTC (in 8.2s)\n"), "{text}");
        assert!(text.ends_with("b: Held (Queued): a has the key\n"), "{text}");
        let value = view.value();
        assert_eq!((&value["held"], &value["items"][1]["reason"]), (&json!(true), &json!("Queued")));
        assert_eq!(value["items"][0]["conditions"][1]["type"], "Held");
        let free = LocksView { target: target(), locks: vec![waiting("b", "NoQuorum", "x", None)], now: now() };
        assert!(free.text(Paint::PLAIN, false).starts_with("shop/reindex is not held.\n"));
    }

    #[test]
    fn a_history_has_the_holds_of_all_claims_on_a_key_by_their_tokens() {
        let past = "{spec: {key: reindex}, status: {history: [
            {identity: x, fencingToken: 7, from: 2026-01-01T10:00:00.000Z, to: 2026-01-01T10:00:30.000Z, reason: Broken, message: by ann},
            {identity: y, fencingToken: 3, to: 2026-01-01T09:00:00.000Z, reason: Released}]}}";
        let history = History::of(target(), &[lock("old", past), held("a")], now());
        let tokens: Vec<_> = history.holds.iter().map(|past| past.hold.fencing_token).collect();
        assert_eq!(tokens, [Some(42), Some(7), Some(3)]);
        let text = history.text(Paint::PLAIN, false);
        assert!(text.contains("a        42      2026-01-01 11:59:00Z   60s        Held"), "{text}");
        assert!(text.contains("30s        Broken     by ann"), "{text}");
        let value = history.value();
        assert_eq!((&value["items"][0]["held"], value["items"][0].get("to")), (&json!(true), None));
        assert_eq!(value["items"][1]["heldForMs"], 30_000);
        assert!(History::of(target(), &[], now()).text(Paint::PLAIN, false).contains("never held"));
    }
}
