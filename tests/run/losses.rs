//! Forced losses of all kinds that docs/safety.md and docs/agent.md have guarantees for, many of them. A command records when
//! it runs, and an application records the deadlines that its agent returns. The test compares both with the members' clock.
//!
//! `LOSSES=200` sets the number of losses (default: one of each kind). `KINDS=Minority` selects kinds by a part of their names.

mod application;
mod kinds;
mod lock;
mod world;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use redlock_operator::time::Boottime;

use kinds::{ALL, Kind};
use world::World;

/// Losses at the same time.
const AT_ONCE: usize = 4;
/// The interval of renewals in milliseconds, in which a fault can come at any time.
const RENEWED_EVERY: usize = 1_000;

/// The time between the last work and the end of the lock, or an error if there was work after the end.
fn judge(what: &str, last: Boottime, end: Boottime) -> Result<Duration, String> {
    if last > end { Err(format!("{what}: {:?} after the lock", last.since(end))) } else { Ok(end.since(last)) }
}

fn lose(kind: Kind, number: usize) -> Result<Duration, String> {
    let world = World::new(kind, number);
    let lost = if kind.holder.asks() {
        application::lose(&world, kind, after(number))
    } else {
        world.lose(kind, after(number))
    };
    lost.map_err(|what| format!("{kind:?} after {:?}: {what}", after(number)))
}

/// The delay of a fault, which differs in each loss and is shorter than the interval of renewals.
fn after(number: usize) -> Duration {
    Duration::from_millis(u64::try_from(number * 7919 % RENEWED_EVERY).unwrap())
}

#[test]
fn nothing_of_a_command_and_no_answer_outlives_its_lock() {
    let losses = std::env::var("LOSSES").map_or(ALL.len(), |count| count.parse().expect("LOSSES is a number"));
    let wanted = std::env::var("KINDS").unwrap_or_default();
    let kinds: Vec<_> = ALL.iter().copied().filter(|kind| format!("{kind:?}").contains(&wanted)).collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<String, Vec<_>>::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= losses {
                        break;
                    }
                    let kind = kinds[number % kinds.len()];
                    let lost = lose(kind, number);
                    results.lock().unwrap().entry(format!("{kind:?}")).or_default().push(lost);
                }
            });
        }
    });
    let results = results.into_inner().unwrap();
    for (kind, of_kind) in &results {
        let least = of_kind.iter().flatten().min();
        println!("{kind}: {} forced, at least {least:?} before the end of the lock", of_kind.len());
    }
    assert_eq!(results.values().map(Vec::len).sum::<usize>(), losses);
    let failures: Vec<_> = results.values().flatten().filter_map(|lost| lost.as_ref().err()).collect();
    assert!(failures.is_empty(), "{} of {losses} losses: {failures:#?}", failures.len());
}
