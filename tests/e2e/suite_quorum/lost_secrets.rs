//! The auth Secret is lost, with or without a copy in a replica.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use redlock_operator::api::{FenceReason, MemberState, MemberStatus, RedisQuorum};
use serde_json::json;

use super::{
    helpers::{
        RESTART_LIMIT, condition, delay, held_lock, is_admitted, is_fenced_for, pod_uids, quorum_and_lock, reason_after,
    },
    membership,
};
use crate::{
    bench::Bench,
    foreign::Client,
    locks::{Lock, SOON, claim, token},
    operators,
    quorums::Quorum,
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
/// The limit until the loss is reported.
///
/// It covers the election of a leader, its first reading, and the wait for a replica with a copy.
const LOSS_LIMIT: Duration = Duration::from_secs(60);

/// Waits until the operator admits all members again.
///
/// Returns the number of versions before that wait.
async fn all_admitted(quorum: &Quorum) -> anyhow::Result<usize> {
    let mark = quorum.recorder.mark();
    let all = |version: &Version<RedisQuorum>| condition(version, "Ready").1 == "AllAdmitted";
    let limit = LOSS_LIMIT + (RESTART_LIMIT + delay(MAX_TTL)) * 3;
    quorum.recorder.until_after(mark, limit, "all members run with passwords of the operator", all).await?;
    Ok(mark)
}

/// Checks that every member has a new pod, and that they were restarted one after the other.
async fn check_all_restarted(quorum: &Quorum, mark: usize, before: &[String]) -> anyhow::Result<()> {
    let after = pod_uids(&quorum.bench, 3).await?;
    ensure!(before.iter().all(|uid| !after.contains(uid)), "a member runs with passwords that nobody knows");
    let restarts = |m: &&MemberStatus| !matches!(m.state, MemberState::Admitted | MemberState::Unreachable);
    for version in quorum.recorder.versions().into_iter().skip(mark) {
        let members = version.object.status.map(|status| status.members).unwrap_or_default();
        let out: Vec<_> = members.iter().filter(restarts).map(|member| (&member.name, member.state)).collect();
        ensure!(out.len() <= 1, "more than one member was restarted: {out:?}");
    }
    Ok(())
}

pub(crate) async fn lost_passwords_are_replaced_and_members_restarted_in_turn(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let outside = Client::start(&quorum).await?;
    let (before, pods) = (token(&lock.recorder.last()?.object)?, pod_uids(&bench, 3).await?);
    let mark = operators::while_stopped(&bench.cluster, async {
        bench.kubectl(&["delete", "secret", "q-auth"]).await?;
        Ok(quorum.recorder.mark())
    })
    .await?;

    let message = reason_after(&quorum, mark, LOSS_LIMIT, "Ready", "AuthLost").await?;
    ensure!(message.contains("q-auth"), "{message}");
    // An outside client can still use its old password on members that were not restarted.
    let key = format!("{}/outside", bench.namespace);
    let answer = outside.redis(2, &["SET", &key, "x", "PX", "100"]).await?;
    ensure!(answer == "OK", "a client with the old password is refused: {answer}");
    let next = Lock::create(&bench, claim("next", "job", Some("q"), TTL)).await?;
    let lost = all_admitted(&quorum).await?;

    // Every member has a new process, which has waited for its admission.
    check_all_restarted(&quorum, mark, &pods).await?;
    for index in 0..3 {
        let fenced = |m: &MemberStatus| is_fenced_for(m, FenceReason::Restarted) && m.predecessor.is_none();
        let (_, fenced) = quorum.member_until(mark, index, SOON, "was fenced", fenced).await?;
        let at = fenced.rejoin_at.context("no rejoinAt")?.as_millis();
        let same = |m: &MemberStatus| is_admitted(m) && m.run_id == fenced.run_id;
        let (_, admitted) = quorum.member_until(mark, index, SOON, "was admitted", same).await?;
        let admitted = admitted.admitted_at.context("no admittedAt")?.as_millis();
        ensure!(admitted >= at, "{}: admitted {} ms early", fenced.name, at - admitted);
    }
    // The condition reported the loss and the progress before.
    let versions = quorum.recorder.versions();
    let conditions = versions.iter().skip(lost).map(|version| condition(version, "Ready"));
    let texts: Vec<String> =
        conditions.filter(|(_, reason, _)| reason == "AuthLost").map(|(.., message)| message).collect();
    for part in ["0 of 3 run with the new ones", "1 of 3 run", "2 of 3 run"] {
        ensure!(texts.iter().any(|text| text.contains(part)), "no message has {part:?}: {texts:#?}");
    }

    // The hold is lost, as required, and the next one has a larger token.
    lock.reason("Expired", SOON).await?;
    let held = next.held(LOSS_LIMIT).await?;
    ensure!(token(&held.object)? > before, "token {} after {before}", token(&held.object)?);
    let kept = bench.api::<Secret>().get("q-auth").await?;
    ensure!(kept.metadata.owner_references.is_some_and(|owners| owners.len() == 1), "the Secret has no owner");
    let events = bench.kubectl(&["get", "events", "--field-selector=reason=AuthLost", "-o", "name"]).await?;
    ensure!(events.lines().count() == 1, "Events: {events}");
    Ok(())
}

/// Two lists are in force, and the operator cannot log in to the members of either.
pub(crate) async fn passwords_lost_during_a_member_change_are_replaced(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready_with(&bench, "q", MAX_TTL, json!({"members": 1})).await?;
    let lock = held_lock(&bench, TTL).await?;
    let before = token(&lock.recorder.last()?.object)?;
    let change = membership::resize(&quorum, 3).await?;
    membership::joint(&quorum, change, 1, 3).await?;
    let (mark, pods) = operators::while_stopped(&bench.cluster, async {
        bench.kubectl(&["delete", "secret", "q-auth"]).await?;
        let lists = membership::voters(&quorum.recorder.last()?);
        ensure!(lists == (3, 1, 2), "the change had ended before the Secret went: {lists:?}");
        Ok((quorum.recorder.mark(), pod_uids(&bench, 3).await?))
    })
    .await?;

    reason_after(&quorum, mark, LOSS_LIMIT, "Ready", "AuthLost").await?;
    all_admitted(&quorum).await?;
    membership::changed(&quorum, change, 3, 2).await?;
    check_all_restarted(&quorum, mark, &pods).await?;

    lock.reason("Expired", SOON).await?;
    let next = Lock::create(&bench, claim("next", "job", Some("q"), TTL)).await?;
    let held = next.held(LOSS_LIMIT).await?;
    ensure!(token(&held.object)? > before, "token {} after {before}", token(&held.object)?);
    membership::check_clients_can_lock(&Client::start(&quorum).await?, &bench, 3).await
}

/// The operator cannot close the members, so their pods must end first.
pub(crate) async fn a_quorum_whose_passwords_are_lost_can_be_deleted(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let delete = ["delete", "secret/q-auth", "rq/q", "--wait=false"];
    operators::while_stopped(&bench.cluster, bench.kubectl(&delete)).await?;
    quorum.recorder.until_gone(LOSS_LIMIT).await.map(drop)
}

/// The leader is frozen, the Secret is deleted, and another replica leads that has never read it.
///
/// The frozen one has the only copy.
pub(crate) async fn a_replica_with_a_copy_of_a_lost_secret_writes_it_back(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let pods = pod_uids(&bench, 3).await?;
    let before = bench.api::<Secret>().get("q-auth").await?.data;
    operators::scale(&bench.cluster, 1).await?;
    let written_back = write_back(&bench, &quorum).await;
    operators::scale(&bench.cluster, operators::REPLICAS).await?;
    written_back?;
    ensure!(bench.api::<Secret>().get("q-auth").await?.data == before, "the passwords are others");
    ensure!(pod_uids(&bench, 3).await? == pods, "a member was restarted");
    Ok(())
}

async fn write_back(bench: &Bench, quorum: &Quorum) -> anyhow::Result<()> {
    let (faults, namespace) = (&bench.cluster.faults, &bench.cluster.operator_namespace);
    let left = operators::pods(&bench.cluster).await?;
    let living = left.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
    let name = living.and_then(|pod| pod.metadata.name).context("no replica is left")?;
    let leases = operators::watch_leader(&bench.cluster).await?;
    operators::until_leads(&leases, &name).await?;
    let leader = operators::current(&leases)?;
    let mark = quorum.recorder.mark();
    let frozen = faults.freeze(namespace, &name, "operator").await?;
    let lost = async {
        bench.kubectl(&["delete", "secret", "q-auth", "--wait=false"]).await?;
        bench.cluster.kubectl(&["-n", namespace, "scale", operators::DEPLOYMENT, "--replicas=2"]).await?;
        operators::until_next_term(&leases, &leader).await?;
        reason_after(quorum, mark, LOSS_LIMIT, "Ready", "AuthLost").await
    };
    let lost = lost.await;
    let mark = quorum.recorder.mark();
    faults.end(frozen).await?;
    lost?;
    reason_after(quorum, mark, LOSS_LIMIT, "Ready", "AllAdmitted").await.map(drop)
}
