//! Conditions that the operator monitors: clocks, times to live, scripts that keep a member busy.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::{FenceReason, MemberStatus};
use serde_json::json;

use super::helpers::{RESTART_LIMIT, delay, held_lock, is_admitted, is_fenced_for, quorum_and_lock, reason_after};
use crate::{
    bench::Bench,
    foreign::Client,
    history::check_held_throughout,
    locks::{Lock, SOON},
    poll,
    quorums::{Quorum, member_of},
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);

/// Runs a script that changes the clock of a member, and checks that its process is fenced and ended.
///
/// The next one is admitted after the delay.
async fn a_step_fences(bench: &Bench, quorum: &Quorum, lock: &Lock, index: usize, script: &str) -> anyhow::Result<()> {
    let before = quorum.recorder.last()?.object;
    let before = member_of(&before, &quorum.member(index)).and_then(|m| m.run_id.clone());
    let (mark, since) = (quorum.recorder.mark(), bench.wall().0);
    bench.kubectl(&["exec", &format!("q-{index}-0"), "-c", "redis", "--", "sh", "-c", script]).await?;
    let jumped = |m: &MemberStatus| is_fenced_for(m, FenceReason::ClockJump) && m.run_id == before;
    quorum.member_until(mark, index, SOON, "is fenced for its clock", jumped).await?;
    let message = reason_after(quorum, mark, SOON, "ClockHealthy", "ClockJump").await?;
    ensure!(message.contains(&quorum.member(index)), "{message}");
    let again = |m: &MemberStatus| is_admitted(m) && m.run_id != before;
    let (_, admitted) = quorum.member_until(mark, index, RESTART_LIMIT, "is admitted again", again).await?;
    let admitted = admitted.admitted_at.context("no admittedAt")?.as_millis();
    let least = i64::try_from(delay(MAX_TTL).as_millis())?;
    ensure!(admitted >= since + least, "admitted {} ms after the step, not {least}", admitted - since);
    reason_after(quorum, mark, RESTART_LIMIT, "ClockHealthy", "AsExpected").await?;
    // The lock must be on all members again before the next member can fail.
    lock.fully_voted(SOON).await.map(drop)
}

pub(crate) async fn a_member_whose_clock_jumps_or_drifts_is_fenced(bench: Bench) -> anyhow::Result<()> {
    // The wall clock of this Redis differs by the milliseconds in /dev/shm/clock.
    let image = json!({"image": bench.cluster.redis_clock_image});
    let quorum = Quorum::ready_with(&bench, "q", MAX_TTL, image).await?;
    let lock = held_lock(&bench, TTL).await?;
    a_step_fences(&bench, &quorum, &lock, 1, "echo 60000 > /dev/shm/clock").await?;
    a_step_fences(&bench, &quorum, &lock, 2, "echo -60000 > /dev/shm/clock").await?;
    // The clock is a fifth too fast, in steps that are too small for a jump.
    let drifts = "( ms=0; while [ $ms -lt 6000 ]; do ms=$((ms + 20)); echo $ms > /dev/shm/clock; sleep 0.1; done ) > /dev/null 2>&1 &";
    a_step_fences(&bench, &quorum, &lock, 0, drifts).await?;
    check_held_throughout(&lock.recorder.versions()).map(drop)
}

pub(crate) async fn a_key_beyond_max_ttl_is_reported(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    let key = format!("{}/jobs/long", bench.namespace);
    let (mark, admissions) = (quorum.recorder.mark(), admissions(&quorum)?);
    for member in 0..3 {
        ensure!(client.redis(member, &["SET", &key, "x", "NX", "PX", "600000"]).await? == "OK");
    }
    let message = reason_after(&quorum, mark, RESTART_LIMIT, "TTLWithinBound", "KeysBeyondMaxTTL").await?;
    ensure!(message.contains("on average"), "{message}");
    let mark = quorum.recorder.mark();
    for member in 0..3 {
        client.redis(member, &["DEL", &key]).await?;
    }
    reason_after(&quorum, mark, RESTART_LIMIT, "TTLWithinBound", "AsExpected").await?;
    ensure!(self::admissions(&quorum)? == admissions, "a key beyond maxTTL changed an admission");
    Ok(())
}

fn admissions(quorum: &Quorum) -> anyhow::Result<Vec<Option<String>>> {
    let status = quorum.recorder.last()?.object.status.context("no status")?;
    Ok(status.members.iter().map(|member| member.admitted_at.map(|at| at.to_string())).collect())
}

pub(crate) async fn a_script_that_never_ends_is_ended_and_no_lock_is_lost(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let client = Client::start(&quorum).await?;
    let (mark, admissions) = (quorum.recorder.mark(), admissions(&quorum)?);
    let answer = client.redis(0, &["EVAL", "while true do end", "0"]).await?;
    ensure!(answer.contains("killed by user"), "the script was answered with: {answer}");
    ensure!(client.redis(0, &["PING"]).await? == "PONG");
    // A busy member is alive, so it must be neither restarted nor admitted again.
    for version in quorum.recorder.versions().into_iter().skip(mark) {
        let reason = member_of(&version.object, "q-0").and_then(|member| member.reason);
        ensure!(reason != Some(FenceReason::Restarted), "the busy member was fenced");
    }
    ensure!(self::admissions(&quorum)? == admissions, "the busy member was admitted again");
    check_held_throughout(&lock.recorder.versions())?;
    let format = "jsonpath={range .items[*]}{.reason}: {.note}{.message}{'\\n'}{end}";
    poll::until(SOON, "an Event tells of the script", async || {
        let events = bench.kubectl(&["get", "events", "-o", format]).await?;
        Ok(events.contains("A client's script kept member q-0 busy").then_some(()))
    })
    .await
}
