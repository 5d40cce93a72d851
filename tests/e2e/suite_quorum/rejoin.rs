//! An admission comes not before the delay, and soon after it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::FenceReason;

use super::helpers::{RESTART_LIMIT, delay, is_admitted, is_fenced_for};
use crate::{bench::Bench, quorums::Quorum};

/// A short maxTTL, so that many restarts fit into a test.
const MAX_TTL: Duration = Duration::from_secs(3);
const RESTARTS: usize = 30;
/// Maximum delay of an admission.
const LATE: Duration = Duration::from_secs(1);

pub(crate) async fn thirty_restarts_rejoin_within_a_second_after_the_delay(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let mut times = Vec::new();
    for round in 0..RESTARTS {
        let index = round % 3;
        let mark = quorum.recorder.mark();
        // The published times alone would prove only that the operator keeps them.
        let killed = bench.wall().0;
        bench.cluster.faults.kill_container(&bench.namespace, &format!("q-{index}-0"), "redis").await?;
        let restarted = |m: &_| is_fenced_for(m, FenceReason::Restarted);
        let (_, fenced) = quorum.member_until(mark, index, RESTART_LIMIT, "is fenced", restarted).await?;
        // The operator's first observation of the process is one delay before `rejoinAt`.
        let rejoin_at = fenced.rejoin_at.context("no rejoinAt")?.as_millis();
        let observed = rejoin_at - i64::try_from(delay(MAX_TTL).as_millis())?;
        let after = quorum.recorder.mark();
        let same = |m: &redlock_operator::api::MemberStatus| is_admitted(m) && m.run_id == fenced.run_id;
        let (_, admitted) = quorum.member_until(after, index, RESTART_LIMIT, "is admitted", same).await?;
        let admitted_at = admitted.admitted_at.context("no admittedAt")?.as_millis();
        let least = killed + i64::try_from(delay(MAX_TTL).as_millis())?;
        ensure!(admitted_at >= least, "{} ms less than a delay after the kill", least - admitted_at);
        times
            .push(Duration::from_millis(u64::try_from(admitted_at - observed).context("admitted before it was seen")?));
    }
    let (least, most) = (times.iter().min().context("no times")?, times.iter().max().context("no times")?);
    println!("rejoin after {RESTARTS} restarts: {least:?} to {most:?}, the delay is {:?}", delay(MAX_TTL));
    times.iter().for_each(|time| bench.figures.add("restarted process seen -> admitted", *time));
    // Published times are whole milliseconds.
    let millisecond = Duration::from_millis(1);
    ensure!(*least + millisecond >= delay(MAX_TTL), "{least:?} is shorter than {:?}", delay(MAX_TTL));
    ensure!(*most <= delay(MAX_TTL) + LATE, "{most:?} is more than {LATE:?} longer than {:?}", delay(MAX_TTL));
    Ok(())
}
