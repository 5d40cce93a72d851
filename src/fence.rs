//! The fence: when may a Redis process vote? (`docs/dev/rules.md`, rules 1 to 7 and 9.)
//!
//! A Redis member forgets its votes when it restarts. A process may therefore vote only when everything that its predecessor
//! can have promised has expired, and when that predecessor is known to be dead. [`decide`] takes what one operator
//! replica knows about one member and names the one next step; it reads no clock and does no IO. [`watch`] turns probes into what
//! `decide` needs, [`record`] says what each step does to the published record, [`predecessor`] judges the process
//! before, [`clock`] judges a process's clock, and [`decommission`] is the same question for a quorum that is being deleted. [`external`] decides about masters
//! that others run.

pub mod clock;
pub mod decommission;
pub mod external;
pub mod predecessor;
pub mod record;
pub mod watch;

use std::time::Duration;

pub use crate::api::FenceReason as Reason;
use crate::time::Monotonic;

pub use predecessor::{Evidence, Process, Verdict};
pub use record::{Record, RunId, State};
pub use watch::{ProcessWatch, Sight, Users};

/// How long a member that answered before may be silent until its record says so. Shorter silences are container restarts and
/// lost connections that mend themselves, and would only cost two status writes.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);

/// How long a death may be unconfirmed before the record names it. The pod status lags a process restart by a moment.
pub const UNCONFIRMED_AFTER: Duration = Duration::from_secs(5);

/// How late a pod status can report the end of a container before the pod is deleted.
pub const STATUS_DUE: Duration = Duration::from_secs(30);

/// How this replica sees the member right now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No pod, or a pod whose redis container does not run.
    NotRunning,
    /// The container runs, and no process of it has answered this replica yet.
    Connecting {
        /// Since when it is asked.
        since: Monotonic,
    },
    /// A process answered before and does not answer now.
    Lost {
        /// When it was last known to answer.
        since: Monotonic,
    },
    /// A process answers.
    Seen(Sight),
}

/// All that a decision about one member depends on.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Now, on the clock that the sights were taken with.
    pub now: Monotonic,
    /// What the status of the RedisQuorum says.
    pub record: &'a Record,
    /// What this replica sees.
    pub reach: &'a Reach,
    /// What is known of the process that voted before the one that is seen now.
    pub predecessor: &'a Verdict,
    /// How long a promise of a process before can live (`maxTTLInForce` and the drift allowance).
    pub rejoin_delay: Duration,
    /// When this replica learnt of the last recorded fencing of this process.
    /// The count starts again there.
    pub fenced_since: Option<Monotonic>,
    /// This leader has raised its epoch on the process that is seen.
    /// So no frozen leader can open the process any more.
    pub epoch_raised: bool,
    /// The clock of the process that is seen was stepped since its admission (rule 9).
    pub clock_jumped: bool,
    /// The process has served no client for so long that only its end helps.
    /// It is also this member's turn: members are restarted for this one at a time.
    pub stuck: bool,
    /// No status of its pod will tell in which container the process runs that is seen.
    /// So nobody could tell later when it has ended.
    pub untold: bool,
    /// Where the process that is seen runs, as far as that is known now. `None` leaves the record as it is.
    pub seen: Option<&'a Process>,
}

/// The one next step for a member.
///
/// Every step but `Nothing` and `Wait` is carried out and followed by a new decision.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceStep {
    /// The record is true and nothing is awaited.
    Nothing,
    /// The record is true; decide again at this moment, or earlier when something is seen.
    Wait {
        /// `None`: only news can change the decision.
        until: Option<Monotonic>,
    },
    /// Make this leader's epoch the one that guards openings.
    /// This comes before everything else that is decided about the process.
    RaiseEpoch,
    /// Record that the member has no running process.
    WritePending,
    /// Record that a process is starting.
    WriteStarting,
    /// Record that the process does not answer. An admission stands: the same process may come back.
    WriteUnreachable,
    /// The admitted process answers again and is open, or more is known of where it runs: record it. It never forgot anything, so
    /// nothing is waited for.
    WriteAdmittedAgain,
    /// Record that the death of the process before is known, so that the evidence outlives this replica.
    WritePredecessorDead,
    /// Record the process as fenced; with `close`, then close it, and count from the confirmed closing.
    WriteFenced {
        /// Why.
        reason: Reason,
        /// When it may vote if nothing else happens; `None` when no time brings that about.
        rejoin_at: Option<Monotonic>,
        /// Users are open, or may be.
        close: bool,
    },
    /// End a process that can be mended in no other way.
    /// Either its clock was stepped after its admission: its keys have wrong ends, so it must forget them. Or a script keeps
    /// it busy and cannot be ended: the member takes part in no vote until it is another process.
    RestartProcess,
    /// Restore the counter, record the admission, open the users: `quorum::controller::admit`.
    Admit,
}

/// Decides the next step for one member.
pub fn decide(view: &View<'_>) -> FenceStep {
    if let Some(step) = buried(view).or_else(|| stuck(view)) {
        return step;
    }
    match view.reach {
        Reach::NotRunning => record_state(view.record, State::Pending, FenceStep::WritePending),
        Reach::Connecting { since } if view.record.admitted => lost(view.record, *since, view.now),
        Reach::Connecting { .. } => record_state(view.record, State::Starting, FenceStep::WriteStarting),
        Reach::Lost { since } => lost(view.record, *since, view.now),
        Reach::Seen(_) if !view.epoch_raised => FenceStep::RaiseEpoch,
        Reach::Seen(sight) if view.record.admits(&sight.run_id) => standing(view, sight),
        Reach::Seen(sight) if sight.users == Users::Open => fence_open(view, sight),
        Reach::Seen(sight) => waiting(view, sight),
    }
}

/// When the process that is seen may vote, predecessor aside: rule 2.
///
/// The count starts at the latest of: the first sight of this `run_id`, the moment when its users were first seen closed
/// after they had been open, and the last recorded fencing. Each of them only delays.
#[must_use]
pub fn count_from(sight: &Sight, fenced_since: Option<Monotonic>) -> Monotonic {
    let seen = sight.first_seen.max(sight.closed_since.unwrap_or(sight.first_seen));
    fenced_since.map_or(seen, |fenced| seen.max(fenced))
}

/// Nothing answers, and what could vote last is known to be dead: that is recorded at once. The evidence may be gone before a
/// successor answers: a pod status names the last two containers only.
fn buried(view: &View<'_>) -> Option<FenceStep> {
    let is_dead = matches!(view.predecessor, Verdict::Dead(_)) && view.record.may_be_open().is_some();
    match view.reach {
        Reach::Seen(_) => None,
        _ if !is_dead => None,
        _ if !view.record.admitted => Some(FenceStep::WritePredecessorDead),
        Reach::NotRunning => Some(FenceStep::WritePending),
        Reach::Connecting { .. } | Reach::Lost { .. } => Some(FenceStep::WriteStarting),
    }
}

/// Fences a process that serves no client, then ends it.
///
/// A busy process can neither be closed nor be told whose epoch counts, so it confirms nothing. The record therefore
/// says that it may not vote any more, and names it as the one that its successor has to wait for. Then it is ended. If
/// it answers before that, its record stands: its successor waits, like after a crash, for what it promised while it
/// could not be asked.
fn stuck(view: &View<'_>) -> Option<FenceStep> {
    let is_recorded = view.record.state == State::Fenced && view.record.reason == Some(Reason::Busy);
    let is_it = |sight: &Sight| view.record.run_id.as_ref() == Some(&sight.run_id);
    let write = FenceStep::WriteFenced { reason: Reason::Busy, rejoin_at: None, close: true };
    match view.reach {
        Reach::NotRunning => None,
        Reach::Seen(sight) if is_recorded && is_it(sight) => Some(FenceStep::RestartProcess),
        Reach::Seen(sight) => {
            (view.stuck && (view.record.admits(&sight.run_id) || sight.users == Users::Open)).then_some(write)
        }
        // A replica that has just begun has not heard from it who it is.
        Reach::Connecting { .. } | Reach::Lost { .. } if !view.stuck => None,
        Reach::Connecting { .. } | Reach::Lost { .. } if is_recorded => Some(FenceStep::RestartProcess),
        Reach::Connecting { .. } | Reach::Lost { .. } => view.record.may_be_open().map(|_| write),
    }
}

fn record_state(record: &Record, state: State, write: FenceStep) -> FenceStep {
    if record.state == state { FenceStep::Wait { until: None } } else { write }
}

fn lost(record: &Record, since: Monotonic, now: Monotonic) -> FenceStep {
    let until = since + UNREACHABLE_AFTER;
    match record.state {
        State::Unreachable => FenceStep::Wait { until: None },
        _ if now < until => FenceStep::Wait { until: Some(until) },
        _ => FenceStep::WriteUnreachable,
    }
}

/// No time makes the keys of such a process right, and the next one waits as after a crash.
const CLOCK_JUMPED: FenceStep = FenceStep::WriteFenced { reason: Reason::ClockJump, rejoin_at: None, close: true };

/// Recorded as fenced for a step of its clock: nothing but its end helps.
fn is_to_end(record: &Record, sight: &Sight) -> bool {
    record.reason == Some(Reason::ClockJump) && record.run_id.as_ref() == Some(&sight.run_id)
}

/// The process that the record admits is the one that answers.
fn standing(view: &View<'_>, sight: &Sight) -> FenceStep {
    match (sight.users, view.record.state) {
        _ if view.clock_jumped => CLOCK_JUMPED,
        (Users::Open, State::Admitted) if view.seen.is_none() || view.seen == view.record.process.as_ref() => {
            FenceStep::Nothing
        }
        (Users::Open, _) => FenceStep::WriteAdmittedAgain,
        // The opening failed, or the leader died between the record and the opening. Opening it now would be a second
        // opening on the strength of one check; it is fenced and counted from then on instead (rule 3).
        (Users::Closed, _) => fenced(Reason::Restarted, Some(view.now + view.rejoin_delay), true),
    }
}

/// A process answers that is open without an admission: it votes unfenced. Close, and count from there.
fn fence_open(view: &View<'_>, sight: &Sight) -> FenceStep {
    if view.clock_jumped || is_to_end(view.record, sight) {
        return CLOCK_JUMPED;
    }
    fenced(first_or_restarted(view.record), Some(view.now + view.rejoin_delay), true)
}

const fn fenced(reason: Reason, rejoin_at: Option<Monotonic>, close: bool) -> FenceStep {
    FenceStep::WriteFenced { reason, rejoin_at, close }
}

/// A closed process that is not admitted.
fn waiting(view: &View<'_>, sight: &Sight) -> FenceStep {
    let may_vote_at = count_from(sight, view.fenced_since) + view.rejoin_delay;
    let recorded = view.record.state == State::Fenced && view.record.run_id.as_ref() == Some(&sight.run_id);
    if !recorded {
        return fenced(first_or_restarted(view.record), Some(may_vote_at), false);
    }
    if is_to_end(view.record, sight) || view.untold {
        return FenceStep::RestartProcess;
    }
    if view.clock_jumped {
        return FenceStep::WriteFenced { reason: Reason::ClockJump, rejoin_at: None, close: false };
    }
    match view.predecessor {
        Verdict::Unconfirmed { until, .. } => unconfirmed(view, sight, *until),
        Verdict::Dead(_) if view.record.predecessor.is_some() => FenceStep::WritePredecessorDead,
        // Its way out was found, so the record names the ordinary reason again.
        _ if view.record.reason == Some(Reason::PredecessorUnconfirmed) => {
            FenceStep::WriteFenced { reason: Reason::Restarted, rejoin_at: Some(may_vote_at), close: false }
        }
        _ if view.now < may_vote_at => FenceStep::Wait { until: Some(may_vote_at) },
        _ => FenceStep::Admit,
    }
}

fn unconfirmed(view: &View<'_>, sight: &Sight, until: Option<Monotonic>) -> FenceStep {
    let named_at = sight.first_seen + UNCONFIRMED_AFTER;
    if view.record.reason == Some(Reason::PredecessorUnconfirmed) {
        match lost_in_its_pod(view, sight) {
            Some(at) if at <= view.now => FenceStep::RestartProcess,
            at => FenceStep::Wait { until: until.into_iter().chain(at).min() },
        }
    } else if view.now < named_at {
        FenceStep::Wait { until: Some(until.map_or(named_at, |until| until.min(named_at))) }
    } else {
        FenceStep::WriteFenced { reason: Reason::PredecessorUnconfirmed, rejoin_at: None, close: false }
    }
}

/// When the pod of a process is deleted because no status reports the end of its predecessor.
///
/// The predecessor ran in that very pod.
///
/// A container runtime that forgets its containers at a reboot leaves no status of them, and the pod stays. When the pod is gone, the
/// node proves the death. The process that answers has promised nothing yet.
fn lost_in_its_pod(view: &View<'_>, sight: &Sight) -> Option<Monotonic> {
    let former = view.record.threat_to(Some(&sight.run_id))?;
    let is_its_pod = view.seen.is_some_and(|seen| seen.pod_uid == former.pod_uid);
    is_its_pod.then(|| sight.first_seen + STATUS_DUE)
}

fn first_or_restarted(record: &Record) -> Reason {
    if record.run_id.is_none() && record.predecessor.is_none() { Reason::FirstStart } else { Reason::Restarted }
}

#[cfg(test)]
mod tests;
