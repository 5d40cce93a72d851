//! `redlock top`: the keys that are contended for most, and the state of the quorums.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::cluster::{Cluster, Problem, ScopeArgs};
use super::explain::of_quorum;
use super::line;
use super::objects::{LockObject, QuorumObject};
use super::output::{Answer, Cell, Format, OutputArgs, Paint, Printer, Table, Tone};
use super::text::{between, count, span};
use crate::api::MilliTime;

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(2);

/// Which locks, and how many.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Show so many keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    keys: usize,
    /// Print once, also on a terminal.
    #[arg(long)]
    once: bool,
}

/// One key, with all that compete for it.
#[derive(Clone, Debug, PartialEq)]
struct Contended {
    lock: String,
    holders: Vec<String>,
    waiting: usize,
    /// For how long the first of them has waited, in milliseconds.
    longest: Option<i64>,
    transitions: i64,
    troubled: usize,
}

/// A view at one moment.
struct View {
    keys: Vec<Contended>,
    quorums: Vec<QuorumObject>,
    held: usize,
    waiting: usize,
    troubled: usize,
    most: usize,
    now: MilliTime,
}

impl View {
    /// Pure: what most wait for comes first, then what changes hands most.
    fn of(locks: &[LockObject], quorums: Vec<QuorumObject>, most: usize, now: MilliTime) -> Self {
        let mut keys: BTreeMap<String, Contended> = BTreeMap::new();
        let is_troubled = |lock: &LockObject| line::is_troubled(lock, now);
        let waits = |lock: &LockObject| !lock.is_held() && !lock.is_finished();
        for lock in locks {
            let name = lock.lock();
            let key = keys.entry(name.clone()).or_insert_with(|| Contended {
                lock: name,
                holders: Vec::new(),
                waiting: 0,
                longest: None,
                transitions: 0,
                troubled: 0,
            });
            key.transitions += lock.status.transitions;
            key.troubled += usize::from(is_troubled(lock));
            if lock.is_held() {
                key.holders.push(lock.who());
            } else if waits(lock) {
                key.waiting += 1;
                key.longest = key.longest.max(lock.created().map(|created| between(created, now)));
            }
        }
        let mut keys: Vec<_> = keys.into_values().collect();
        keys.sort_by_key(|key| std::cmp::Reverse((key.troubled, key.waiting, key.transitions, key.longest)));
        let number = |of: &dyn Fn(&LockObject) -> bool| locks.iter().filter(|lock| of(lock)).count();
        let (held, waiting) = (number(&LockObject::is_held), number(&waits));
        Self { keys, quorums, held, waiting, troubled: number(&is_troubled), most, now }
    }
}

impl Answer for View {
    fn value(&self) -> Value {
        let key = |key: &Contended| {
            json!({"lock": key.lock, "holders": key.holders, "waiting": key.waiting, "longestWaitMs": key.longest,
                "transitions": key.transitions, "troubled": key.troubled})
        };
        let quorum = |quorum: &QuorumObject| {
            let members = quorum.status.voters.len();
            json!({"name": quorum.full_name(), "voting": quorum.voting(), "memberCount": members})
        };
        json!({
            "held": self.held, "waiting": self.waiting, "troubled": self.troubled,
            "quorums": self.quorums.iter().map(quorum).collect::<Vec<_>>(),
            "items": self.keys.iter().take(self.most).map(key).collect::<Vec<_>>(),
        })
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let bad = if self.troubled == 0 { Tone::Plain } else { Tone::Bad };
        let troubled = paint.tone(bad, &format!("{} in trouble", self.troubled));
        let mut text = format!("{} held, {} waiting, {troubled}\n", count(self.held, "lock"), self.waiting);
        for quorum in &self.quorums {
            let all = quorum.voting() == quorum.status.voters.len();
            let says = of_quorum(quorum, self.now).says.join(" ");
            text += &format!("{}\n", paint.tone(if all { Tone::Good } else { Tone::Waiting }, &says));
        }
        let mut table = Table::new(vec!["LOCK", "HOLDERS", "WAITING", "LONGEST-WAIT", "TRANSITIONS", "TROUBLE"]);
        for key in self.keys.iter().take(self.most) {
            let trouble = if key.troubled == 0 { Tone::Dim } else { Tone::Bad };
            table.push(vec![
                key.lock.clone().into(),
                key.holders.join(",").into(),
                key.waiting.to_string().into(),
                key.longest.map(span).unwrap_or_default().into(),
                key.transitions.to_string().into(),
                Cell::toned(trouble, key.troubled.to_string()),
            ]);
        }
        text + "\n" + &table.render(paint)
    }

    fn names(&self) -> Vec<String> {
        self.keys.iter().take(self.most).map(|key| key.lock.clone()).collect()
    }
}

/// Prints the view: on a terminal again and again, until Ctrl-C.
///
/// # Errors
/// If the API server does not answer.
pub async fn run(args: TopArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.scope.cluster).await?;
    let printer = Printer::new(args.output);
    let is_live = printer.is_terminal() && !args.once && matches!(printer.format(), None | Some(Format::Wide));
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let view = load(&cluster, &args).await?;
        if !is_live {
            return printer.show(&view);
        }
        printer.write("\u{1b}[H\u{1b}[2J")?;
        printer.show(&view)?;
    }
}

async fn load(cluster: &Cluster, args: &TopArgs) -> Result<View, Problem> {
    let locks: Vec<LockObject> = cluster.list(args.scope.of(&cluster.namespace), "").await?;
    // Those of other namespaces serve these locks, too, if this user may read them.
    let quorums = match cluster.list::<QuorumObject>(None, "").await {
        Ok(quorums) => quorums,
        Err(problem) if problem.is_forbidden() => cluster.list(Some(&cluster.namespace), "").await?,
        Err(problem) => return Err(problem),
    };
    Ok(View::of(&locks, quorums, args.keys, cluster.now()))
}

#[cfg(test)]
mod tests {
    use super::super::objects::fake::{held, lock, now, quorum, waiting};
    use super::*;

    #[test]
    fn what_most_wait_for_comes_first() {
        let quiet = lock("quiet", "{spec: {claim: {identity: q}}}");
        let locks = [quiet, held("a"), waiting("b", "Queued", "", Some(1)), waiting("c", "Queued", "", Some(2))];
        let view = View::of(&locks, vec![quorum(["Admitted", "Admitted", "Fenced"])], 20, now());
        let text = view.text(Paint::PLAIN, false);
        assert!(
            text.starts_with("1 lock held, 3 waiting, 0 in trouble\nRedisQuorum redlock-system/main: 2 of 3"),
            "{text}"
        );
        assert!(text.contains("shop/reindex   a         2         60m00s         1             0"), "{text}");
        assert_eq!(view.names(), ["shop/reindex", "shop/quiet"]);
        assert_eq!((&view.value()["items"][0]["waiting"], &view.value()["held"]), (&json!(2), &json!(1)));
    }

    #[test]
    fn trouble_comes_before_all_else() {
        let stuck = lock(
            "stuck",
            "{spec: {}, status: {conditions: [{type: Held, status: 'False', reason: Unreadable, message: '',
               lastTransitionTime: 2026-01-01T11:00:00Z}]}}",
        );
        let view = View::of(&[held("a"), waiting("b", "Queued", "", Some(1)), stuck], Vec::new(), 1, now());
        assert_eq!((view.troubled, view.names()), (1, vec!["shop/stuck".to_owned()]));
    }
}
