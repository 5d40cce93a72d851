//! `redlock history`: the holds of a key, past and present.

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::lock_row;
use super::status::LockArgs;
use crate::cluster::objects::LockObject;
use crate::cluster::target::Target;
use crate::output::format::{between, date, span};
use crate::output::{Answer, Cell, Paint, Printer, Table, Tone};
use redlock_api::conditions::LockCondition;
use redlock_api::{MilliTime, PastHold};

/// One hold, past or present.
#[derive(Clone, Debug)]
struct HistoryEntry {
    object: String,
    hold: PastHold,
    is_present: bool,
}

/// All holds in the histories of a key's objects, newest first.
struct History {
    target: Target,
    holds: Vec<HistoryEntry>,
    now: MilliTime,
}

impl History {
    fn of(target: Target, locks: &[LockObject], now: MilliTime) -> Self {
        let mut holds = Vec::new();
        for lock in locks {
            let past =
                |hold: &PastHold| HistoryEntry { object: lock.name_any(), hold: hold.clone(), is_present: false };
            holds.extend(lock.status.history.iter().map(past));
            if let Some(holder) = &lock.status.holder {
                let is_present = lock.is_held();
                // A lost lock is not held from the transition of the condition on, but its status still names the holder.
                let lost = lock.condition(LockCondition::Held).filter(|_| !is_present);
                let hold = PastHold {
                    identity: holder.identity.clone(),
                    fencing_token: lock.status.fencing_token,
                    from: lock.status.acquired_at,
                    to: lost.map_or(now, |lost| MilliTime::from(lost.last_transition_time.0)),
                    reason: lock_row::state(lock),
                    message: None,
                };
                holds.push(HistoryEntry { object: lock.name_any(), hold, is_present });
            }
        }
        holds.sort_by_key(|entry| (std::cmp::Reverse(entry.hold.fencing_token), std::cmp::Reverse(entry.hold.to)));
        Self { target, holds, now }
    }
}

impl Answer for History {
    fn value(&self) -> Value {
        let hold = |entry: &HistoryEntry| {
            let mut value = json!(entry.hold);
            value["object"] = json!(entry.object);
            value["held"] = json!(entry.is_present);
            value["heldForMs"] = json!(entry.hold.from.map(|from| between(from, entry.hold.to)));
            if entry.is_present {
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
        for HistoryEntry { object, hold, is_present } in &self.holds {
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
        self.holds.iter().map(|entry| entry.hold.identity.clone()).collect()
    }
}

/// Prints the holders of a lock.
///
/// # Errors
/// If no lock matches, or the API server does not answer.
pub async fn run(args: LockArgs) -> anyhow::Result<()> {
    let (cluster, target, found) = args.find().await?;
    Printer::new(args.output).show(&History::of(target, &found.meant, cluster.now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::{held, lock, lost, now};

    fn target() -> Target {
        Target::parse("shop/reindex", None, "default").unwrap()
    }

    #[test]
    fn a_history_has_all_holds_of_a_key_by_their_tokens() {
        let past = "{spec: {key: reindex}, status: {history: [
            {identity: x, fencingToken: 7, from: 2026-01-01T10:00:00.000Z, to: 2026-01-01T10:00:30.000Z, reason: Broken, message: by ann},
            {identity: y, fencingToken: 3, to: 2026-01-01T09:00:00.000Z, reason: Released}]}}";
        let history = History::of(target(), &[lock("old", past), held("a")], now());
        let tokens: Vec<_> = history.holds.iter().map(|entry| entry.hold.fencing_token).collect();
        assert_eq!(tokens, [Some(42), Some(7), Some(3)]);
        let text = history.text(Paint::PLAIN, false);
        assert!(text.contains("a        42      2026-01-01 11:59:00Z   60s        Held"), "{text}");
        assert!(text.contains("30s        Broken     by ann"), "{text}");
        let value = history.value();
        assert_eq!((&value["items"][0]["held"], value["items"][0].get("to")), (&json!(true), None));
        assert_eq!(value["items"][1]["heldForMs"], 30_000);
        assert!(History::of(target(), &[], now()).text(Paint::PLAIN, false).contains("never held"));
        let lost = History::of(target(), &[lost("a")], now()).value();
        assert_eq!((&lost["items"][0]["held"], &lost["items"][0]["heldForMs"]), (&json!(false), &json!(50_000)));
        assert_eq!(lost["items"][0]["reason"], "Expired");
    }
}
