//! Every way in which a member can come back with nothing.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use redlock_operator::api::{FenceReason, MemberStatus};

use super::helpers::{RESTART_LIMIT, delay, held_lock, is_admitted, is_fenced_for};
use crate::{
    bench::Bench,
    foreign::Client,
    history::check_held_throughout,
    locks::{Lock, SOON, claim, token},
    operators,
    quorums::{Quorum, check_admission, member_of},
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);

/// Kills the process of a member, and says when. Redis answers a moment before the pod's status names its container, so a kill that
/// found nothing is tried again.
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

/// Another process of a member than the one that was known at `mark` is fenced.
async fn fenced_anew(quorum: &Quorum, mark: usize, index: usize) -> anyhow::Result<MemberStatus> {
    let versions = quorum.recorder.versions();
    let known = mark.checked_sub(1).and_then(|last| versions.get(last)).context("nothing was seen yet")?;
    let before = member_of(&known.object, &quorum.member(index)).and_then(|member| member.run_id.clone());
    let anew = |m: &MemberStatus| is_fenced_for(m, FenceReason::Restarted) && m.run_id != before;
    let (_, fenced) = quorum.member_until(mark, index, RESTART_LIMIT, "is fenced as Restarted", anew).await?;
    Ok(fenced)
}

/// The next admission of a member, checked against its announcement and the end of the process before.
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
    // The hold is lost, as it must be, and the next one has a larger token.
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
    operators::scale(&bench.cluster, 2).await?;
    absent?;
    // Nobody was there to count, so the count begins now.
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
