//! `redlock audit`: whether what locks remember shows two holders at a time, or tokens that did not rise.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster::{Cluster, Problem, ScopeArgs};
use super::output::{Answer, OutputArgs, Paint, Printer, Tone};
use super::seen::SeenLock;
use super::words::count;
use crate::api::MilliTime;

pub mod judge;

use judge::Hold;

/// So many events are shown to people; programs get all.
const SHOWN: usize = 20;

/// What is judged.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Judge files that `redlock history -o json` has written, in place of a cluster. Those of one lock are judged together.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all_namespaces", "namespace"])]
    file: Vec<PathBuf>,
}

/// A key and how many may hold it at a time.
type Keys = BTreeMap<String, (usize, Vec<Hold>)>;

/// What `redlock history -o json` writes, as far as it is judged.
#[derive(Deserialize)]
struct Journal {
    lock: String,
    #[serde(default = "one")]
    slots: usize,
    items: Vec<Remembered>,
}

const fn one() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Remembered {
    identity: String,
    fencing_token: Option<i64>,
    from: Option<MilliTime>,
    to: Option<MilliTime>,
    #[serde(default)]
    held_for_ms: Option<i64>,
}

/// What was judged, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    keys: usize,
    holds: usize,
    overlaps: Vec<String>,
    reversals: Vec<String>,
}

impl Judged {
    /// Pure: judges each key by itself.
    fn of(keys: Keys) -> Self {
        let (number, mut holds) = (keys.len(), 0);
        let (mut overlaps, mut reversals) = (Vec::new(), Vec::new());
        for (slots, mut of_key) in keys.into_values() {
            // Objects and files of one key may tell of the same hold.
            of_key.sort_by(|a, b| (a.from, a.token, &a.who, a.until).cmp(&(b.from, b.token, &b.who, b.until)));
            of_key.dedup_by(|a, b| a.token.is_some() && (a.token, &a.who, a.from) == (b.token, &b.who, b.from));
            holds += of_key.len();
            if slots > 1 {
                overlaps.extend(too_many(&of_key, slots));
                continue;
            }
            let verdict = judge::check(&of_key, &[], usize::MAX, usize::MAX);
            overlaps.extend(verdict.overlaps);
            reversals.extend(verdict.reversals);
        }
        Self { keys: number, holds, overlaps, reversals }
    }

    fn is_well(&self) -> bool {
        self.overlaps.is_empty() && self.reversals.is_empty()
    }
}

/// The holds at whose beginning more than `slots` holders were at it.
fn too_many(holds: &[Hold], slots: usize) -> Vec<String> {
    let at = |time: i64| holds.iter().filter(|hold| hold.from <= time && time < hold.end()).count();
    let crowded = holds.iter().filter(|hold| hold.from < hold.end() && at(hold.from) > slots);
    crowded.map(|hold| format!("{} holders of {slots} slots when this began: {hold:?}", at(hold.from))).collect()
}

impl Answer for Judged {
    fn value(&self) -> Value {
        json!({"well": self.is_well(), "keyCount": self.keys, "holdCount": self.holds, "overlaps": self.overlaps,
            "reversals": self.reversals})
    }

    fn text(&self, paint: Paint, _: bool) -> String {
        let mut text = String::new();
        for wrong in self.overlaps.iter().chain(&self.reversals).take(SHOWN) {
            text += &format!("{} {wrong}\n", paint.tone(Tone::Bad, "bad"));
        }
        let (holds, keys) = (count(self.holds, "hold"), count(self.keys, "key"));
        let word = if self.is_well() {
            paint.tone(Tone::Good, "one holder at a time, and tokens that rise")
        } else {
            paint.tone(
                Tone::Bad,
                &format!(
                    "{} that may not be. Report it: redlock report",
                    count(self.overlaps.len() + self.reversals.len(), "event")
                ),
            )
        };
        text + &format!("{holds} of {keys}: {word}.\n")
    }

    fn names(&self) -> Vec<String> {
        self.overlaps.iter().chain(&self.reversals).cloned().collect()
    }
}

/// Prints what was judged; whether nothing is wrong.
///
/// # Errors
/// If the API server does not answer, or a file cannot be read.
pub async fn run(args: AuditArgs) -> anyhow::Result<bool> {
    let keys = if args.file.is_empty() {
        let cluster = Cluster::connect(&args.scope.cluster).await?;
        let locks = cluster.list::<SeenLock>(args.scope.of(&cluster.namespace), "").await?;
        of_locks(&locks, cluster.now())
    } else {
        let mut keys = Keys::new();
        for file in &args.file {
            let unreadable = |error: &dyn std::fmt::Display| {
                let what = format!("failed to read {}: {error}", file.display());
                Problem::new(what, "Write such a file: redlock history LOCK -o json")
            };
            let text = fs::read_to_string(file).map_err(|error| unreadable(&error))?;
            add(&mut keys, serde_json::from_str(&text).map_err(|error| unreadable(&error))?);
        }
        keys
    };
    let judged = Judged::of(keys);
    Printer::new(args.output).show(&judged)?;
    Ok(judged.is_well())
}

/// What locks remember, and what they hold now.
fn of_locks(locks: &[SeenLock], now: MilliTime) -> Keys {
    let mut keys = Keys::new();
    for lock in locks {
        let quorum = lock
            .spec
            .quorum_ref
            .as_ref()
            .map(|quorum| format!(" on {}/{}", quorum.namespace.clone().unwrap_or_default(), quorum.name));
        // Two quorums know nothing of each other, so the same key on both is two locks.
        let key = lock.lock() + &quorum.unwrap_or_default();
        let slots = lock.spec.slots.and_then(|slots| usize::try_from(slots).ok()).unwrap_or(1);
        let (_, holds) = keys.entry(key.clone()).or_insert((slots, Vec::new()));
        let hold = |who: &str, token, from: Option<MilliTime>, to: MilliTime| Hold {
            who: who.to_owned(),
            key: key.clone(),
            token,
            from: from.unwrap_or(to).as_millis(),
            until: to.as_millis(),
            ..Hold::default()
        };
        let past = &lock.status.history;
        holds.extend(past.iter().map(|past| hold(&past.identity, past.fencing_token, past.from, past.to)));
        if lock.is_held() {
            let until = lock.valid_until().map_or(now, |until| until.max(now));
            holds.push(hold(&lock.who(), lock.status.fencing_token, lock.status.acquired_at, until));
        }
    }
    keys
}

fn add(keys: &mut Keys, journal: Journal) {
    let (_, holds) = keys.entry(journal.lock.clone()).or_insert((journal.slots, Vec::new()));
    holds.extend(journal.items.into_iter().filter_map(|past| {
        let from = past.from.or(past.to)?.as_millis();
        let until = past.to.map_or(from + past.held_for_ms.unwrap_or_default(), MilliTime::as_millis);
        Some(Hold {
            who: past.identity,
            key: journal.lock.clone(),
            token: past.fencing_token,
            from,
            until,
            ..Hold::default()
        })
    }));
}

#[cfg(test)]
mod tests {
    use super::super::seen::fake::{held, lock, now};
    use super::*;

    fn remembers(name: &str, slots: i32, from: &str, to: &str, token: i64) -> SeenLock {
        lock(
            name,
            &format!(
                "{{spec: {{key: reindex, slots: {slots}}}, status: {{history: [
                   {{identity: {name}, fencingToken: {token}, from: 2026-01-01T{from}.000Z, to: 2026-01-01T{to}.000Z, reason: Released}}]}}}}"
            ),
        )
    }

    fn judged(locks: &[SeenLock]) -> Judged {
        Judged::of(of_locks(locks, now()))
    }

    #[test]
    fn holds_one_after_the_other_with_larger_tokens_are_well() {
        let before = remembers("b", 1, "11:58:00", "11:59:00", 41);
        let judged = judged(&[before, held("a")]);
        assert_eq!((judged.keys, judged.holds, judged.is_well()), (1, 2, true));
        assert_eq!(judged.text(Paint(false), false), "2 holds of 1 key: one holder at a time, and tokens that rise.\n");
    }

    #[test]
    fn two_holders_at_a_time_and_tokens_that_fall_are_found() {
        let overlap = judged(&[remembers("b", 1, "11:58:00", "11:59:01", 41), held("a")]);
        assert!(overlap.overlaps.len() == 1 && overlap.reversals.is_empty(), "{overlap:?}");
        let reversal = judged(&[remembers("b", 1, "11:58:00", "11:58:30", 42), held("a")]);
        assert!(reversal.overlaps.is_empty() && reversal.reversals.len() == 1, "{reversal:?}");
        assert_eq!(reversal.value()["well"], false);
    }

    #[test]
    fn a_key_with_slots_has_no_more_holders_than_slots() {
        let three = |slots| {
            let one = |name, from, token| remembers(name, slots, from, "11:59:30", token);
            judged(&[one("a", "11:58:00", 1), one("b", "11:58:10", 1), one("c", "11:58:20", 2)])
        };
        assert!(three(3).is_well());
        assert_eq!(three(2).overlaps.len(), 1);
    }

    #[test]
    fn quorums_know_nothing_of_each_other() {
        let mut elsewhere = remembers("b", 1, "11:58:00", "11:59:30", 99);
        elsewhere.spec.quorum_ref = Some(crate::api::QuorumRef { name: "other".into(), namespace: None });
        assert_eq!(judged(&[elsewhere, held("a")]).keys, 2);
    }

    #[test]
    fn files_of_one_lock_are_judged_together_and_the_same_hold_counts_once() {
        let journal = |items: Value| serde_json::from_value(json!({"lock": "shop/reindex", "items": items})).unwrap();
        let first = json!({"identity": "a", "fencingToken": 1, "from": "2026-01-01T10:00:00.000Z", "to": "2026-01-01T10:00:10.000Z"});
        let second = json!({"identity": "b", "fencingToken": 2, "from": "2026-01-01T10:00:05.000Z", "heldForMs": 9_000, "held": true});
        let mut keys = Keys::new();
        add(&mut keys, journal(json!([first])));
        add(&mut keys, journal(json!([second, first])));
        let judged = Judged::of(keys);
        assert_eq!((judged.holds, judged.overlaps.len()), (2, 1));
    }
}
