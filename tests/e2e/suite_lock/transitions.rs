//! `validity: Transitions`: a held lock needs no write to the API server.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::support::{acquired_at, millis, suspend, with};
use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, status},
    operators,
};

const QUIET: Duration = Duration::from_secs(20);

pub(crate) async fn a_held_lock_with_transitions_costs_no_write(bench: Bench) -> anyhow::Result<()> {
    let ttl = Duration::from_secs(3);
    operators::all_available(&bench.cluster).await?;
    let lock = with(claim("job", "job", None, ttl), json!({"validity": "Transitions"}));
    let lock = Lock::take(&bench, lock).await?;
    lock.fully_voted(SOON).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, ttl)).await?;
    lock.recorder.never_during(lock.recorder.mark(), QUIET, "a write while nothing changes", |_| true).await?;

    let leases = operators::watch_leader(&bench.cluster).await?;
    let leader = operators::current(&leases)?;
    operators::roll(&bench.cluster).await?;
    operators::until_next_term(&leases, &leader).await?;
    operators::all_available(&bench.cluster).await?;
    let before = lock.recorder.mark();
    // A component that writes repeatedly would write within this time.
    tokio::time::sleep(2 * ttl).await;
    ensure!(lock.recorder.mark() - before <= 2, "a component writes it repeatedly");
    check_never_lost(&lock.recorder.versions())?;
    ensure!(!next.was_held(), "the next claim was granted");
    Ok(())
}

pub(crate) async fn a_grant_costs_two_writes_and_a_release_two(bench: Bench) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    let quiet = json!({"validity": "Transitions"});
    let lock = Lock::take(&bench, with(claim("job", "job", None, Duration::from_secs(10)), quiet)).await?;
    // A follow-up write would come now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let granted = lock.recorder.mark();
    ensure!(granted == 3, "created, then {} writes: {:?}", granted - 1, lock.recorder.last()?.object);
    lock.remove().await?;
    let versions = lock.recorder.versions();
    let writes = versions.iter().skip(granted).filter(|observed| !observed.gone).count();
    // The first version is the API server's own write of the deletion time. The last one removes the finalizer.
    ensure!(writes <= 2, "deleted, then {writes} versions before it was gone");
    Ok(())
}

pub(crate) async fn a_lock_with_transitions_is_not_cut_short(bench: Bench) -> anyhow::Result<()> {
    // The lock is renewed every 2 s, so at least 4 s are always left.
    let (ttl, left) = (Duration::from_secs(6), Duration::from_millis(3500));
    let lock = with(claim("job", "job", None, ttl), json!({"validity": "Transitions"}));
    let lock = Lock::take(&bench, lock).await?;
    let next = Lock::queue(&bench, claim("next", "job", None, ttl)).await?;
    // The published validity of the grant expires, but the lock does not.
    tokio::time::sleep(ttl + Duration::from_secs(1)).await;
    let asked = bench.wall().0;
    suspend(&lock, true).await?;
    let held = next.held(ttl + SOON).await?;
    let waited = acquired_at(&held)? - asked;
    ensure!(waited >= millis(left), "the next holder came {waited} ms after the renewals were stopped");
    ensure!(waited < millis(ttl + Duration::from_secs(1)), "the next holder came only after {waited} ms");
    let ending = lock.reason("Ending", SOON).await?;
    let until = status(&ending.object).ending.and_then(|ending| ending.until).map_or(0, |until| until.as_millis());
    ensure!(until >= asked + millis(left), "the published end is {} ms after the request", until - asked);
    Ok(())
}
