//! A namespace is deleted with all its objects.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;

use super::support::{OPERATOR_LIMIT, election, run_pair, with};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    operators,
    quorums::Quorum,
    record::Version,
};

/// The chart's default.
const MAX_TTL: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_secs(120);

/// The quorum's members and its locks are deleted at the same time.
///
/// A leader that does not reach a quorum that is being deleted must stay the leader.
pub(crate) async fn a_deleted_namespace_with_a_quorum_keeps_the_leader(bench: Bench) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    let leases = operators::watch_leader(&bench.cluster).await?;
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    run_pair(&bench, "app", ["app-0", "app-1"]).await?;
    let held = claim("held", "job", Some("q"), TTL);
    let quiet = with(claim("quiet", "quiet", Some("q"), TTL), json!({"validity": "Transitions"}));
    let delayed = with(claim("delayed", "delayed", Some("q"), TTL), json!({"lockDelay": "10s"}));
    let elected = with(election("app", "app", TTL), json!({"quorumRef": {"name": "q"}}));
    let mut locks = Vec::new();
    for manifest in [held, quiet, delayed, elected] {
        let lock = Lock::take(&bench, manifest).await?;
        locks.push(lock);
    }
    let waiting = Lock::queue(&bench, claim("waiting", "job", Some("q"), TTL)).await?;

    let (leader, mark, start) = (operators::current(&leases)?, leases.mark(), bench.now());
    bench.close().await?;
    let took = bench.now().since(start);
    bench.figures.add("namespace with a quorum (maxTTL 30 s) and held locks deleted", took);
    ensure!(took < LIMIT, "the namespace was gone only after {took:?}");
    for lock in locks.iter().chain([&waiting]) {
        lock.recorder.until_gone(SOON).await?;
    }
    quorum.recorder.until_gone(SOON).await?;
    // The same replica has led all the time.
    let is_led = |version: &Version<Lease>| operators::leader_of(&version.object).as_ref() == Some(&leader);
    let changed = leases.versions().into_iter().skip(mark).find(|version| !is_led(version));
    ensure!(changed.is_none(), "the Lease was handed over: {:?}", changed.map(|version| version.object.spec));
    leases.until_after(leases.mark(), OPERATOR_LIMIT, "the Lease is renewed", is_led).await.map(drop)
}
