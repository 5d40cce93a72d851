//! Every way in which a member can return without data.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use redlock_operator::api::MemberStatus;

use super::helpers::{
    RESTART_LIMIT, check_rejoin, delay, delete_and_rejoin, fenced_again, is_admitted, quorum_and_lock,
};
use crate::{
    bench::Bench,
    foreign::Client,
    history::{check_held_throughout, check_never_lost},
    locks::{Lock, SOON, claim, token},
    operators,
    quorums::{Quorum, check_admission},
    spans::millis,
    votes::{Count, check_votes},
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

pub(crate) async fn a_deleted_pod_is_fenced_and_no_lock_is_lost(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    delete_and_rejoin(&quorum, "q-1", MAX_TTL).await?;
    check_held_throughout(&lock.recorder.versions()).map(drop)
}

pub(crate) async fn all_members_restarted_at_once_wait_and_come_back(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let before = token(&lock.recorder.last()?.object)?;
    let (mark, since) = (quorum.recorder.mark(), bench.wall().0);
    try_join_all((0..3).map(|index| kill(&bench, index))).await?;
    for index in 0..3 {
        check_rejoin(&quorum, mark, &quorum.member(index), since, MAX_TTL).await?;
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
    let restarted = operators::while_stopped(&bench.cluster, async {
        restart_without_operator(&bench, &client).await?;
        Ok((quorum.recorder.mark(), bench.wall().0))
    });
    let (mark, back) = restarted.await?;
    // No leader measured the restart, so the wait begins now.
    check_rejoin(&quorum, mark, "q-1", back, MAX_TTL).await
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

pub(crate) async fn an_operator_restarted_during_a_fence_begins_the_count_again(bench: Bench) -> anyhow::Result<()> {
    let max_ttl = Duration::from_secs(8);
    let quorum = Quorum::ready(&bench, "q", max_ttl).await?;
    let votes = bench.votes().await?;
    votes.until_it_votes(&quorum, 1).await?;
    let mark = quorum.recorder.mark();
    kill(&bench, 1).await?;
    let fenced = fenced_again(&quorum, mark, "q-1").await?;
    let back = operators::while_stopped(&bench.cluster, async { Ok(bench.wall().0) }).await?;
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
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let leases = operators::watch_leader(&bench.cluster).await?;
    let votes = bench.votes().await?;
    votes.until_it_votes(&quorum, 1).await?;
    let (faults, namespace) = (&bench.cluster.faults, &bench.cluster.operator_namespace);
    // Signals take some tens of milliseconds, so they arrive before the admission or in the middle of it.
    for early in [200_i64, 80] {
        let mark = quorum.recorder.mark();
        kill(&bench, 1).await?;
        let fenced = fenced_again(&quorum, mark, "q-1").await?;
        let at = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
        let leader = operators::current(&leases)?;
        let left = u64::try_from(at - early - bench.wall().0).unwrap_or(0);
        // The test needs this exact moment, so it cannot await a condition.
        tokio::time::sleep(Duration::from_millis(left)).await;
        let frozen = faults.freeze(namespace, &leader.pod, "operator").await?;
        let next = operators::until_next_term(&leases, &leader).await;
        let mark = quorum.recorder.mark();
        let second = kill(&bench, 1).await;
        let fenced = fenced_again(&quorum, mark, "q-1").await;
        faults.end(frozen).await?;
        ensure!(next?.pod != leader.pod, "the frozen replica leads");
        let (second, _) = (second?, fenced?);
        check_rejoin(&quorum, mark, "q-1", second, MAX_TTL).await?;
        votes.until_it_votes(&quorum, 1).await?;
        operators::all_available(&bench.cluster).await?;
    }
    check_never_lost(&lock.recorder.versions())
}

/// Kills a member at about the moment of its admission, and each of its next processes.
///
/// The kill can be between the operator's check and its opening. Each kill begins the delay again.
pub(crate) async fn a_restart_at_the_moment_of_admission_is_never_open(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let votes = bench.votes().await?;
    votes.until_it_votes(&quorum, 1).await?;
    let mut mark = quorum.recorder.mark();
    let mut killed = kill(&bench, 1).await?;
    // The last kill is certainly within the delay.
    for early in [150_i64, 100, 60, 30, 0, 1_000] {
        let fenced = fenced_again(&quorum, mark, "q-1").await?;
        let at = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
        let left = u64::try_from(at - early - bench.wall().0).unwrap_or(0);
        mark = quorum.recorder.mark();
        tokio::time::sleep(Duration::from_millis(left)).await;
        killed = kill(&bench, 1).await?;
    }
    check_rejoin(&quorum, mark, "q-1", killed, MAX_TTL).await?;
    check_held_throughout(&lock.recorder.versions())?;
    votes.until_it_votes(&quorum, 1).await
}

pub(crate) async fn thirty_restarts_rejoin_within_a_second_after_the_delay(bench: Bench) -> anyhow::Result<()> {
    const RESTARTS: usize = 30;
    const LATE: Duration = Duration::from_secs(1);
    // A member is fenced for three seconds, and gets 50 requests a second, fewer on a busy machine.
    const LEAST_REFUSALS: usize = 20;
    // A short maxTTL, so that many restarts fit into a test.
    let max_ttl = Duration::from_secs(3);
    let (quorum, delay) = (Quorum::ready(&bench, "q", max_ttl).await?, delay(max_ttl));
    let votes = bench.votes().await?;
    for index in 0..3 {
        votes.until_it_votes(&quorum, index).await?;
    }
    let mut times = Vec::new();
    for round in 0..RESTARTS {
        let (index, mark) = (round % 3, quorum.recorder.mark());
        // The published times alone would prove only that the operator keeps them.
        let killed = kill(&bench, index).await?;
        let fenced = fenced_again(&quorum, mark, &quorum.member(index)).await?;
        // The operator's first observation of the process is one delay before `rejoinAt`.
        let observed = fenced.rejoin_at.context("no rejoinAt")?.as_millis() - millis(delay);
        let same = |m: &MemberStatus| is_admitted(m) && m.run_id == fenced.run_id;
        let (_, admitted) = quorum.member_until(mark, index, RESTART_LIMIT, "is admitted", same).await?;
        let admitted = admitted.admitted_at.context("no admittedAt")?.as_millis();
        let least = killed + millis(delay);
        ensure!(admitted >= least, "{} ms less than a delay after the kill", least - admitted);
        times.push(Duration::from_millis(u64::try_from(admitted - observed).context("admitted before it was seen")?));
    }
    let (least, most) = (times.iter().min().context("no times")?, times.iter().max().context("no times")?);
    println!("rejoin after {RESTARTS} restarts: {least:?} to {most:?}, the delay is {delay:?}");
    times.iter().for_each(|time| bench.figures.add("restarted process seen -> admitted", *time));
    // Published times are whole milliseconds.
    ensure!(*least + Duration::from_millis(1) >= delay, "{least:?} is shorter than {delay:?}");
    ensure!(*most <= delay + LATE, "{most:?} is more than {LATE:?} longer than {delay:?}");

    // Every process has refused votes before its admission, and has given some afterwards.
    for index in 0..3 {
        votes.until_it_votes(&quorum, index).await?;
    }
    let attempts = votes.attempts();
    let tally = check_votes(&quorum.recorder.versions(), &attempts)?;
    ensure!(tally.0.len() == 3 + RESTARTS, "not every process was asked: {tally:?}");
    let has_both = |count: &Count| count.votes > 0 && count.refusals >= LEAST_REFUSALS;
    ensure!(tally.0.values().all(has_both), "too few votes or refusals: {tally:?}");
    // This shows that the check can fail, because without recorded admissions every vote is a violation.
    ensure!(check_votes(&[], &attempts).is_err(), "votes without any admission were accepted");
    Ok(())
}
