//! Members restart while an outside client continuously requests votes of all of them.

use std::time::Duration;

use anyhow::ensure;
use redlock_operator::api::{FenceReason, MemberState, MemberStatus};
use serde_json::json;

use crate::{bench::Bench, quorums::Quorum, votes::check_votes};

const MAX_TTL: Duration = Duration::from_secs(3);
const RESTART_LIMIT: Duration = Duration::from_secs(60);
/// A member is fenced for three seconds, and gets 50 requests a second, fewer on a busy machine.
const LEAST_REFUSALS: usize = 20;

pub(crate) async fn no_vote_is_given_between_a_start_and_its_admission(bench: Bench) -> anyhow::Result<()> {
    // The monitor starts before the quorum.
    let monitor = bench.votes().await?;
    let quorum = Quorum::create_with(&bench, "q", MAX_TTL, json!({})).await?;
    for member in 0..3 {
        monitor.until_voted(&quorum, 0, member).await?;
    }
    for member in 0..3 {
        let mark = quorum.recorder.mark();
        bench.cluster.faults.kill_container(&bench.namespace, &format!("q-{member}-0"), "redis").await?;
        let fenced = |m: &MemberStatus| m.state == MemberState::Fenced && m.reason == Some(FenceReason::Restarted);
        quorum.member_until(mark, member, RESTART_LIMIT, "is fenced", fenced).await?;
        monitor.until_voted(&quorum, quorum.recorder.mark(), member).await?;
    }
    let (attempts, versions) = (monitor.attempts(), quorum.recorder.versions());
    let tally = check_votes(&versions, &attempts)?;
    for name in quorum.members()? {
        ensure!(tally.processes(&name) == 2, "{name}: not two processes: {tally:?}");
    }
    for (process, count) in &tally.0 {
        ensure!(
            count.votes > 0 && count.refusals >= LEAST_REFUSALS,
            "{process:?}: too few votes or refusals: {tally:?}"
        );
    }
    // This shows that the check can fail, because without recorded admissions every vote is a violation.
    ensure!(check_votes(&[], &attempts).is_err(), "votes without any admission were accepted");
    Ok(())
}
