//! A process that must not vote: its record, its users, and its Event.

use super::error::Result;
use super::observe::Observer;
use super::snapshot::MemberSnapshot;
use crate::fence::{FenceStep, Reason};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::record::{Stamps, publish_named};
use crate::quorum::model::{effective, membership};

/// Carries out a step that changes the record.
///
/// A fencing closes the users of the process if they can be open, and is published as an Event.
pub(super) async fn carry_out(observer: &Observer<'_>, snapshot: &MemberSnapshot, step: FenceStep) -> Result<()> {
    write(observer, snapshot, step).await?;
    let FenceStep::WriteFenced { reason, rejoin_at, close } = step else { return Ok(()) };
    // A busy process executes no command.
    let closed = if close && reason != Reason::Busy { close_users(observer, snapshot).await } else { Ok(()) };
    let until = rejoin_at.and_then(|at| observer.sources.cluster.wall_time(at, snapshot.now));
    let until = until.map_or_else(|| "it is safe".to_owned(), |until| until.to_string());
    observer.sources.cluster.publish_event(event_of(observer, snapshot, reason, until)).await;
    closed
}

/// Closes the users of a process whose record is Fenced.
///
/// The rejoin delay begins when the member confirms it.
pub(super) async fn close_users(observer: &Observer<'_>, snapshot: &MemberSnapshot) -> Result<()> {
    let since = membership::users_since(&observer.sources.session.quorum(), snapshot.name(), &observer.plan.lists);
    let rules = observer.plan.closing_rules(observer.auth, snapshot.name(), since);
    Ok(snapshot.admin_session().await?.close(observer.sources.term.epoch, &rules).await?)
}

/// Writes the record after a step.
pub(super) async fn write(observer: &Observer<'_>, snapshot: &MemberSnapshot, step: FenceStep) -> Result<()> {
    let cluster = observer.sources.cluster;
    let next = snapshot.record.after(step, snapshot.process.as_ref(), &snapshot.verdict);
    // A wall-clock time for users. A step without a time leaves the published time unchanged.
    let rejoin_at = match step {
        FenceStep::WriteFenced { rejoin_at, .. } => rejoin_at,
        // The wait begins with this record.
        FenceStep::WritePredecessorDead => Some(snapshot.now + effective::rejoin_delay_of(&snapshot.quorum)),
        _ => None,
    };
    let rejoin_at = rejoin_at.and_then(|at| cluster.wall_time(at, snapshot.now));
    let stamps = Stamps { rejoin_at, joins: observer.plan.lists.is_learner(snapshot.name()), ..Stamps::default() };
    cluster.replace(&snapshot.quorum, |status| publish_named(status, snapshot.name(), &next, stamps)).await?;
    let quorum = observer.sources.session.reference();
    let run_id = next.run_id.as_ref().map(tracing::field::display);
    tracing::info!(%quorum, member = snapshot.name(), state = ?next.state, reason = ?next.reason, run_id, "member");
    Ok(())
}

/// The Event about a fencing.
fn event_of(observer: &Observer<'_>, snapshot: &MemberSnapshot, reason: Reason, until: String) -> QuorumEvent {
    let member = snapshot.name().to_owned();
    match (snapshot.link.plan.is_external(), reason) {
        (true, Reason::FirstStart | Reason::Joining) => QuorumEvent::FirstObserved { member, until },
        (true, Reason::ClockJump) => QuorumEvent::ExternalClockStepped { member, until },
        (true, _) => QuorumEvent::ExternalRestarted { member, until },
        (false, Reason::FirstStart | Reason::Joining) => QuorumEvent::Started { member, until },
        (false, Reason::Restarted) => QuorumEvent::Restarted { member, until },
        (false, Reason::PredecessorUnconfirmed) => QuorumEvent::PredecessorUnconfirmed { member },
        (false, Reason::ClockJump) => {
            let clocks = observer.sources.session.clocks();
            let step = snapshot.process.as_ref().and_then(|process| clocks.step_of(&process.run_id));
            QuorumEvent::ClockStepped { member, by: step.map_or_else(String::new, |step| format!(" by {step}")) }
        }
        (false, Reason::Busy) => QuorumEvent::Busy { member },
        (false, Reason::Leaving) => QuorumEvent::Leaves { member },
        (false, Reason::Updating) => QuorumEvent::Updating { member },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fence::Process;
    use crate::quorum::controller::tests::{World, pod, quorum};
    use crate::redlock::RunId;

    #[tokio::test(start_paused = true)]
    async fn a_process_is_closed_before_the_event_about_its_fencing() {
        let quorum = quorum(&[json!({"name": "main-0", "state": "Admitted", "runID": "r", "podUID": "main-0"})]);
        let code = |request: &str| (!request.starts_with("PUT")).then_some(403);
        let world = World::denying(quorum, vec![pod("main-0", &json!({}))], code);
        let (cluster, link) = (world.cluster(), world.session.link("main-0").unwrap());
        let observer = world.observer(&cluster);
        let mut snapshot = observer.sources.observe(&link, world.session.quorum()).await.unwrap();
        let (run_id, pod_uid) = (RunId::new("r"), "main-0".to_owned());
        snapshot.process = Some(Process { run_id, pod_uid, container_id: None, node_name: None, node: None });
        let step = FenceStep::WriteFenced { reason: Reason::Restarted, rejoin_at: None, close: true };
        assert!(carry_out(&observer, &snapshot, step).await.is_err(), "the member does not answer");
        let requests = world.requests("");
        let requests: Vec<_> = requests.iter().filter_map(|request| request.split(' ').next()).collect();
        assert_eq!(requests[requests.len() - 3..], ["PUT", "CONNECT", "POST"], "{requests:?}");
    }
}
