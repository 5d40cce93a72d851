//! Members restart while a client outside asks all of them for votes, without a pause.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::{FenceReason, MemberState, MemberStatus};
use serde_json::json;

use crate::{
    bench::Bench,
    locks::SOON,
    quorums::Quorum,
    votes::{VoteMonitor, check_votes},
};

const MAX_TTL: Duration = Duration::from_secs(3);
const RESTART_LIMIT: Duration = Duration::from_secs(60);
/// A member is fenced for three seconds, and asked 50 times a second: on a busy machine less often.
const LEAST_REFUSALS: usize = 20;

pub(crate) async fn no_vote_is_given_between_a_start_and_its_admission(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::create_with(&bench, "q", MAX_TTL, json!({})).await?;
    let answers = |m: &MemberStatus| m.run_id.is_some();
    for member in 0..3 {
        quorum.member_until(0, member, RESTART_LIMIT, "answers", answers).await?;
    }
    // From the first start on.
    let monitor = VoteMonitor::start(&quorum, 1).await?;
    for member in 0..3 {
        voting(&quorum, &monitor, 0, member).await?;
    }
    for member in 0..3 {
        let mark = quorum.recorder.mark();
        bench.cluster.faults.kill_container(&bench.namespace, &format!("q-{member}-0"), "redis").await?;
        let fenced = |m: &MemberStatus| m.state == MemberState::Fenced && m.reason == Some(FenceReason::Restarted);
        quorum.member_until(mark, member, RESTART_LIMIT, "is fenced", fenced).await?;
        voting(&quorum, &monitor, quorum.recorder.mark(), member).await?;
    }
    let (attempts, versions) = (monitor.attempts(), quorum.recorder.versions());
    let tally = check_votes(&versions, &attempts)?;
    println!("{} votes, all by admitted processes:\n{tally}", tally.votes());
    for name in quorum.members() {
        ensure!(tally.processes(&name) == 2, "{name}: not two processes:\n{tally}");
    }
    for (process, count) in &tally.0 {
        ensure!(count.votes > 0 && count.refusals >= LEAST_REFUSALS, "{process:?}: too little was seen:\n{tally}");
    }
    // The check can fail: without the admissions on record every vote is one too many.
    ensure!(check_votes(&[], &attempts).is_err(), "votes without any admission were accepted");
    Ok(())
}

/// The member's process is admitted, and then votes.
async fn voting(quorum: &Quorum, monitor: &VoteMonitor, mark: usize, member: usize) -> anyhow::Result<()> {
    let admitted = |m: &MemberStatus| m.state == MemberState::Admitted;
    let (_, status) = quorum.member_until(mark, member, RESTART_LIMIT, "is admitted", admitted).await?;
    let run_id = status.run_id.context("no runID")?;
    let votes = |attempt: &crate::votes::Attempt| attempt.voted && attempt.run_id == run_id;
    monitor.until(SOON, "a vote of the admitted process", votes).await?;
    Ok(())
}
