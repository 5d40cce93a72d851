//! A namespace leaves `quorumNamespaces` while a lock is held on a quorum there.

use std::time::Duration;

use anyhow::ensure;

use super::support::renewed_from_now;
use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, claim, is_held},
    operators,
    quorums::Quorum,
};

/// The ttl is longer than two updates of the operator.
const TTL: Duration = Duration::from_secs(90);
/// A ttl of the lock that the operator continues to serve.
const SERVED_TTL: Duration = Duration::from_secs(6);

pub(crate) async fn a_lock_on_a_quorum_that_is_not_served_is_left_alone(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", TTL).await?;
    let lock = Lock::take(&bench, claim("theirs", "theirs", Some("q"), TTL)).await?;
    operators::then_as_before(&bench.cluster, while_not_served(&bench, &lock)).await?;
    // Its operator renews it again.
    renewed_from_now(&lock).await?;
    check_never_lost(&lock.recorder.versions())?;
    lock.remove().await
}

async fn while_not_served(bench: &Bench, lock: &Lock) -> anyhow::Result<()> {
    let served = format!("quorumNamespaces={{{}}}", bench.cluster.operator_namespace);
    bench.cluster.deploy_with(&[&served]).await?;
    operators::all_available(&bench.cluster).await?;
    // The new leader judges every lock at the beginning of its term.
    let ours = Lock::take(bench, claim("ours", "ours", None, SERVED_TTL)).await?;
    renewed_from_now(&ours).await?;
    let last = lock.recorder.last()?.object;
    ensure!(is_held(&last), "{:?}", last.status);
    let waits = Lock::create(bench, claim("waits", "theirs", Some("q"), TTL)).await?;
    renewed_from_now(&ours).await?;
    ensure!(waits.recorder.last()?.object.status.is_none(), "another operator serves its quorum");
    waits.remove().await?;
    ours.remove().await
}
