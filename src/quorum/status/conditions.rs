//! The conditions of a quorum, each with what is waited for.

use k8s_openapi::jiff::Timestamp;

use super::agreement::Agreement;
use crate::api::conditions::{CommonReason, QuorumCondition, Status, set_condition};
use crate::api::{FenceReason, MemberState, MemberStatus, RedisQuorumStatus};
use crate::quorum::plan::Plan;
use crate::quorum::rollout::Progress;
use crate::quorum::tls::Report;

/// What the conditions are made from, beside the status itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// An update that is not over.
    pub rollout: Option<Progress>,
    /// Client Secrets that could not be written, with the reason.
    pub blocked_clients: Vec<String>,
    /// A rotation of passwords, and what it waits for.
    pub rotation: Option<String>,
    /// How TLS stands; `None` without it.
    pub tls: Option<Report>,
    /// Something that keeps the quorum from being carried out at all.
    pub obstacle: Option<Obstacle>,
    /// What the operators that share its members say; `None` before anything is known.
    pub agreement: Option<Agreement>,
}

impl Overview {
    /// Why no votes count, whoever is admitted.
    fn disagreement(&self) -> Option<&Agreement> {
        self.agreement.as_ref().filter(|agreement| agreement.holds != Status::True)
    }
}

/// What keeps a quorum from being carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Reason of the condition Ready.
    pub reason: CommonReason,
    /// What to do about it.
    pub message: String,
}

/// A condition before it is set.
type Draft = (QuorumCondition, Status, CommonReason, String);

/// Sets the conditions of a quorum that can be carried out. What is watched has conditions of its own.
pub fn conditions(
    status: &mut RedisQuorumStatus,
    plan: &Plan,
    overview: &Overview,
    generation: Option<i64>,
    now: Timestamp,
) {
    let drafts = [
        ready(status, plan, overview),
        available(status, plan, overview),
        fault_tolerant(status, plan),
        progressing(status, overview),
        clients_ready(overview),
    ];
    for (type_, holds, reason, message) in drafts {
        set_condition(&mut status.conditions, type_, holds, reason, message, generation, now);
    }
    if let Some(Agreement { holds, reason, message }) = overview.agreement.clone() {
        let type_ = QuorumCondition::QuorumAgrees;
        set_condition(&mut status.conditions, type_, holds, reason, message, generation, now);
    }
    match &overview.tls {
        Some(Report { ready, reason, message }) => {
            let type_ = QuorumCondition::TLSReady;
            set_condition(&mut status.conditions, type_, *ready, *reason, message.as_str(), generation, now);
        }
        None => status.conditions.retain(|condition| condition.type_ != QuorumCondition::TLSReady.as_str()),
    }
}

/// Sets the conditions of a quorum that cannot be carried out, and of which nothing else is known.
pub fn refused(status: &mut RedisQuorumStatus, obstacle: &Obstacle, generation: Option<i64>, now: Timestamp) {
    let message = obstacle.message.as_str();
    for (type_, holds) in [(QuorumCondition::Ready, Status::False), (QuorumCondition::QuorumAvailable, Status::Unknown)]
    {
        set_condition(&mut status.conditions, type_, holds, obstacle.reason, message, generation, now);
    }
}

fn admitted(status: &RedisQuorumStatus) -> usize {
    status.members.iter().filter(|member| member.state == MemberState::Admitted).count()
}

fn ready(status: &RedisQuorumStatus, plan: &Plan, overview: &Overview) -> Draft {
    let draft = |holds: bool, reason, message: String| (QuorumCondition::Ready, holds.into(), reason, message);
    if let Some(obstacle) = &overview.obstacle {
        return draft(false, obstacle.reason, obstacle.message.clone());
    }
    let all = plan.size();
    if admitted(status) == all
        && let Some(Agreement { reason, message, .. }) = overview.disagreement()
    {
        return draft(false, *reason, message.clone());
    }
    if admitted(status) == all {
        return draft(true, CommonReason::AllAdmitted, format!("all {all} members may vote"));
    }
    draft(false, waiting_reason(status), waiting_for(status))
}

fn available(status: &RedisQuorumStatus, plan: &Plan, overview: &Overview) -> Draft {
    let (have, all, need) = (admitted(status), plan.size(), plan.majority());
    let reason = match have {
        _ if have == all => CommonReason::AllAdmitted,
        _ if have >= need => CommonReason::MajorityAdmitted,
        _ => CommonReason::MajorityLost,
    };
    let mut message = format!("{have} of {all} members may vote, {need} are needed");
    if have < need {
        message = format!("{message}: {}", waiting_for(status));
    }
    if have >= need
        && let Some(Agreement { reason, message, .. }) = overview.disagreement()
    {
        return (QuorumCondition::QuorumAvailable, Status::False, *reason, message.clone());
    }
    (QuorumCondition::QuorumAvailable, (have >= need).into(), reason, message)
}

fn fault_tolerant(status: &RedisQuorumStatus, plan: &Plan) -> Draft {
    let (have, all, need) = (admitted(status), plan.size(), plan.majority());
    let draft = |holds: bool, reason, message: String| (QuorumCondition::FaultTolerant, holds.into(), reason, message);
    if all == 1 {
        let message = "with one member every loss of it stops all locks: write members: 3".to_owned();
        return draft(false, CommonReason::SingleMember, message);
    }
    let message = format!("{have} of {all} members may vote, {need} are needed");
    match have {
        _ if have == all => draft(true, CommonReason::AllAdmitted, message),
        _ if have > need => draft(true, CommonReason::MajorityAdmitted, message),
        _ => draft(false, CommonReason::MembersMissing, message),
    }
}

fn progressing(status: &RedisQuorumStatus, overview: &Overview) -> Draft {
    let draft = |holds: bool, reason, message: String| (QuorumCondition::Progressing, holds.into(), reason, message);
    let settled = status.members.iter().all(|member| member.state == MemberState::Admitted);
    let waiting = if settled { String::new() } else { format!("; {}", waiting_for(status)) };
    match &overview.rollout {
        Some(Progress { paused: true, message }) => {
            return draft(!settled, CommonReason::RolloutPaused, format!("{message}{waiting}"));
        }
        Some(Progress { message, .. }) => return draft(true, CommonReason::Updating, format!("{message}{waiting}")),
        None if !settled => return draft(true, waiting_reason(status), waiting_for(status)),
        None => {}
    }
    if let Some(message) = &overview.rotation {
        return draft(true, CommonReason::RotatingPasswords, message.clone());
    }
    draft(false, CommonReason::Settled, "nothing to do".to_owned())
}

fn clients_ready(overview: &Overview) -> Draft {
    if overview.blocked_clients.is_empty() {
        let message = "every client has its Secret".to_owned();
        return (QuorumCondition::ClientsReady, Status::True, CommonReason::AsExpected, message);
    }
    let message = overview.blocked_clients.join("; ");
    (QuorumCondition::ClientsReady, Status::False, CommonReason::ClientSecretBlocked, message)
}

fn waiting_reason(status: &RedisQuorumStatus) -> CommonReason {
    let unconfirmed = |member: &MemberStatus| member.reason == Some(FenceReason::PredecessorUnconfirmed);
    if status.members.iter().any(unconfirmed) {
        CommonReason::PredecessorUnconfirmed
    } else if status.members.iter().any(|member| member.state == MemberState::Fenced) {
        CommonReason::MembersFenced
    } else {
        CommonReason::MembersStarting
    }
}

fn waiting_for(status: &RedisQuorumStatus) -> String {
    let waits = status.members.iter().filter_map(|member| {
        let name = &member.name;
        Some(match (member.state, member.rejoin_at) {
            (MemberState::Admitted, _) => return None,
            (MemberState::Starting | MemberState::Unreachable, _) if member.message.is_some() => {
                format!("{name} does not answer: {}", member.message.as_deref().unwrap_or_default())
            }
            (MemberState::Pending, _) => format!("{name} has no running pod"),
            (MemberState::Starting, _) => format!("{name} is starting"),
            (MemberState::Unreachable, _) => format!("{name} does not answer"),
            // Of an external member: no time helps against this.
            (MemberState::Fenced, Some(_)) if member.message.is_some() => {
                format!("{name}: {}", member.message.as_deref().unwrap_or_default())
            }
            (MemberState::Fenced, Some(at)) => format!("{name} is fenced and may vote from {at}"),
            (MemberState::Fenced, None) => member.message.clone().unwrap_or_else(|| format!("{name} is fenced")),
        })
    });
    let text = waits.collect::<Vec<_>>().join("; ");
    if text.is_empty() { "the members are being made".to_owned() } else { text }
}
