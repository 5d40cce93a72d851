//! Every way in which a member can return without data.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use redlock_operator::api::{FenceReason, MemberStatus};

use super::helpers::{RESTART_LIMIT, delay, held_lock, is_admitted, is_fenced_for};
use crate::{
    bench::Bench,
    foreign::Client,
    history::{check_held_throughout, check_never_lost},
    locks::{Lock, SOON, claim, token},
    operators,
    quorums::{Quorum, check_admission, member_of},
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);

/// Kills the process of a member, and returns the time.
///
/// Redis answers a moment before the pod's status names its container, so a kill without a target is repeated.
async fn kill(bench: &Bench, index: usize) -> anyhow::Result<i64> {
    let mut attempts = 0;
    loop {
        let now = bench.wall().0;
        match bench.cluster.faults.kill_container(&bench.namespace, &format!("q-{index}-0"), "redis").await {
            Ok(()) => return Ok(now),
            Err(error) if attempts == 20 => return Err(error),
            Err(_) => attempts += 1,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until a process of a member is fenced that differs from the one at `mark`.
async fn fenced_anew(quorum: &Quorum, mark: usize, index: usize) -> anyhow::Result<MemberStatus> {
    let versions = quorum.recorder.versions();
    let known = mark.checked_sub(1).and_then(|last| versions.get(last)).context("nothing was seen yet")?;
    let before = member_of(&known.object, &quorum.member(index)).and_then(|member| member.run_id.clone());
    let is_again = |m: &MemberStatus| is_fenced_for(m, FenceReason::Restarted) && m.run_id != before;
    let (_, fenced) = quorum.member_until(mark, index, RESTART_LIMIT, "is fenced as Restarted", is_again).await?;
    Ok(fenced)
}

/// Checks the next admission of a member against its announcement and the end of the earlier process.
async fn check_rejoin(quorum: &Quorum, mark: usize, index: usize, since: i64, max_ttl: Duration) -> anyhow::Result<()> {
    let fenced = fenced_anew(quorum, mark, index).await?;
    let at = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
    let (_, admitted) = quorum
        .member_until(mark, index, RESTART_LIMIT + max_ttl, "is admitted again", |m| {
            is_admitted(m) && m.run_id == fenced.run_id
        })
        .await?;
    check_admission(&admitted, at, since, delay(max_ttl))
}

pub(crate) async fn a_deleted_pod_is_fenced_and_no_lock_is_lost(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = held_lock(&bench, TTL).await?;
    let (mark, since) = (quorum.recorder.mark(), bench.wall().0);
    bench.kubectl(&["delete", "pod", "q-1-0", "--wait=false"]).await?;
    check_rejoin(&quorum, mark, 1, since, MAX_TTL).await?;
    check_held_throughout(&lock.recorder.versions())?;
    Ok(())
}

pub(crate) async fn all_members_restarted_at_once_wait_and_come_back(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = held_lock(&bench, TTL).await?;
    let before = token(&lock.recorder.last()?.object)?;
    let (mark, since) = (quorum.recorder.mark(), bench.wall().0);
    try_join_all((0..3).map(|index| kill(&bench, index))).await?;
    for index in 0..3 {
        check_rejoin(&quorum, mark, index, since, MAX_TTL).await?;
    }
    // The hold is lost, as required, and the next one has a larger token.
    lock.reason("Expired", SOON).await?;
    let next = Lock::create(&bench, claim("next", "job", Some("q"), TTL)).await?;
    let after = token(&next.held(SOON).await?.object)?;
    ensure!(after > before, "token {after} after {before}");
    Ok(())
}

pub(crate) async fn a_restart_without_an_operator_stays_fenced(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    operators::scale(&bench.cluster, 0).await?;
    let absent = restart_without_operator(&bench, &client).await;
    let (mark, back) = (quorum.recorder.mark(), bench.wall().0);
    operators::scale(&bench.cluster, operators::REPLICAS).await?;
    absent?;
    // No leader measured the restart, so the wait begins now.
    check_rejoin(&quorum, mark, 1, back, MAX_TTL).await
}

async fn restart_without_operator(bench: &Bench, client: &Client) -> anyhow::Result<()> {
    kill(bench, 1).await?;
    tokio::time::sleep(delay(MAX_TTL) * 2 + Duration::from_secs(6)).await;
    let key = format!("{}/k", bench.namespace);
    let answer = client.redis(1, &["SET", &key, "x", "NX", "PX", "100"]).await?;
    ensure!(answer.contains("NOPERM"), "a restarted member without an operator answers {answer}");
    let answer = client.redis(0, &["SET", &key, "x", "NX", "PX", "100"]).await?;
    ensure!(answer == "OK", "a member that was not restarted answers {answer}");
    Ok(())
}

pub(crate) async fn every_restart_within_a_delay_starts_it_again(bench: Bench) -> anyhow::Result<()> {
    let max_ttl = Duration::from_secs(8);
    let quorum = Quorum::ready(&bench, "q", max_ttl).await?;
    let lock = held_lock(&bench, TTL).await?;
    let mut last = (quorum.recorder.mark(), bench.wall().0);
    for _ in 0..3 {
        let mark = quorum.recorder.mark();
        last = (mark, kill(&bench, 1).await?);
        fenced_anew(&quorum, last.0, 1).await?;
    }
    check_rejoin(&quorum, last.0, 1, last.1, max_ttl).await?;
    check_held_throughout(&lock.recorder.versions())?;
    Ok(())
}

pub(crate) async fn an_operator_restarted_during_a_fence_begins_the_count_again(bench: Bench) -> anyhow::Result<()> {
    let max_ttl = Duration::from_secs(8);
    let quorum = Quorum::ready(&bench, "q", max_ttl).await?;
    let votes = bench.votes().await?;
    votes.until_it_votes(&quorum, 1).await?;
    let mark = quorum.recorder.mark();
    kill(&bench, 1).await?;
    let fenced = fenced_anew(&quorum, mark, 1).await?;
    operators::scale(&bench.cluster, 0).await?;
    let back = bench.wall().0;
    operators::scale(&bench.cluster, operators::REPLICAS).await?;
    // No remaining replica has observed the earlier process, so the wait begins again with a new `rejoinAt`.
    let is_again = |m: &MemberStatus| m.run_id == fenced.run_id && m.rejoin_at > fenced.rejoin_at;
    let (_, announced) = quorum.member_until(mark, 1, RESTART_LIMIT, "is announced again", is_again).await?;
    let at = announced.rejoin_at.context("no rejoinAt")?.as_millis();
    let same = |m: &MemberStatus| is_admitted(m) && m.run_id == fenced.run_id;
    let (_, admitted) = quorum.member_until(mark, 1, RESTART_LIMIT, "is admitted", same).await?;
    check_admission(&admitted, at, back, delay(max_ttl))?;
    votes.until_it_votes(&quorum, 1).await
}

/// Freezes the leader at about the moment at which it admits a member.
///
/// Its successor fences another process of that member. Then the test continues the former leader, and no late request
/// of it must open a member.
pub(crate) async fn a_leader_frozen_at_an_admission_opens_nothing_afterwards(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = held_lock(&bench, TTL).await?;
    let leases = operators::watch_leader(&bench.cluster).await?;
    let votes = bench.votes().await?;
    votes.until_it_votes(&quorum, 1).await?;
    let (faults, namespace) = (&bench.cluster.faults, &bench.cluster.operator_namespace);
    // Signals take some tens of milliseconds, so they arrive before the admission or in the middle of it.
    for early in [200_i64, 80] {
        let mark = quorum.recorder.mark();
        kill(&bench, 1).await?;
        let fenced = fenced_anew(&quorum, mark, 1).await?;
        let at = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
        let leader = operators::current(&leases)?;
        let left = u64::try_from(at - early - bench.wall().0).unwrap_or(0);
        // The test needs this exact moment, so it cannot await a condition.
        tokio::time::sleep(Duration::from_millis(left)).await;
        faults.pause_container(namespace, &leader.pod, "operator").await?;
        let next = operators::until_next_term(&leases, &leader).await;
        let mark = quorum.recorder.mark();
        let second = kill(&bench, 1).await;
        let fenced = fenced_anew(&quorum, mark, 1).await;
        faults.resume_container(namespace, &leader.pod, "operator").await?;
        ensure!(next?.pod != leader.pod, "the frozen replica leads");
        let (second, _) = (second?, fenced?);
        check_rejoin(&quorum, mark, 1, second, MAX_TTL).await?;
        votes.until_it_votes(&quorum, 1).await?;
        operators::all_available(&bench.cluster).await?;
    }
    check_never_lost(&lock.recorder.versions())
}

/// Kills a member at about the moment of its admission.
///
/// The kill can be between the operator's check and its opening.
pub(crate) async fn a_restart_at_the_moment_of_admission_is_never_open(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let votes = bench.votes().await?;
    votes.until_it_votes(&quorum, 1).await?;
    let mut mark = quorum.recorder.mark();
    let mut killed = kill(&bench, 1).await?;
    for early in [150_i64, 100, 60, 30, 0] {
        let fenced = fenced_anew(&quorum, mark, 1).await?;
        let at = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
        let left = u64::try_from(at - early - bench.wall().0).unwrap_or(0);
        mark = quorum.recorder.mark();
        tokio::time::sleep(Duration::from_millis(left)).await;
        killed = kill(&bench, 1).await?;
    }
    check_rejoin(&quorum, mark, 1, killed, MAX_TTL).await?;
    votes.until_it_votes(&quorum, 1).await
}
