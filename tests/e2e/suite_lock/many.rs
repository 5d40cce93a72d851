//! Many locks at once on one operator. `LOCKS=2000` tries more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::ResourceExt;
use redlock_operator::api::DistributedLock;
use serde_json::json;

use super::support::{LockVersion, with};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{claim, is_held},
    record::Recorder,
};

const LOCKS: usize = 300;
const TTL: Duration = Duration::from_secs(10);
const HELD_LIMIT: Duration = Duration::from_secs(120);
const WATCHED: Duration = Duration::from_secs(60);
/// Requests to the API server that are under way at once.
const AT_ONCE: usize = 16;

pub(crate) async fn three_hundred_locks_are_held_and_renewed_at_once(bench: Bench) -> anyhow::Result<()> {
    let count = std::env::var("LOCKS").ok().and_then(|n| n.parse().ok()).unwrap_or(LOCKS);
    let validity = std::env::var("VALIDITY").unwrap_or_else(|_| "Published".into());
    let recorder = Recorder::<DistributedLock>::labelled(bench.api(), "e2e=many").await?;
    let start = bench.now();
    futures::stream::iter(0..count)
        .map(|number| {
            let name = format!("lock-{number}");
            let mut lock = with(claim(&name, &name, None, TTL), json!({"validity": validity}));
            lock["metadata"]["labels"] = json!({"e2e": "many"});
            let bench = bench.clone();
            async move { bench.create::<DistributedLock>(lock).await }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| std::future::ready(Ok(())))
        .await?;
    bench.figures.add(&format!("{count} locks created"), bench.now().since(start));
    let mut held = BTreeSet::new();
    let mut next = 0;
    while held.len() < count {
        let left = HELD_LIMIT.saturating_sub(bench.now().since(start));
        let what = format!("{count} locks are held: {} are", held.len());
        recorder.until_after(next, left, &what, |_| true).await?;
        let fresh = recorder.versions().split_off(next);
        next += fresh.len();
        held.extend(fresh.into_iter().filter(|v| is_held(&v.object)).map(|v| v.object.name_any()));
    }
    bench.figures.add(&format!("{count} locks held"), bench.now().since(start));
    // The minute of the test's name.
    tokio::time::sleep(WATCHED).await;
    let mut by_lock: BTreeMap<String, Vec<LockVersion>> = BTreeMap::new();
    for version in recorder.versions() {
        by_lock.entry(version.object.name_any()).or_default().push(version);
    }
    ensure!(by_lock.len() == count, "{} locks were seen", by_lock.len());
    let outcomes: Vec<_> = by_lock.iter().map(|(name, versions)| (name, check_held_throughout(versions))).collect();
    let renewals: usize = outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()).sum();
    let bad: Vec<_> =
        outcomes.iter().filter_map(|(name, o)| o.as_ref().err().map(|e| format!("{name}: {e}"))).collect();
    println!("{count} locks: {} held throughout, {} not; {renewals} renewals published", count - bad.len(), bad.len());
    ensure!(
        bad.is_empty(),
        "{} of {count} locks were lost or late: {:?}",
        bad.len(),
        bad.iter().take(3).collect::<Vec<_>>()
    );
    Ok(())
}
