//! The conditions of a quorum, each with what is waited for.

use k8s_openapi::jiff::Timestamp;

use super::admitted_of;
use crate::api::conditions::{CommonReason, QuorumCondition, Status};
use crate::api::{FenceReason, MemberState, MemberStatus, RedisQuorumStatus};
use crate::quorum::model::condition::Condition;
use crate::quorum::model::lists::{Lists, majority};
use crate::quorum::model::rollout::Progress;

/// What the conditions are made from, beside the status itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// An update that is not over.
    pub rollout: Option<Progress>,
    /// What a change of the members is doing.
    pub change: Option<String>,
    /// Client Secrets that could not be written, with the reason.
    pub blocked_clients: Vec<String>,
    /// Clients that are shut out of a member for a while, with the reason.
    pub shut_out: Vec<String>,
    /// A rotation of passwords, and what it waits for.
    pub rotation: Option<String>,
    /// Members run with secrets that are lost.
    pub loss: Option<String>,
    /// How TLS stands; `None` without it.
    pub tls: Option<Condition>,
    /// Something that keeps the quorum from being carried out at all.
    pub obstacle: Option<Obstacle>,
    /// What the operators that share its members say; `None` before anything is known.
    pub agreement: Option<Condition>,
}

impl Overview {
    /// Why no votes count, whichever members are admitted.
    fn disagreement(&self) -> Option<&Condition> {
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

/// Sets the conditions of a quorum that can be carried out. What is watched has conditions of its own.
pub fn conditions(
    status: &mut RedisQuorumStatus,
    lists: &Lists,
    overview: &Overview,
    generation: Option<i64>,
    now: Timestamp,
) {
    let own = [
        ready(status, lists, overview),
        available(status, lists, overview),
        fault_tolerant(status, lists),
        progressing(status, lists, overview),
        clients_ready(lists, overview),
    ];
    for condition in own.into_iter().chain(overview.agreement.clone()).chain(overview.tls.clone()) {
        condition.set(status, generation, now);
    }
    if overview.tls.is_none() {
        status.conditions.retain(|condition| condition.type_ != QuorumCondition::TLSReady.as_str());
    }
}

/// Sets the conditions of a quorum that cannot be carried out, and of which nothing else is known.
pub fn refused(status: &mut RedisQuorumStatus, obstacle: &Obstacle, generation: Option<i64>, now: Timestamp) {
    for (type_, holds) in [(QuorumCondition::Ready, Status::False), (QuorumCondition::QuorumAvailable, Status::Unknown)]
    {
        Condition::new(type_, holds, obstacle.reason, obstacle.message.as_str()).set(status, generation, now);
    }
}

fn ready(status: &RedisQuorumStatus, lists: &Lists, overview: &Overview) -> Condition {
    let draft = |holds: bool, reason, message: String| Condition::new(QuorumCondition::Ready, holds, reason, message);
    if let Some(obstacle) = &overview.obstacle {
        return draft(false, obstacle.reason, obstacle.message.clone());
    }
    if let Some(message) = &overview.loss {
        return draft(false, CommonReason::AuthLost, message.clone());
    }
    if lists.in_force().all(|list| admitted_of(status, list) == list.len()) {
        if let Some(Condition { reason, message, .. }) = overview.disagreement() {
            return draft(false, *reason, message.clone());
        }
        return draft(true, CommonReason::AllAdmitted, format!("all {} members may vote", lists.voters.len()));
    }
    let counts = |member: &MemberStatus| lists.counts(&member.name);
    draft(false, waiting_reason(status, counts), waiting_for(status, counts))
}

/// How many may vote, of how many, and how many are needed, in each list.
fn counted(status: &RedisQuorumStatus, lists: &Lists) -> (Vec<(usize, usize, usize)>, String) {
    let counts: Vec<_> = lists.in_force().map(|list| (admitted_of(status, list), list.len(), majority(list))).collect();
    let texts = counts.iter().map(|(have, all, need)| format!("{have} of {all} members may vote, {need} are needed"));
    let text = texts.collect::<Vec<_>>().join("; of the members before the change ");
    (counts, text)
}

fn available(status: &RedisQuorumStatus, lists: &Lists, overview: &Overview) -> Condition {
    let (counts, mut message) = counted(status, lists);
    let holds = counts.iter().all(|(have, _, need)| have >= need);
    let reason = match holds {
        true if counts.iter().all(|(have, all, _)| have == all) => CommonReason::AllAdmitted,
        true => CommonReason::MajorityAdmitted,
        false => CommonReason::MajorityLost,
    };
    if !holds {
        message = format!("{message}: {}", waiting_for(status, |member| lists.counts(&member.name)));
    }
    if holds && let Some(Condition { reason, message, .. }) = overview.disagreement() {
        return Condition::new(QuorumCondition::QuorumAvailable, false, *reason, message.as_str());
    }
    Condition::new(QuorumCondition::QuorumAvailable, holds, reason, message)
}

fn fault_tolerant(status: &RedisQuorumStatus, lists: &Lists) -> Condition {
    let (counts, message) = counted(status, lists);
    let draft =
        |holds: bool, reason, message: String| Condition::new(QuorumCondition::FaultTolerant, holds, reason, message);
    if counts.iter().any(|(_, all, _)| *all == 1) {
        let message = "with one member every loss of it stops all locks: write members: 3".to_owned();
        return draft(false, CommonReason::SingleMember, message);
    }
    if counts.iter().all(|(have, all, _)| have == all) {
        return draft(true, CommonReason::AllAdmitted, message);
    }
    match counts.iter().all(|(have, _, need)| have > need) {
        true => draft(true, CommonReason::MajorityAdmitted, message),
        false => draft(false, CommonReason::MembersMissing, message),
    }
}

fn progressing(status: &RedisQuorumStatus, lists: &Lists, overview: &Overview) -> Condition {
    let draft =
        |holds: bool, reason, message: String| Condition::new(QuorumCondition::Progressing, holds, reason, message);
    let all = |_: &MemberStatus| true;
    let settled = status.members.iter().all(|member| member.state == MemberState::Admitted);
    let waiting = (!settled).then(|| waiting_for(status, all));
    let told = |parts: [Option<&String>; 3]| parts.into_iter().flatten().cloned().collect::<Vec<_>>().join("; ");
    let update = overview.rollout.as_ref().map(|Progress { message, .. }| message);
    if !lists.is_settled() {
        let message = told([overview.change.as_ref(), update, waiting.as_ref()]);
        return draft(true, CommonReason::MembersChanging, message);
    }
    match &overview.rollout {
        Some(Progress { paused: true, .. }) => {
            draft(!settled, CommonReason::RolloutPaused, told([update, waiting.as_ref(), None]))
        }
        Some(_) => draft(true, CommonReason::Updating, told([update, waiting.as_ref(), None])),
        None if !settled => draft(true, waiting_reason(status, all), waiting_for(status, all)),
        None => match &overview.rotation {
            Some(message) => draft(true, CommonReason::RotatingPasswords, message.clone()),
            None => draft(false, CommonReason::Settled, "nothing to do".to_owned()),
        },
    }
}

fn clients_ready(lists: &Lists, overview: &Overview) -> Condition {
    let draft =
        |holds: bool, reason, message: String| Condition::new(QuorumCondition::ClientsReady, holds, reason, message);
    if lists.is_joint() {
        let message =
            "the members change: clients are let in again when every promise of the list before has run out, \
                       with the user and the addresses that are in their Secrets then"
                .to_owned();
        return draft(false, CommonReason::MembersChanging, message);
    }
    if !overview.shut_out.is_empty() {
        return draft(false, CommonReason::ClientMisbehaves, overview.shut_out.join("; "));
    }
    if overview.blocked_clients.is_empty() {
        return draft(true, CommonReason::AsExpected, "every client has its Secret".to_owned());
    }
    draft(false, CommonReason::ClientSecretBlocked, overview.blocked_clients.join("; "))
}

fn waiting_reason(status: &RedisQuorumStatus, is_meant: impl Fn(&MemberStatus) -> bool) -> CommonReason {
    let members = || status.members.iter().filter(|member| is_meant(member));
    let unconfirmed = |member: &MemberStatus| member.reason == Some(FenceReason::PredecessorUnconfirmed);
    if members().any(unconfirmed) {
        CommonReason::PredecessorUnconfirmed
    } else if members().any(|member| member.state == MemberState::Fenced) {
        CommonReason::MembersFenced
    } else {
        CommonReason::MembersStarting
    }
}

fn waiting_for(status: &RedisQuorumStatus, is_meant: impl Fn(&MemberStatus) -> bool) -> String {
    let waits = status.members.iter().filter(|member| is_meant(member)).filter_map(|member| {
        let name = &member.name;
        Some(match (member.state, member.rejoin_at) {
            (MemberState::Admitted, _) => return None,
            _ if member.reason == Some(FenceReason::Leaving) => format!("{name} leaves"),
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
