//! Many locks at once on one operator.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::ResourceExt;
use redlock_operator::api::{DistributedLock, Validity};
use serde_json::json;
use tokio::time::timeout;

use super::support::{LockVersion, with};
use crate::{
    bench::Bench,
    history::{check_held_throughout, check_never_lost},
    locks::{claim, is_held},
    operators,
    record::Recorder,
};

const WATCHED: Duration = Duration::from_secs(60);
/// Maximum number of concurrent requests to the API server.
const AT_ONCE: usize = 16;

/// The number of locks, and the time within which all are held.
///
/// The time is generous, because the API server has to write each lock three times.
struct Size {
    locks: usize,
    ttl: Duration,
    held_within: Duration,
}

pub(crate) async fn three_hundred_locks_are_held_and_renewed_at_once(bench: Bench) -> anyhow::Result<()> {
    let size = Size { locks: 300, ttl: Duration::from_secs(10), held_within: Duration::from_secs(120) };
    held_and_renewed(bench, size).await
}

pub(crate) async fn two_thousand_locks_are_held_and_renewed_at_once(bench: Bench) -> anyhow::Result<()> {
    let size = Size { locks: 2000, ttl: Duration::from_secs(30), held_within: Duration::from_secs(300) };
    held_and_renewed(bench, size).await
}

/// Every other lock publishes its renewals.
async fn held_and_renewed(bench: Bench, size: Size) -> anyhow::Result<()> {
    let Size { locks: count, ttl, held_within } = size;
    let recorder = Recorder::<DistributedLock>::labelled(bench.api(), "e2e=many").await?;
    let leader = operators::current(&operators::watch_leader(&bench.cluster).await?)?.pod;
    let before = Lateness::read(&bench, &leader).await?;
    let start = bench.now();
    futures::stream::iter(0..count)
        .map(|number| {
            let name = format!("lock-{number}");
            let validity = if number % 2 == 0 { "Published" } else { "Transitions" };
            let mut lock = with(claim(&name, &name, None, ttl), json!({"validity": validity}));
            lock["metadata"]["labels"] = json!({"e2e": "many"});
            let bench = bench.clone();
            async move { bench.create::<DistributedLock>(lock).await }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| std::future::ready(Ok(())))
        .await?;
    bench.figures.add(&format!("{count} locks created"), bench.now().since(start));
    let mut next = 0;
    let left = held_within.saturating_sub(bench.now().since(start));
    all(&recorder, &mut next, count, left, "held", |version| is_held(&version.object)).await?;
    bench.figures.add(&format!("{count} locks held"), bench.now().since(start));
    // In this time each lock must be renewed several times.
    let held = Lateness::read(&bench, &leader).await?;
    tokio::time::sleep(WATCHED).await;
    let mut by_lock: BTreeMap<String, Vec<LockVersion>> = BTreeMap::new();
    for version in recorder.versions() {
        by_lock.entry(version.object.name_any()).or_default().push(version);
    }
    ensure!(by_lock.len() == count, "{} locks were seen", by_lock.len());
    let lost: Vec<_> = by_lock
        .iter()
        .filter_map(|(name, versions)| check_never_lost(versions).err().map(|error| format!("{name}: {error}")))
        .collect();
    ensure!(
        lost.is_empty(),
        "{} of {count} locks were lost: {:?}",
        lost.len(),
        lost.iter().take(3).collect::<Vec<_>>()
    );
    let after = Lateness::read(&bench, &leader).await?;
    let (renewals, late) = (after.all - before.all, after.late - before.late);
    ensure!(late == 0, "{late} of {renewals} renewals began more than a second late");
    let (since_held, interval) = (after.all - held.all, ttl / 3);
    let due = u64::try_from(count)? * u64::try_from(WATCHED.as_millis() / interval.as_millis())?;
    ensure!(since_held * 10 >= due * 8, "only {since_held} of {due} renewals in {WATCHED:?}");
    // The test only prints this, because the API server shares two cores with all other components.
    let published =
        by_lock.values().filter(|versions| versions.iter().all(is_published)).map(|v| check_held_throughout(v));
    let (in_time, behind): (Vec<_>, Vec<_>) = published.partition(Result::is_ok);
    println!(
        "         {count} locks held throughout, {renewals} renewals in time; validity published in time of {} locks, late of {}",
        in_time.len(),
        behind.len()
    );
    let start = bench.now();
    let deletion = |number: usize| {
        let bench = bench.clone();
        async move { bench.delete::<DistributedLock>(&format!("lock-{number}")).await }
    };
    futures::stream::iter(0..count).map(deletion).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    all(&recorder, &mut next, count, held_within, "released", |version| version.gone).await?;
    bench.figures.add(&format!("{count} locks released"), bench.now().since(start));
    Ok(())
}

/// Waits until the condition was true of each lock, in a version after the `next`th.
async fn all(
    recorder: &Recorder<DistributedLock>,
    next: &mut usize,
    count: usize,
    within: Duration,
    what: &str,
    is_so: impl Fn(&LockVersion) -> bool,
) -> anyhow::Result<()> {
    let mut so = BTreeSet::new();
    let waited = timeout(within, async {
        while so.len() < count {
            let fresh = recorder.after(*next).await;
            *next += fresh.len();
            so.extend(fresh.iter().filter(|version| is_so(version)).map(|version| version.object.name_any()));
        }
    });
    let waited = waited.await;
    waited.with_context(|| format!("{} of {count} locks are {what} after {within:?}", so.len()))
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
        let sample = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("redlock_renewal_lateness_seconds_")?.strip_prefix(name));
            anyhow::Ok(line.with_context(|| format!("no {name} among the metrics"))?.trim().parse::<u64>()?)
        };
        let all = sample("count ")?;
        Ok(Self { all, late: all - sample("bucket{le=\"1.0\"} ")? })
    }
}
