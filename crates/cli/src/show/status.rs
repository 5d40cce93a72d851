//! `redlock status`: one lock in full.

use clap_complete::engine::ArgValueCompleter;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::list::{self, Found};
use super::lock_row;
use crate::cluster::objects::LockObject;
use crate::cluster::target::Target;
use crate::cluster::{Cluster, ClusterArgs, Problem};
use crate::completion;
use crate::output::format::moment;
use crate::output::{Answer, OutputArgs, Paint, Printer, Table, Tone};
use redlock_api::MilliTime;
use redlock_api::conditions::LockCondition;

/// A lock, and the form of the output.
#[derive(Debug, clap::Args)]
pub struct LockArgs {
    /// The lock: `<namespace>/<key>`, `<key>` with -n, or `dlock/<name>`.
    #[arg(add = ArgValueCompleter::new(completion::locks))]
    pub lock: String,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// The form of the output.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl LockArgs {
    /// The target in this cluster.
    ///
    /// # Errors
    /// If the argument names no lock.
    pub fn target(&self, cluster: &Cluster) -> Result<Target, Problem> {
        Target::parse(&self.lock, cluster.named_namespace.as_deref(), &cluster.namespace)
    }

    /// Connects to the cluster, and reads the locks of the target.
    ///
    /// # Errors
    /// If no lock matches, or the API server does not answer.
    pub async fn find(&self) -> Result<(Cluster, Target, Found), Problem> {
        let cluster = Cluster::connect(&self.cluster).await?;
        let target = self.target(&cluster)?;
        let found = list::find(&cluster, &target).await?;
        Ok((cluster, target, found))
    }
}

/// All objects on one key, or one object.
struct LockList {
    target: Target,
    locks: Vec<LockObject>,
    now: MilliTime,
}

impl Answer for LockList {
    fn value(&self) -> Value {
        let conditions = |lock: &LockObject| {
            let mut value = lock_row::value(lock, self.now);
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
            let title = paint.tone(Tone::Title, &self.target.to_string());
            text = format!("{title} {}\n", paint.tone(Tone::Bad, "is not held."));
        }
        let mut table = Table::new(lock_row::titles(wide));
        self.locks.iter().for_each(|lock| table.push(lock_row::cells(lock, self.now, wide)));
        text += &format!("\n{}", table.render(paint));
        for lock in self.locks.iter().filter(|lock| !lock.is_finished()) {
            let is_fault = |condition: &Condition| lock.fault().is_some_and(|fault| fault.type_ == condition.type_);
            let conditions = lock.status.conditions.iter();
            for condition in conditions.filter(|condition| is_relevant(condition) || is_fault(condition)) {
                let Condition { type_, reason, message, .. } = condition;
                text += &format!("{}: {type_} ({reason}): {message}\n", lock.name_any());
            }
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.locks.iter().map(|lock| format!("dlock/{}", lock.name_any())).collect()
    }
}

/// Whether the output shows the condition.
///
/// A true condition without a fault needs no line. The state of the lock already contains Ready and Finished.
fn is_relevant(condition: &Condition) -> bool {
    let is = |type_: LockCondition| condition.type_ == type_.as_str();
    let is_redundant = is(LockCondition::Ready) || is(LockCondition::Finished);
    condition.status != "True" && !is_redundant
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
/// If no lock matches, or the API server does not answer.
pub async fn run(args: LockArgs) -> anyhow::Result<()> {
    let (cluster, target, found) = args.find().await?;
    Printer::new(args.output).show(&LockList { target, locks: found.meant, now: cluster.now() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{held, now, waiting};

    fn target() -> Target {
        Target::parse("shop/reindex", None, "default").unwrap()
    }

    #[test]
    fn the_status_names_the_holder_and_the_queue() {
        let locks = vec![held("a"), waiting("b", "Queued", "a has the key", Some(1))];
        let view = LockList { target: target(), locks, now: now() };
        let text = view.text(Paint::PLAIN, false);
        assert!(text.starts_with("shop/reindex is held.\n  holder:      a\n  token:       42\n"), "{text}");
        assert!(text.contains("  valid until: 12:00:08 UTC (in 8.2s)\n"), "{text}");
        assert!(text.ends_with("b: Held (Queued): a has the key\n"), "{text}");
        let value = view.value();
        assert_eq!((&value["held"], &value["items"][1]["reason"]), (&json!(true), &json!("Queued")));
        assert_eq!(value["items"][0]["conditions"][1]["type"], "Held");
        let mut faulty = held("a");
        faulty.status.conditions[0].reason = "JobNotStarted".into();
        let text = LockList { target: target(), locks: vec![faulty], now: now() }.text(Paint::PLAIN, false);
        assert!(text.ends_with("a: Accepted (JobNotStarted): ok\n"), "a fault of a held lock: {text}");
        let free = LockList { target: target(), locks: vec![waiting("b", "NoQuorum", "x", None)], now: now() };
        assert!(free.text(Paint::PLAIN, false).starts_with("shop/reindex is not held.\n"));
    }
}
