//! The fence decides when a Redis process can vote (`docs/dev/rules.md`, rules 1 to 7 and 9).
//!
//! A Redis member forgets its votes when it restarts. A process can therefore vote only when two things hold. Every
//! possible promise of its predecessor has expired, and the predecessor is known to be dead. [`decide`] takes the
//! observations of one member by one replica, and returns the next step. It reads no clock and does no IO.
//!
//! [`watch`] turns probes into the input of `decide`. [`record`] applies each step to the published record.
//! [`predecessor`] judges the previous process, and [`clock`] the clock of a process. [`decommission`] decides about members
//! of a deleted quorum, and [`external_master`] about external masters.

pub mod clock;
pub mod decommission;
pub mod external_master;
pub mod predecessor;
pub mod record;
pub mod watch;

use std::time::Duration;

pub use crate::api::FenceReason as Reason;
use crate::time::Monotonic;

pub use predecessor::{Evidence, Process, Verdict};
pub use record::{Record, RunId, State};
pub use watch::{ObservedProcess, ProcessWatch, Users};

/// How long a member can be silent after an answer before its record changes.
///
/// Shorter silences are container restarts and lost connections, which end without a step of the operator. A record of them
/// would only cost two status writes.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(2);

/// How long a death can be unconfirmed before the record names it.
///
/// The pod status lags a process restart by a moment.
pub const UNCONFIRMED_AFTER: Duration = Duration::from_secs(5);

/// How late a pod status can report the end of a container before the pod is deleted.
pub const STATUS_DUE: Duration = Duration::from_secs(30);

/// The connection state of a member at this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No pod, or a pod whose redis container does not run.
    NotRunning,
    /// The container runs, and no process of it has answered this replica yet.
    Connecting {
        /// Since when this replica has tried to reach it.
        since: Monotonic,
    },
    /// A process answered before and does not answer now.
    Lost {
        /// When it last answered.
        since: Monotonic,
    },
    /// A process answers.
    Answering(ObservedProcess),
}

/// The input of a decision about one member.
#[derive(Clone, Debug)]
pub struct FenceInput<'a> {
    /// Now, on the clock of the observations.
    pub now: Monotonic,
    /// The published record.
    pub record: &'a Record,
    /// The connection state of the member at this replica.
    pub reach: &'a Reach,
    /// The verdict on the process that voted before the answering one.
    pub predecessor: &'a Verdict,
    /// How long a promise of a previous process can live (`maxTTLInForce` and the drift allowance).
    pub rejoin_delay: Duration,
    /// When this replica observed the last recorded fencing of this process.
    /// The wait starts again there.
    pub fenced_since: Option<Monotonic>,
    /// This leader has raised its epoch on the answering process.
    /// After that, no frozen leader can open the process.
    pub epoch_raised: bool,
    /// The clock of the answering process was stepped since its admission (rule 9).
    pub clock_jumped: bool,
    /// The process has served no client for the maximum time, so the operator must end it.
    /// It is also this member's turn, because members are restarted one at a time for this cause.
    pub must_restart: bool,
    /// No status of its pod will name the container of the answering process.
    ///
    /// Then no later evidence could prove its end.
    pub unreported: bool,
    /// The answering process and where it runs, as far as observed. `None` leaves the record as it is.
    pub process: Option<&'a Process>,
    /// An external master has lost data since its admission, though it did not restart.
    pub forgot: bool,
    /// An external master could forget while it runs, or its process is also that of another member.
    pub unfit: bool,
}

/// The one next step for a member.
///
/// The caller executes every step except `Nothing` and `Wait`, and then decides again.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceStep {
    /// The record is correct and no wait is running.
    Nothing,
    /// The record is correct. Decide again at this moment, or earlier after an observation.
    Wait {
        /// `None` if only an observation can change the decision.
        until: Option<Monotonic>,
    },
    /// Make this leader's epoch the one that guards openings.
    /// This precedes every other decision about the process.
    RaiseEpoch,
    /// Record that the member has no running process.
    WritePending,
    /// Record that a process is starting.
    WriteStarting,
    /// Record that the process does not answer.
    ///
    /// It remains admitted, because the same process can come back.
    WriteUnreachable,
    /// Record that the admitted process answers again and is open, or that more is known of its place.
    ///
    /// It never forgot a promise, so it does not wait.
    WriteAdmittedAgain,
    /// Record that the previous process is known to be dead, so that the evidence outlives this replica.
    WritePredecessorDead,
    /// Record the process as fenced.
    ///
    /// With `close`, then close it, and start the wait at the confirmed closing.
    WriteFenced {
        /// The reason.
        reason: Reason,
        /// When it can vote if nothing else happens. `None` if time alone does not lead to an admission.
        rejoin_at: Option<Monotonic>,
        /// Users are open, or can be.
        close: bool,
    },
    /// End a process that cannot be repaired in another way.
    ///
    /// `quorum::controller::member_steps` has the cases. Such a member votes only after a restart.
    RestartProcess,
    /// Restore the counter, record the admission, open the users: `quorum::controller::admit`.
    Admit,
}

/// Decides the next step for one member.
pub fn decide(input: &FenceInput<'_>) -> FenceStep {
    if let Some(step) = record_death(input).or_else(|| end_busy_process(input)) {
        return step;
    }
    match input.reach {
        Reach::NotRunning => record_state(input.record, State::Pending, FenceStep::WritePending),
        Reach::Connecting { since } if input.record.admitted => decide_silent(input.record, *since, input.now),
        Reach::Connecting { .. } => record_state(input.record, State::Starting, FenceStep::WriteStarting),
        Reach::Lost { since } => decide_silent(input.record, *since, input.now),
        Reach::Answering(_) if !input.epoch_raised => FenceStep::RaiseEpoch,
        Reach::Answering(answering) if input.record.admits(&answering.run_id) => decide_admitted(input, answering),
        Reach::Answering(answering) if answering.users == Users::Closed => decide_closed(input, answering),
        // The process is open without an admission, so it votes unfenced.
        Reach::Answering(answering) if input.clock_jumped || is_to_end(input.record, answering) => CLOCK_JUMPED,
        Reach::Answering(_) => fenced(first_or_restarted(input.record), Some(input.now + input.rejoin_delay), true),
    }
}

/// When the answering process can vote, as far as rule 2 decides.
///
/// The wait starts at the latest of three moments. These are the first answer of this `run_id`, the first observation
/// of its closed users after they were open, and the last recorded fencing. Each of them can only delay the vote.
pub fn count_from(answering: &ObservedProcess, fenced_since: Option<Monotonic>) -> Monotonic {
    let observed = answering.first_observed.max(answering.closed_since.unwrap_or(answering.first_observed));
    fenced_since.map_or(observed, |fenced| observed.max(fenced))
}

/// Records a death immediately when no process answers.
///
/// The evidence can vanish before a successor answers, because a pod status names the last two containers only.
fn record_death(input: &FenceInput<'_>) -> Option<FenceStep> {
    let is_dead = matches!(input.predecessor, Verdict::Dead(_)) && input.record.can_be_open().is_some();
    match input.reach {
        Reach::Answering(_) => None,
        _ if !is_dead => None,
        _ if !input.record.admitted => Some(FenceStep::WritePredecessorDead),
        Reach::NotRunning => Some(FenceStep::WritePending),
        Reach::Connecting { .. } | Reach::Lost { .. } => Some(FenceStep::WriteStarting),
    }
}

/// Fences a process that serves no client, then ends it.
///
/// A busy process cannot be closed and cannot receive an epoch, so it confirms nothing. The record therefore fences it, and
/// names it as the process whose death its successor must await. Then the operator ends it. If it answers before that, its
/// record stays. Its successor then waits, as after a crash, for the promises that it made while it did not answer.
fn end_busy_process(input: &FenceInput<'_>) -> Option<FenceStep> {
    let is_recorded = input.record.state == State::Fenced && input.record.reason == Some(Reason::Busy);
    let is_it = |answering: &ObservedProcess| input.record.run_id.as_ref() == Some(&answering.run_id);
    let write = input.must_restart.then_some(fenced(Reason::Busy, None, true));
    match input.reach {
        Reach::NotRunning => None,
        Reach::Answering(answering) if is_recorded && is_it(answering) => Some(FenceStep::RestartProcess),
        Reach::Answering(answering) => {
            write.filter(|_| input.record.admits(&answering.run_id) || answering.users == Users::Open)
        }
        // A new replica has not received the `run_id` of the process yet.
        Reach::Connecting { .. } | Reach::Lost { .. } if is_recorded => write.map(|_| FenceStep::RestartProcess),
        Reach::Connecting { .. } | Reach::Lost { .. } => write.filter(|_| input.record.can_be_open().is_some()),
    }
}

fn record_state(record: &Record, state: State, write: FenceStep) -> FenceStep {
    if record.state == state { FenceStep::Wait { until: None } } else { write }
}

/// Decides about a member whose process does not answer.
fn decide_silent(record: &Record, since: Monotonic, now: Monotonic) -> FenceStep {
    let until = since + UNREACHABLE_AFTER;
    match record.state {
        State::Unreachable => FenceStep::Wait { until: None },
        _ if now < until => FenceStep::Wait { until: Some(until) },
        _ => FenceStep::WriteUnreachable,
    }
}

/// Time does not correct the keys of such a process, and its successor waits as after a crash.
const CLOCK_JUMPED: FenceStep = FenceStep::WriteFenced { reason: Reason::ClockJump, rejoin_at: None, close: true };

/// Whether the record fences this process for a step of its clock, so that only its end helps.
fn is_to_end(record: &Record, answering: &ObservedProcess) -> bool {
    record.reason == Some(Reason::ClockJump) && record.run_id.as_ref() == Some(&answering.run_id)
}

/// Decides about an answering process that the record admits.
fn decide_admitted(input: &FenceInput<'_>, answering: &ObservedProcess) -> FenceStep {
    match (answering.users, input.record.state) {
        _ if input.clock_jumped => CLOCK_JUMPED,
        (Users::Open, State::Admitted) if input.process.is_none() || input.process == input.record.process.as_ref() => {
            FenceStep::Nothing
        }
        (Users::Open, _) => FenceStep::WriteAdmittedAgain,
        // The opening failed, or the leader died between the record and the opening. To open it now would be a second
        // opening after one check (rule 3). So the leader fences the process, and its wait starts now.
        (Users::Closed, _) => fenced(Reason::Restarted, Some(input.now + input.rejoin_delay), true),
    }
}

const fn fenced(reason: Reason, rejoin_at: Option<Monotonic>, close: bool) -> FenceStep {
    FenceStep::WriteFenced { reason, rejoin_at, close }
}

/// Decides about a closed process that is not admitted.
fn decide_closed(input: &FenceInput<'_>, answering: &ObservedProcess) -> FenceStep {
    let may_vote_at = count_from(answering, input.fenced_since) + input.rejoin_delay;
    let recorded = input.record.state == State::Fenced && input.record.run_id.as_ref() == Some(&answering.run_id);
    match input.predecessor {
        _ if !recorded => fenced(first_or_restarted(input.record), Some(may_vote_at), false),
        _ if is_to_end(input.record, answering) || input.unreported => FenceStep::RestartProcess,
        _ if input.clock_jumped => fenced(Reason::ClockJump, None, false),
        Verdict::Unconfirmed { until } => unconfirmed(input, answering, *until),
        Verdict::Dead(_) if input.record.predecessor.is_some() => FenceStep::WritePredecessorDead,
        // The doubt about the predecessor ended, so the record has the ordinary reason again.
        _ if input.record.reason == Some(Reason::PredecessorUnconfirmed) => {
            FenceStep::WriteFenced { reason: Reason::Restarted, rejoin_at: Some(may_vote_at), close: false }
        }
        _ if input.now < may_vote_at => FenceStep::Wait { until: Some(may_vote_at) },
        _ => FenceStep::Admit,
    }
}

fn unconfirmed(input: &FenceInput<'_>, answering: &ObservedProcess, until: Option<Monotonic>) -> FenceStep {
    let named_at = answering.first_observed + UNCONFIRMED_AFTER;
    if input.record.reason == Some(Reason::PredecessorUnconfirmed) {
        match lost_in_its_pod(input, answering) {
            Some(at) if at <= input.now => FenceStep::RestartProcess,
            at => FenceStep::Wait { until: until.into_iter().chain(at).min() },
        }
    } else if input.now < named_at {
        FenceStep::Wait { until: Some(until.map_or(named_at, |until| until.min(named_at))) }
    } else {
        FenceStep::WriteFenced { reason: Reason::PredecessorUnconfirmed, rejoin_at: None, close: false }
    }
}

/// When the pod of a process is deleted because no status reports the end of its predecessor.
///
/// This applies if the predecessor ran in the same pod.
///
/// A container runtime that forgets its containers at a reboot leaves no status of them, and the pod stays. After the deletion of the pod
/// its node proves the death. The answering process has promised nothing yet.
fn lost_in_its_pod(input: &FenceInput<'_>, answering: &ObservedProcess) -> Option<Monotonic> {
    let former = input.record.threat_to(Some(&answering.run_id))?;
    let is_its_pod = input.process.is_some_and(|process| process.pod_uid == former.pod_uid);
    is_its_pod.then(|| answering.first_observed + STATUS_DUE)
}

fn first_or_restarted(record: &Record) -> Reason {
    if record.run_id.is_none() && record.predecessor.is_none() { Reason::FirstStart } else { Reason::Restarted }
}

#[cfg(test)]
pub(crate) mod tests;
