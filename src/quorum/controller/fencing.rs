//! A process that may not vote: its record, its users, and the Event that tells of it.

use super::cluster::Cluster;
use super::error::Error;
use super::look::Look;
use super::observe::Observer;
use crate::api::MilliTime;
use crate::fence::{FenceStep, Reason};
use crate::quorum::model::effective;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::membership::users_since;
use crate::quorum::model::record::{Stamps, publish_named};
use crate::time::Monotonic;

/// Only after the record says Fenced; the count starts when it is confirmed.
pub(super) async fn close_users(observer: &Observer<'_>, look: &Look) -> Result<(), Error> {
    let Some(seen) = &look.seen else { return Ok(()) };
    let quorum = observer.sights.session.quorum();
    let since = users_since(quorum.status.as_ref(), look.name(), &observer.plan.lists);
    let rules = observer.plan.closing_rules(observer.auth, look.name(), since);
    Ok(look.link.admin_session(&seen.run_id).await?.close(observer.sights.epoch, &rules).await?)
}

/// Writes the record that a step leads to.
pub(super) async fn write(
    observer: &Observer<'_>,
    cluster: &Cluster<'_>,
    look: &Look,
    step: FenceStep,
) -> Result<(), Error> {
    let next = look.record.after(step, look.seen.as_ref(), &look.verdict);
    // In the wall clock's words, for people. A step that does not speak of it leaves it as it is.
    let rejoin_at = match step {
        FenceStep::WriteFenced { rejoin_at, .. } => rejoin_at,
        // The count begins with this record.
        FenceStep::WritePredecessorDead => Some(look.now + effective::rejoin_delay_of(&look.quorum)),
        _ => None,
    };
    let rejoin_at = rejoin_at.and_then(|at| cluster.wall_time(at, look.now));
    let stamps = Stamps { rejoin_at, joins: observer.plan.lists.learns(look.name()), ..Stamps::default() };
    cluster.replace(&look.quorum, |status| publish_named(status, look.name(), &next, stamps)).await?;
    let quorum = observer.sights.session.reference();
    let run_id = next.run_id.as_ref().map(tracing::field::display);
    tracing::info!(%quorum, member = look.name(), state = ?next.state, reason = ?next.reason, run_id, "member");
    Ok(())
}

pub(super) async fn say_fenced(
    observer: &Observer<'_>,
    cluster: &Cluster<'_>,
    look: &Look,
    reason: Reason,
    rejoin_at: Option<Monotonic>,
) {
    let until = rejoin_at.and_then(|at| cluster.wall_time(at, look.now));
    let until = until.map_or_else(|| "it is safe".to_owned(), |until: MilliTime| until.to_string());
    let member = look.name().to_owned();
    let event = match (look.link.plan().is_external(), reason) {
        (true, Reason::FirstStart | Reason::Joining) => QuorumEvent::SeenFirst { member, until },
        (true, Reason::ClockJump) => QuorumEvent::ExternalClockStepped { member, until },
        (true, _) => QuorumEvent::ExternalRestarted { member, until },
        (false, Reason::FirstStart | Reason::Joining) => QuorumEvent::Started { member, until },
        (false, Reason::Restarted) => QuorumEvent::Restarted { member, until },
        (false, Reason::PredecessorUnconfirmed) => QuorumEvent::PredecessorUnconfirmed { member },
        (false, Reason::ClockJump) => QuorumEvent::ClockStepped { member, by: step_text(observer, look) },
        (false, Reason::Busy) => QuorumEvent::Busy { member },
        (false, Reason::Leaving) => QuorumEvent::Leaves { member },
        (false, Reason::Updating) => QuorumEvent::Updating { member },
    };
    cluster.tell(event).await;
}

/// How far the clock of the process that is seen was stepped.
fn step_text(observer: &Observer<'_>, look: &Look) -> String {
    let clocks = observer.sights.session.clocks();
    let step = look.seen.as_ref().and_then(|seen| clocks.step_of(&seen.run_id));
    step.map_or_else(String::new, |step| format!(" by {step}"))
}
