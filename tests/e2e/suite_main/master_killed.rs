//! A killed Redis master returns without data.
//!
//! It stays fenced until all possible promises of the killed process have expired.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::{FenceReason, MemberStatus};

use crate::{
    bench::Bench,
    foreign::{Client, Line, Monitor},
    history::check_held_throughout,
    locks::{Lock, SOON, claim, status},
    quorums::{Quorum, check_admission},
    record::Version,
    suite_quorum::helpers::{delay, is_admitted, is_fenced_for},
};

const MAX_TTL: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(3);
const VICTIM: usize = 1;
const RESTART_LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn a_killed_master_is_fenced_while_the_lock_is_held_throughout(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    let command = format!("redis {VICTIM} SET {}/probe-$n x NX PX 50", bench.namespace);
    let monitor = Monitor::start(&quorum, "monitor", &command).await?;
    let lock = Lock::take(&bench, claim("job", "job", Some("q"), TTL)).await?;
    let before = |line: &Line| line.text == "OK";
    monitor.until(0, SOON, "the foreign client's SET succeeds", before).await?;

    let mark = quorum.recorder.mark();
    let killed = bench.wall().0;
    bench.cluster.faults.kill_container(&bench.namespace, "q-1-0", "redis").await?;
    // The wait begins when the operator has evidence of the end of the earlier process.
    let restarted = |m: &MemberStatus| is_fenced_for(m, FenceReason::Restarted) && m.predecessor.is_none();
    let (observed, fenced) = quorum.member_until(mark, VICTIM, RESTART_LIMIT, "is fenced again", restarted).await?;
    let rejoin_at = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
    ensure!(rejoin_at > observed.wall.0, "rejoinAt is not in the future: {fenced:?}");
    let fenced_message = lock.recorder.last()?;
    ensure!(status(&fenced_message.object).holder.is_some(), "the lock has no holder");

    let after_fencing = quorum.recorder.mark();
    let limit = MAX_TTL + RESTART_LIMIT;
    let (_, admitted) = quorum.member_until(after_fencing, VICTIM, limit, "is admitted again", is_admitted).await?;
    check_admission(&admitted, rejoin_at, killed, delay(MAX_TTL))?;
    let admitted_at = admitted.admitted_at.context("no admittedAt")?.as_millis();
    bench.figures.add("admission after rejoinAt", Duration::from_millis(u64::try_from(admitted_at - rejoin_at)?));

    let full_again = |v: &Version<_>| v.wall.0 > admitted_at && status(&v.object).votes.as_deref() == Some("3/3");
    let repaired = lock.recorder.until(SOON, "votes are back at 3/3", full_again).await?;
    let took = u64::try_from(repaired.wall.0 - admitted_at)?;
    bench.figures.add("admission -> votes back at 3/3", Duration::from_millis(took));
    let key = format!("{}/job", bench.namespace);
    let left: i64 = client.redis(VICTIM, &["PTTL", &key]).await?.parse()?;
    ensure!(left > 0, "the key was not repaired on the member that lost it: PTTL {left}");

    let lines = monitor.until(admitted_at, SOON, "the foreign client's SET succeeds again", before).await?;
    check_refused(&lines, killed, admitted_at)?;
    let renewals = check_held_throughout(&lock.recorder.versions())?;
    let least = u128::from(u64::try_from(admitted_at - killed)?) / (TTL.as_millis() / 3) - 2;
    ensure!(renewals as u128 >= least, "{renewals} renewals were published, expected {least} or more");
    let lost_a_vote = lock.recorder.versions().iter().any(|v| status(&v.object).votes.as_deref() == Some("2/3"));
    ensure!(lost_a_vote, "the votes never fell to 2/3, so the member was not down");
    Ok(())
}

/// Checks that no SET succeeded between the end of the old process and the admission of the new one.
///
/// The fence must have refused some.
fn check_refused(lines: &[Line], killed: i64, admitted_at: i64) -> anyhow::Result<()> {
    let down = lines.iter().position(|line| line.at > killed && line.text != "OK").context("never down")?;
    let during: Vec<_> = lines.iter().skip(down).take_while(|line| line.at < admitted_at).collect();
    let granted: Vec<_> = during.iter().filter(|line| line.text == "OK").collect();
    ensure!(granted.is_empty(), "SET succeeded before the admission at {admitted_at}: {granted:?} of {during:?}");
    let refused = during.iter().filter(|line| line.text.starts_with("NOPERM")).count();
    ensure!(refused >= 10, "only {refused} refusals were seen: {during:?}");
    Ok(())
}
