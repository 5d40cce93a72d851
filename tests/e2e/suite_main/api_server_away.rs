//! Locks need no API server to stay held.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    bench::Bench,
    foreign::KeyMonitor,
    locks::{Lock, SOON, claim, is_held, status},
    operators,
    quorums::Quorum,
};

const AWAY: Duration = Duration::from_secs(30);
/// A ttl that is several times shorter than the outage, so that the key expires without renewals.
const TTL: Duration = Duration::from_secs(5);
/// The limit until watches, controllers and the operator have found the API server again.
const RECOVERY_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn a_lock_outlives_thirty_seconds_without_an_api_server(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", TTL).await?;
    let lock = Lock::create(&bench, claim("job", "job", Some("q"), TTL)).await?;
    let before = status(&lock.held(SOON).await?.object);
    let waiting = Lock::create(&bench, claim("waiting", "job", Some("q"), TTL)).await?;
    waiting.reason("Queued", SOON).await?;
    let monitor = KeyMonitor::start(&quorum, &format!("{}/job", bench.namespace)).await?;

    bench.cluster.faults.stop_api_server().await?;
    let stopped = bench.wall().0;
    // The outage lasts for a fixed time, so there is no condition to await.
    tokio::time::sleep(AWAY).await;
    let started = bench.wall().0;
    bench.cluster.faults.start_api_server().await?;
    let back = bench.now();

    let renewed = |v: &crate::record::Version<_>| {
        is_held(&v.object) && status(&v.object).renewed_at.is_some_and(|at| at.as_millis() > started)
    };
    let after = lock.recorder.until(RECOVERY_LIMIT, "renewed after the API server came back", renewed).await?;
    bench.figures.add("API server back -> renewal in status", after.at.since(back));
    let after = status(&after.object);
    ensure!(
        (&after.holder, after.fencing_token, after.transitions)
            == (&before.holder, before.fencing_token, before.transitions),
        "the lock changed hands: {before:?}, then {after:?}"
    );
    let lost = lock.recorder.versions().iter().skip_while(|v| !is_held(&v.object)).any(|v| !is_held(&v.object));
    ensure!(!lost, "the lock was lost for a while");
    let granted = waiting.recorder.versions().iter().any(|v| status(&v.object).holder.is_some());
    ensure!(!granted, "the waiting claim was granted");

    monitor.check_alive(stopped, started).await?;

    // After the outage the next claim gets the lock.
    lock.delete().await?;
    lock.recorder.until_gone(RECOVERY_LIMIT).await?;
    let next = waiting.held(SOON).await?;
    bench.figures.add("API server back -> released, next claim Held", next.at.since(back));
    operators::all_available(&bench.cluster).await
}
