//! Decisions from one observation: the next step of an update, of a change of the members and of a rotation of
//! passwords, and the input of the conditions.

use kube::ResourceExt;

use super::locks;
use super::memory::Applied;
use super::observe::Observed;
use crate::api::conditions::beginning;
use crate::api::{PasswordStage, ROLLOUT_ANNOTATION, ROTATE_PASSWORDS_ANNOTATION};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::member::MemberSummary;
use crate::quorum::model::membership::{self, ChangeStep};
use crate::quorum::model::progress::Until;
use crate::quorum::model::rollout::{self, RolloutStep};
use crate::quorum::model::rotation::{self, RotationStep};
use crate::quorum::model::status::{self, Condition, Overview};
use crate::quorum::model::tls::{Served, report};
use crate::quorum::model::{effective, lost_secrets};
use crate::quorum::session::records_loss;
use crate::redlock::MemberError;

/// The number of characters of an annotation that distinguish requests.
const LONGEST_REQUEST: usize = 253;

pub(super) fn rollout(observed: &Observed<'_>) -> RolloutStep {
    let paused = observed.quorum.annotations().get(ROLLOUT_ANNOTATION).is_some_and(|text| text == "paused");
    // A rollout waits for a joint change. A change that is not joint yet waits for the rollout.
    let changing = observed.plan.lists.is_joint();
    let incomplete = incomplete_locks(observed);
    rollout::decide(&rollout::Input { members: &observed.members, paused, changing, incomplete_locks: &incomplete })
}

fn incomplete_locks(observed: &Observed<'_>) -> Vec<String> {
    let (members, dead) = (observed.members.len(), observed.members.iter().filter(|member| member.dead).count());
    locks::incomplete(&observed.locks, members, dead)
}

/// Decides the next step of a change of the members.
///
/// If the lists have changed since the plan was made, the next reconciliation decides.
pub(super) fn change(observed: &Observed<'_>) -> ChangeStep {
    let lists = &observed.plan.lists;
    if lists.is_settled() || !observed.is_of_plan() {
        return ChangeStep::Nothing;
    }
    let pauses = !observed.plan.external.is_empty();
    let is_kept = |member: &&MemberSummary| {
        member.external && lists.voters.contains(&member.name) && lists.wanted.contains(&member.name)
    };
    let left_behind: Vec<_> = match lists.meet_both_lists(observed.members.iter().filter(is_kept).count()) {
        true => Vec::new(),
        false => observed.agreement.others(observed.boottime).into_iter().map(|other| other.name).collect(),
    };
    membership::decide(&membership::Input {
        now: observed.now,
        lists,
        members: &observed.members,
        // A pause of the votes ends all holds.
        incomplete_locks: &if pauses { Vec::new() } else { incomplete_locks(observed) },
        busy: busy(observed).as_ref(),
        left_behind: &left_behind,
        former_closed_since: observed.sources.session.timers.former_closed_since(lists.epoch),
        rejoin_delay: effective::rejoin_delay_of(&observed.quorum),
    })
}

/// Another activity in progress, which a change must await.
///
/// Passwords that wait for `finish` are none, because every member has them and they can wait for a long time.
fn busy(observed: &Observed<'_>) -> Option<Until> {
    if !matches!(rollout(observed), RolloutStep::Nothing | RolloutStep::Paused(_)) {
        return Some(Until::UpdateEnds);
    }
    let rotation = observed.stored_auth.as_ref().and_then(Auth::rotation);
    rotation.filter(|rotation| rotation.stage != PasswordStage::Switched).map(|_| Until::RotationEnds)
}

/// Decides the next step of a rotation.
///
/// `files_written`: a member that starts now reads the passwords of this stage.
pub(super) fn rotation(observed: &Observed<'_>, files_written: bool) -> RotationStep {
    let wanted = observed.quorum.annotations().get(ROTATE_PASSWORDS_ANNOTATION);
    let wanted = wanted.map(|text| beginning(text, LONGEST_REQUEST));
    let (rotation, rotated) = (observed.auth.rotation(), observed.auth.rotated());
    let (read_by_replicas, members) = (observed.readers_wait.is_none(), observed.own());
    rotation::decide(&rotation::Input { wanted, rotation, rotated, files_written, read_by_replicas, members })
}

/// The input of the conditions.
///
/// Before the first apply of this term, the state of updates and rotations is unknown.
pub(super) fn overview(observed: &Observed<'_>) -> Overview {
    let (applied, memory) = (observed.sources.memory.applied.lock().clone(), observed.sources.memory);
    let rotation = |applied: &Applied| {
        let step = rotation(observed, applied.config_kept);
        Some(rotation::progress(observed.auth.rotation()?, observed.own(), &step))
    };
    let is_recorded = records_loss(&observed.quorum);
    let rollout = rollout::progress(&rollout(observed), observed.own().len(), &memory.undeleted.lock());
    Overview {
        change: membership::describe(&observed.plan.lists, &change(observed), &memory.change_failures.lock()),
        rotation: applied.as_ref().and_then(rotation),
        loss: lost_secrets::loss(observed.auth, is_recorded, observed.own(), rollout.as_ref()),
        tls: tls(observed),
        agreement: Some(status::quorum_agrees(&observed.agreement, observed.plan, observed.boottime)),
        rollout: rollout.filter(|_| applied.is_some()),
        obstacle: applied.as_ref().and_then(|applied| applied.obstacle.clone()),
        blocked_clients: applied.map(|applied| applied.blocked_clients).unwrap_or_default(),
    }
}

/// The condition of TLS. `None` without TLS.
fn tls(observed: &Observed<'_>) -> Option<Condition> {
    let served = observed.own().iter().filter_map(|member| {
        let (_, state) = observed.link(&member.name)?;
        let failure = match &state.failure {
            Some(MemberError::Untrusted(text)) => Some(text.clone()),
            _ => None,
        };
        let tls = observed.uses_tls(&member.name);
        Some(Served { member: member.name.clone(), tls, certificate: state.certificate(), failure })
    });
    let read = observed.sources.memory.tls.lock();
    Some(report(read.as_ref()?.certificate.as_ref()?, &served.collect::<Vec<_>>()).condition())
}
