//! `redlock top`: the locks and quorums of an installation, with what is wrong first.
//!
//! On a terminal it is a full-screen view that follows the objects. Elsewhere, and with `--once`, it is printed once.

use std::io::{self, IsTerminal as _};

use serde_json::{Value, json};

use crate::cluster::objects::{LockObject, QuorumObject};
use crate::cluster::{Cluster, ScopeArgs, any_of};
use crate::output::format::{count, span};
use crate::output::{Answer, Cell, Format, OutputArgs, Paint, Printer, Table, Tone};
use crate::show::explain::of_quorum;
use crate::show::picture::{KeyState, Picture};
use redlock_api::MilliTime;

mod draw;
mod screen;
mod view;

/// Which locks, and how many.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Print this number of keys. The full-screen view shows all of them.
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    keys: usize,
    /// Print once, also on a terminal.
    #[arg(long)]
    once: bool,
}

/// The printed form.
struct Overview {
    locks: Vec<LockObject>,
    quorums: Vec<QuorumObject>,
    most: usize,
    now: MilliTime,
}

impl Overview {
    fn picture(&self) -> Picture<'_> {
        Picture::of(&self.locks, &self.quorums, self.now)
    }
}

impl Answer for Overview {
    fn value(&self) -> Value {
        let picture = self.picture();
        let key = |key: &KeyState<'_>| {
            let holders: Vec<_> = key.holders.iter().map(|lock| lock.who()).collect();
            json!({"lock": key.lock, "holders": holders, "waiting": key.queue.len(), "longestWaitMs": key.longest,
                "transitions": key.transitions, "troubled": key.troubled})
        };
        let quorum = |quorum: &&QuorumObject| {
            let members = quorum.status.voters.len();
            json!({"name": quorum.full_name(), "voting": quorum.voting(), "memberCount": members})
        };
        json!({
            "held": picture.held(), "waiting": picture.waiting(), "troubled": picture.troubled(),
            "quorums": picture.quorums.iter().map(quorum).collect::<Vec<_>>(),
            "items": picture.keys.iter().take(self.most).map(key).collect::<Vec<_>>(),
        })
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let picture = self.picture();
        let bad = if picture.troubled() == 0 { Tone::Plain } else { Tone::Bad };
        let troubled = paint.tone(bad, &format!("{} in trouble", picture.troubled()));
        let mut text = format!("{} held, {} waiting, {troubled}\n", count(picture.held(), "lock"), picture.waiting());
        for quorum in &picture.quorums {
            let sentences = of_quorum(quorum, self.now).lines.join(" ");
            text +=
                &format!("{}\n", paint.tone(if quorum.all_vote() { Tone::Good } else { Tone::Waiting }, &sentences));
        }
        let mut table = Table::new(vec!["LOCK", "HOLDERS", "WAITING", "LONGEST-WAIT", "TRANSITIONS", "TROUBLE"]);
        for key in picture.keys.iter().take(self.most) {
            let trouble = if key.troubled == 0 { Tone::Dim } else { Tone::Bad };
            let holders: Vec<_> = key.holders.iter().map(|lock| lock.who()).collect();
            table.push(vec![
                key.lock.clone().into(),
                holders.join(",").into(),
                key.queue.len().to_string().into(),
                key.longest.map(span).unwrap_or_default().into(),
                key.transitions.to_string().into(),
                Cell::toned(trouble, key.troubled.to_string()),
            ]);
        }
        text + "\n" + &table.render(paint)
    }

    fn names(&self) -> Vec<String> {
        self.picture().keys.iter().take(self.most).map(|key| key.lock.clone()).collect()
    }
}

/// Shows the view, or prints it once.
///
/// # Errors
/// If the API server does not answer at the start, or the terminal cannot be used.
pub async fn run(args: TopArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.scope.cluster).await?;
    let printer = Printer::new(args.output);
    let namespace = args.scope.of(&cluster.namespace);
    let locks: Vec<LockObject> = cluster.list(namespace, "").await?;
    let (quorums, scope) = cluster.list_readable::<QuorumObject>().await?;
    let is_for_people = matches!(printer.format, None | Some(Format::Wide));
    if is_for_people && printer.is_terminal && io::stdin().is_terminal() && !args.once {
        let view = view::View::new(any_of(namespace), printer.paint.colours);
        return screen::run(&cluster, namespace, scope, view).await;
    }
    printer.show(&Overview { locks, quorums, most: args.keys, now: cluster.now() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{condition, held, lock, now, quorum, waiting};

    #[test]
    fn the_key_with_most_waiters_comes_first() {
        let quiet = lock("quiet", "{spec: {claim: {identity: q}}}");
        let locks = vec![quiet, held("a"), waiting("b", "Queued", "", Some(1)), waiting("c", "Queued", "", Some(2))];
        let quorums = vec![quorum(["Admitted", "Admitted", "Fenced"])];
        let overview = Overview { locks, quorums, most: 20, now: now() };
        let text = overview.text(Paint::PLAIN, false);
        let begin = "1 lock held, 3 waiting, 0 in trouble\nRedisQuorum redlock-system/main: 2 of 3";
        assert!(text.starts_with(begin), "{text}");
        assert!(text.contains("shop/reindex   a         2         60m00s         1             0"), "{text}");
        assert_eq!(overview.names(), ["shop/reindex", "shop/quiet"]);
        assert_eq!((&overview.value()["items"][0]["waiting"], &overview.value()["held"]), (&json!(2), &json!(1)));
    }

    #[test]
    fn trouble_comes_before_all_else() {
        let mut stuck = lock("stuck", "{spec: {}}");
        stuck.status.conditions = vec![condition("Held", "False", "Unreadable", "")];
        let locks = vec![held("a"), waiting("b", "Queued", "", Some(1)), stuck];
        let overview = Overview { locks, quorums: Vec::new(), most: 1, now: now() };
        assert_eq!((overview.picture().troubled(), overview.names()), (1, vec!["shop/stuck".to_owned()]));
    }
}
