//! The conditions of a quorum, each with the cause of its wait.

use k8s_openapi::jiff::Timestamp;

use super::messages::{Condition, MemberWaits, QuorumMessage};
use crate::api::conditions::{CommonReason, QuorumCondition, Status};
use crate::api::{FenceReason, MemberState, MemberStatus, RedisQuorumStatus};
use crate::quorum::model::lists::{Lists, majority};
use crate::quorum::model::problems::Problem;
use crate::quorum::model::rollout::Progress;

/// The input of the conditions, in addition to the status itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// An unfinished update.
    pub rollout: Option<Progress>,
    /// Progress of a change of the members.
    pub change: Option<String>,
    /// Client Secrets that could not be written, with the reason.
    pub blocked_clients: Vec<String>,
    /// The progress of a rotation of passwords, and the cause of its wait.
    pub rotation: Option<String>,
    /// The message about members that run with lost secrets.
    pub loss: Option<String>,
    /// The state of TLS, `None` without it.
    pub tls: Option<Condition>,
    /// A problem that keeps the operator from executing the specification.
    pub obstacle: Option<Problem>,
    /// The agreement with operators that share its members. `None` before the first reading.
    pub agreement: Option<Condition>,
}

impl Overview {
    /// Why no votes count, independent of the admitted members.
    fn disagreement(&self) -> Option<&Condition> {
        self.agreement.as_ref().filter(|agreement| agreement.holds != Status::True)
    }
}

/// Sets the conditions of a quorum with a valid plan. The watches of members have separate conditions.
pub fn conditions(status: &mut RedisQuorumStatus, lists: &Lists, overview: &Overview, at: (Option<i64>, Timestamp)) {
    let own = [
        ready(status, lists, overview),
        available(status, lists, overview),
        fault_tolerant(status, lists),
        progressing(status, lists, overview),
        clients_ready(status, lists, overview),
    ];
    for condition in own.into_iter().chain(overview.agreement.clone()).chain(overview.tls.clone()) {
        condition.set(status, at);
    }
    if overview.tls.is_none() {
        status.conditions.retain(|condition| condition.type_ != QuorumCondition::TLSReady.as_str());
    }
}

/// Sets the conditions of a quorum with a spec that cannot be executed, so that its state is unknown.
pub fn refused(status: &mut RedisQuorumStatus, problem: &Problem, at @ (generation, _now): (Option<i64>, Timestamp)) {
    let is_served = !matches!(problem, Problem::TooMany { .. } | Problem::Deleting { .. });
    let available = if is_served { Status::Unknown } else { Status::False };
    status.observed_generation = generation;
    for (type_, holds) in [(QuorumCondition::Ready, Status::False), (QuorumCondition::QuorumAvailable, available)] {
        let (reason, message) = (problem.reason(), problem.to_string());
        Condition { type_, holds, reason, message }.set(status, at);
    }
}

fn ready(status: &RedisQuorumStatus, lists: &Lists, overview: &Overview) -> Condition {
    let unready = |reason, message| Condition { type_: QuorumCondition::Ready, holds: Status::False, reason, message };
    if let Some(obstacle) = &overview.obstacle {
        return unready(obstacle.reason(), obstacle.to_string());
    }
    if let Some(message) = &overview.loss {
        return QuorumMessage::PasswordsLost { loss: message.clone() }.condition();
    }
    if lists.in_force().all(|list| admitted_of(status, list) == list.len()) {
        if let Some(Condition { reason, message, .. }) = overview.disagreement() {
            return unready(*reason, message.clone());
        }
        return QuorumMessage::AllVote { members: lists.voters.len() }.condition();
    }
    let counts = |member: &MemberStatus| lists.counts(&member.name);
    unready(waiting_reason(status, counts), waiting_for(status, counts))
}

/// The numbers of admitted members, all members and needed votes for each list, with their text.
fn counted(status: &RedisQuorumStatus, lists: &Lists) -> (Vec<(usize, usize, usize)>, String) {
    let counts: Vec<_> = lists.in_force().map(|list| (admitted_of(status, list), list.len(), majority(list))).collect();
    let texts =
        counts.iter().map(|(have, all, need)| MemberWaits::Votes { have: *have, all: *all, need: *need }.to_string());
    let text = texts.collect::<Vec<_>>().join("; of the members before the change ");
    (counts, text)
}

fn available(status: &RedisQuorumStatus, lists: &Lists, overview: &Overview) -> Condition {
    let (each, counts) = counted(status, lists);
    if each.iter().any(|(have, _, need)| have < need) {
        let waits = waiting_for(status, |member| lists.counts(&member.name));
        return QuorumMessage::MajorityLost { counts, waits }.condition();
    }
    if let Some(disagreement) = overview.disagreement() {
        return Condition { type_: QuorumCondition::QuorumAvailable, holds: Status::False, ..disagreement.clone() };
    }
    match each.iter().all(|(have, all, _)| have == all) {
        true => QuorumMessage::AllAvailable { counts }.condition(),
        false => QuorumMessage::MajorityAvailable { counts }.condition(),
    }
}

fn fault_tolerant(status: &RedisQuorumStatus, lists: &Lists) -> Condition {
    let (each, counts) = counted(status, lists);
    let message = match () {
        () if each.iter().any(|(_, all, _)| *all == 1) => QuorumMessage::SingleMember,
        () if each.iter().all(|(have, all, _)| have == all) => QuorumMessage::AllTolerant { counts },
        () if each.iter().all(|(have, _, need)| have > need) => QuorumMessage::Tolerant { counts },
        () => QuorumMessage::Intolerant { counts },
    };
    message.condition()
}

fn progressing(status: &RedisQuorumStatus, lists: &Lists, overview: &Overview) -> Condition {
    let all = |_: &MemberStatus| true;
    let all_admitted = status.members.iter().all(|member| member.state == MemberState::Admitted);
    let waiting = (!all_admitted).then(|| waiting_for(status, all));
    let change = overview.change.as_ref().filter(|_| !lists.is_settled());
    let update = overview.rollout.as_ref().map(|Progress { message, .. }| message);
    let doing = [change, update, waiting.as_ref()].into_iter().flatten().cloned().collect::<Vec<_>>().join("; ");
    let message = match (overview.rollout.as_ref().map(|rollout| rollout.paused), &overview.rotation) {
        _ if !lists.is_settled() => QuorumMessage::MembersChanging { doing },
        (Some(true), _) if all_admitted => QuorumMessage::RolloutPausedAlone { doing },
        (Some(true), _) => QuorumMessage::RolloutPaused { doing },
        (Some(false), _) => QuorumMessage::Updating { doing },
        (None, _) if !all_admitted => {
            let (type_, reason) = (QuorumCondition::Progressing, waiting_reason(status, all));
            return Condition { type_, holds: Status::True, reason, message: doing };
        }
        (None, Some(rotation)) => QuorumMessage::Rotating { doing: rotation.clone() },
        (None, None) => QuorumMessage::Settled,
    };
    message.condition()
}

fn clients_ready(status: &RedisQuorumStatus, lists: &Lists, overview: &Overview) -> Condition {
    let blocked = &overview.blocked_clients;
    let busy = status.members.iter().filter(|member| member.reason == Some(FenceReason::Busy));
    let busy: Vec<_> = busy.map(|member| MemberWaits::Busy { member: member.name.clone() }.to_string()).collect();
    let message = match () {
        () if lists.is_joint() => QuorumMessage::ClientsWait,
        () if !busy.is_empty() => QuorumMessage::ClientMisbehaves { clients: busy.join("; ") },
        () if !blocked.is_empty() => QuorumMessage::ClientBlocked { blocked: blocked.join("; ") },
        () => QuorumMessage::ClientsReady,
    };
    message.condition()
}

fn waiting_reason(status: &RedisQuorumStatus, is_meant: impl Fn(&MemberStatus) -> bool) -> CommonReason {
    let members = || status.members.iter().filter(|member| is_meant(member));
    let unconfirmed = |member: &MemberStatus| member.reason == Some(FenceReason::PredecessorUnconfirmed);
    match () {
        () if members().any(unconfirmed) => CommonReason::PredecessorUnconfirmed,
        () if members().any(|member| member.state == MemberState::Fenced) => CommonReason::MembersFenced,
        () => CommonReason::MembersStarting,
    }
}

fn waiting_for(status: &RedisQuorumStatus, is_meant: impl Fn(&MemberStatus) -> bool) -> String {
    let waits = status.members.iter().filter(|member| is_meant(member)).filter_map(|member| {
        let (state, reason, rejoin_at) = (member.state, member.reason, member.rejoin_at);
        let (member, why) = (member.name.clone(), member.message.clone());
        let waits = match (state, rejoin_at, why) {
            (MemberState::Admitted, ..) => return None,
            _ if reason == Some(FenceReason::Leaving) => MemberWaits::Leaves { member },
            (MemberState::Starting | MemberState::Unreachable, _, Some(why)) => MemberWaits::SilentFor { member, why },
            (MemberState::Pending, _, Some(why)) => MemberWaits::NoPodFor { member, why },
            (MemberState::Pending, ..) => MemberWaits::NoPod { member },
            (MemberState::Starting, ..) => MemberWaits::Starting { member },
            (MemberState::Unreachable, ..) => MemberWaits::Silent { member },
            // This is the obstacle of an external member. Time does not remove it.
            (MemberState::Fenced, Some(_), Some(why)) => MemberWaits::FencedFor { member, why },
            (MemberState::Fenced, Some(at), None) => MemberWaits::FencedUntil { member, at },
            (MemberState::Fenced, None, Some(why)) => MemberWaits::Record { why },
            (MemberState::Fenced, None, None) => MemberWaits::Fenced { member },
        };
        Some(waits.to_string())
    });
    let text = waits.collect::<Vec<_>>().join("; ");
    if text.is_empty() { MemberWaits::NoMembers.to_string() } else { text }
}

/// The number of admitted members, and of all members in the newest list, as text.
pub fn ready_column(status: &RedisQuorumStatus, lists: &Lists) -> String {
    format!("{}/{}", admitted_of(status, &lists.voters), lists.voters.len())
}

/// The number of admitted members of this list.
fn admitted_of(status: &RedisQuorumStatus, list: &[String]) -> usize {
    let admitted = |member: &&MemberStatus| member.state == MemberState::Admitted && list.contains(&member.name);
    status.members.iter().filter(admitted).count()
}
