//! Many locks at once on one operator.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use kube::ResourceExt;
use redlock_operator::api::Validity;
use serde_json::json;

use super::support::{LockVersion, with};
use crate::{
    bench::Bench,
    history::{check_held_throughout, check_never_lost},
    locks::{claim, create_all, delete_all, is_held, until_all, watch_all},
    operators,
};

const LOCKS: usize = 2_000;
const TTL: Duration = Duration::from_secs(30);
/// The limit until all locks are held.
///
/// It is generous, because the API server has to write each lock three times.
const ALL_HELD: Duration = Duration::from_secs(300);
const WATCHED: Duration = Duration::from_secs(60);

/// Every other lock publishes its renewals.
pub(crate) async fn two_thousand_locks_are_held_and_renewed_at_once(bench: Bench) -> anyhow::Result<()> {
    let recorder = watch_all(&bench).await?;
    let leader = operators::leader(&bench.cluster).await?.pod;
    let before = Lateness::read(&bench, &leader).await?;
    let start = bench.now();
    let name = |number: usize| format!("lock-{number}");
    let lock = |number: usize| {
        let validity = if number.is_multiple_of(2) { "Published" } else { "Transitions" };
        with(claim(&name(number), &name(number), None, TTL), json!({"validity": validity}))
    };
    create_all(&bench.api(), LOCKS, lock).await?;
    bench.figures.add(&format!("{LOCKS} locks created"), bench.now().since(start));
    let left = ALL_HELD.saturating_sub(bench.now().since(start));
    until_all(&recorder, LOCKS, left, "held", |version| is_held(&version.object)).await?;
    bench.figures.add(&format!("{LOCKS} locks held"), bench.now().since(start));
    // In this time each lock must be renewed several times.
    let held = Lateness::read(&bench, &leader).await?;
    tokio::time::sleep(WATCHED).await;
    let mut by_lock: BTreeMap<String, Vec<LockVersion>> = BTreeMap::new();
    for version in recorder.versions() {
        by_lock.entry(version.object.name_any()).or_default().push(version);
    }
    ensure!(by_lock.len() == LOCKS, "{} locks were seen", by_lock.len());
    let lost = by_lock.iter().filter_map(|(name, all)| Some(format!("{name}: {}", check_never_lost(all).err()?)));
    let lost: Vec<_> = lost.collect();
    ensure!(lost.is_empty(), "{} of {LOCKS} locks were lost, such as {:?}", lost.len(), lost.first());
    let after = Lateness::read(&bench, &leader).await?;
    let (renewals, late) = (after.all - before.all, after.late - before.late);
    ensure!(late == 0, "{late} of {renewals} renewals began more than a second late");
    let (since_held, interval) = (after.all - held.all, TTL / 3);
    let due = u64::try_from(LOCKS)? * u64::try_from(WATCHED.as_millis() / interval.as_millis())?;
    ensure!(since_held * 10 >= due * 8, "only {since_held} of {due} renewals in {WATCHED:?}");
    // The test only prints this, because the API server shares two cores with all other components.
    let published =
        by_lock.values().filter(|versions| versions.iter().all(is_published)).map(|v| check_held_throughout(v));
    let (in_time, behind): (Vec<_>, Vec<_>) = published.partition(Result::is_ok);
    println!(
        "         {LOCKS} locks held throughout, {renewals} renewals in time; validity published in time of {} locks, late of {}",
        in_time.len(),
        behind.len()
    );
    let start = bench.now();
    delete_all(&bench, (0..LOCKS).map(name)).await?;
    until_all(&recorder, LOCKS, ALL_HELD, "released", |version| version.gone).await?;
    bench.figures.add(&format!("{LOCKS} locks released"), bench.now().since(start));
    Ok(())
}

fn is_published(version: &LockVersion) -> bool {
    version.object.spec.validity == Validity::Published
}

/// Counters of the renewals of one replica.
struct Lateness {
    all: u64,
    /// Renewals that began more than a second after they were due.
    late: u64,
}

impl Lateness {
    async fn read(bench: &Bench, pod: &str) -> anyhow::Result<Self> {
        let text = operators::read(&bench.cluster, pod, "metrics").await?;
        let all = operators::sample(&text, "redlock_renewal_lateness_seconds_count")?;
        let in_time = operators::sample(&text, "redlock_renewal_lateness_seconds_bucket{le=\"1.0\"}")?;
        Ok(Self { all, late: all - in_time })
    }
}
