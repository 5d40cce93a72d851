//! Functions that the tests of this suite share.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::{
    api::{FenceReason, MemberState, MemberStatus, RedisQuorum, conditions::find_condition},
    redlock::{Drift, rejoin_delay},
};

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    quorums::Quorum,
    record::Version,
};

/// The operator observes a restarted or replaced member within this time.
pub(crate) const RESTART_LIMIT: Duration = Duration::from_secs(60);

/// The rejoin delay with this maxTTL and the default settings.
pub(crate) fn delay(max_ttl: Duration) -> Duration {
    rejoin_delay(max_ttl, Drift::default(), Duration::from_millis(50))
}

/// A claim on the quorum `q` that is held.
pub(crate) async fn held_lock(bench: &Bench, ttl: Duration) -> anyhow::Result<Lock> {
    let lock = Lock::create(bench, claim("job", "job", Some("q"), ttl)).await?;
    lock.held(SOON).await?;
    Ok(lock)
}

pub(crate) fn is_admitted(member: &MemberStatus) -> bool {
    member.state == MemberState::Admitted
}

pub(crate) fn is_fenced_for(member: &MemberStatus, reason: FenceReason) -> bool {
    member.state == MemberState::Fenced && member.reason == Some(reason)
}

/// The status, reason and message of a condition.
pub(crate) fn condition(version: &Version<RedisQuorum>, type_: &'static str) -> (String, String, String) {
    let conditions = version.object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    find_condition(conditions, type_)
        .map(|one| (one.status.clone(), one.reason.clone(), one.message.clone()))
        .unwrap_or_default()
}

/// Waits until the condition has this reason, in a version after `mark`.
///
/// Returns its message.
pub(crate) async fn reason_after(
    quorum: &Quorum,
    mark: usize,
    limit: Duration,
    type_: &'static str,
    reason: &str,
) -> anyhow::Result<String> {
    let what = format!("{type_} with reason {reason}");
    let version =
        quorum.recorder.until_after(mark, limit, &what, |version| condition(version, type_).1 == reason).await?;
    Ok(condition(&version, type_).2)
}

/// Waits until all members can vote and nothing is in progress, in a version after `mark`.
pub(crate) async fn settled_after(quorum: &Quorum, mark: usize, limit: Duration) -> anyhow::Result<()> {
    reason_after(quorum, mark, limit, "Progressing", "Settled").await.map(drop)
}

/// UIDs of the members' pods.
pub(crate) async fn pod_uids(bench: &Bench, members: usize) -> anyhow::Result<Vec<String>> {
    let mut uids = Vec::new();
    for index in 0..members {
        let pod = bench.api::<Pod>().get(&format!("q-{index}-0")).await?;
        uids.push(pod.metadata.uid.context("a pod without UID")?);
    }
    Ok(uids)
}

/// Checks that at most one member was out in each version after `mark`.
pub(crate) fn check_one_at_a_time(quorum: &Quorum, mark: usize) -> anyhow::Result<()> {
    for version in quorum.recorder.versions().into_iter().skip(mark) {
        let members = version.object.status.map(|status| status.members).unwrap_or_default();
        let out: Vec<_> = members.iter().filter(|member| !is_admitted(member)).map(|member| &member.name).collect();
        ensure!(out.len() <= 1, "more than one member was out: {out:?}");
    }
    Ok(())
}
