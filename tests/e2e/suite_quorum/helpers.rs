//! Functions that the tests of this suite share.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::{
    api::{FenceReason, MemberState, MemberStatus, PasswordStage, RedisQuorum, conditions::find_condition},
    quorum::model::tls::authority::Pair,
    redlock::{Drift, rejoin_delay},
};
use serde_json::json;

use crate::{
    bench::Bench,
    locks::{Lock, claim},
    quorums::{Quorum, check_admission, member_of},
    record::Version,
};

/// The operator observes a restarted or replaced member within this time.
pub(crate) const RESTART_LIMIT: Duration = Duration::from_secs(60);
/// The limit of a stage of a rotation of passwords.
const STAGE_LIMIT: Duration = Duration::from_secs(60);

/// The rejoin delay with this maxTTL and the default settings.
pub(crate) fn delay(max_ttl: Duration) -> Duration {
    rejoin_delay(max_ttl, Drift::default(), Duration::from_millis(50))
}

/// A claim on the quorum `q` that is held.
pub(crate) async fn held_lock(bench: &Bench, ttl: Duration) -> anyhow::Result<Lock> {
    Lock::take(bench, claim("job", "job", Some("q"), ttl)).await
}

/// The quorum `q`, and a claim on it that is held.
pub(crate) async fn quorum_and_lock(bench: &Bench, max_ttl: Duration, ttl: Duration) -> anyhow::Result<(Quorum, Lock)> {
    let quorum = Quorum::ready(bench, "q", max_ttl).await?;
    Ok((quorum, held_lock(bench, ttl).await?))
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

/// The processes of all members.
pub(crate) fn run_ids(quorum: &RedisQuorum) -> Vec<Option<String>> {
    quorum.status.iter().flat_map(|status| &status.members).map(|member| member.run_id.clone()).collect()
}

/// Waits until a process of a member is fenced that differs from the one at `mark`.
pub(crate) async fn fenced_again(quorum: &Quorum, mark: usize, member: &str) -> anyhow::Result<MemberStatus> {
    let versions = quorum.recorder.versions();
    let before = mark.checked_sub(1).and_then(|last| versions.get(last)).context("nothing was seen yet")?;
    let before = member_of(&before.object, member).and_then(|member| member.run_id.clone());
    let is_again = |m: &MemberStatus| is_fenced_for(m, FenceReason::Restarted) && m.run_id != before;
    let fenced = quorum.named_until(mark, member, RESTART_LIMIT, "is fenced as Restarted", is_again).await?;
    Ok(fenced.1)
}

/// Checks the next admission of a member against its announcement and the end of the earlier process.
pub(crate) async fn check_rejoin(
    quorum: &Quorum,
    mark: usize,
    member: &str,
    since: i64,
    max_ttl: Duration,
) -> anyhow::Result<()> {
    let fenced = fenced_again(quorum, mark, member).await?;
    let announced = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
    let is_back = |m: &MemberStatus| is_admitted(m) && m.run_id == fenced.run_id;
    let limit = RESTART_LIMIT + max_ttl;
    let (_, admitted) = quorum.named_until(mark, member, limit, "is admitted again", is_back).await?;
    check_admission(&admitted, announced, since, delay(max_ttl))
}

/// Deletes a member's pod, and checks that the next process stays out for the delay of `max_ttl`.
pub(crate) async fn delete_and_rejoin(quorum: &Quorum, member: &str, max_ttl: Duration) -> anyhow::Result<()> {
    let (mark, since) = (quorum.recorder.mark(), quorum.bench.wall().0);
    quorum.bench.kubectl(&["delete", "pod", &format!("{member}-0"), "--wait=false"]).await?;
    check_rejoin(quorum, mark, member, since, max_ttl).await
}

/// Requests a step of the rotation of all passwords, and waits until the rotation is in this stage.
pub(crate) async fn rotate(quorum: &Quorum, step: &str, stage: Option<PasswordStage>) -> anyhow::Result<()> {
    let mark = quorum.recorder.mark();
    let annotation = format!("redlock-operator.io/rotate-passwords={step}");
    quorum.bench.kubectl(&["annotate", "--overwrite", "rq", &quorum.name, &annotation]).await?;
    let is_there = |version: &Version<RedisQuorum>| {
        let rotation = version.object.status.as_ref().and_then(|status| status.password_rotation.as_ref());
        rotation.map(|rotation| rotation.stage) == stage
    };
    quorum.recorder.until_after(mark, STAGE_LIMIT, &format!("the stage {stage:?}"), is_there).await.map(drop)
}

/// Creates or replaces the Secret `cert` of the quorum `q`, in cert-manager's layout.
pub(crate) async fn set_certificate(bench: &Bench, certificate: &Pair, authority: &Pair) -> anyhow::Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "cert", "namespace": bench.namespace, "labels": {"redlock-operator.io/quorum": "q"}},
        "stringData": {
            "tls.crt": certificate.certificate, "tls.key": certificate.key, "ca.crt": authority.certificate,
        },
    });
    bench.cluster.apply(&secret.to_string()).await
}
