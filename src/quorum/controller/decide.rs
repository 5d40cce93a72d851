//! What follows from one observation: the next step of an update, of a change of the members and of a rotation of passwords, and what
//! the conditions say of them.

use super::locks;
use super::memory::Applied;
use super::observe::Observed;
use crate::api::{ROLLOUT_ANNOTATION, ROTATE_PASSWORDS_ANNOTATION};
use crate::quorum::model::auth::{Auth, Stage};
use crate::quorum::model::condition::Condition;
use crate::quorum::model::lost_secrets;
use crate::quorum::model::member::MemberView;
use crate::quorum::model::membership::{self, Busy, ChangeStep};
use crate::quorum::model::rollout::{self, Progress, RolloutStep};
use crate::quorum::model::rotation::{self, RotationStep};
use crate::quorum::model::status::{self, Overview};
use crate::quorum::model::tls::{Served, report};
use crate::quorum::session::says_lost;
use crate::redlock::MemberError;

pub(super) fn rollout(observed: &Observed<'_>) -> RolloutStep {
    rollout::decide(&rollout::View {
        members: &observed.views,
        paused: observed.quorum.metadata.annotations.as_ref().and_then(|all| all.get(ROLLOUT_ANNOTATION))
            == Some(&"paused".to_owned()),
        // What has only begun to learn waits for the update, and what is joint the update waits for.
        changing: observed.plan.lists.is_joint(),
        incomplete_locks: &incomplete_locks(observed),
    })
}

/// How far an update is, in words.
fn progress(observed: &Observed<'_>) -> Option<Progress> {
    rollout::progress(&rollout(observed), observed.own_views())
}

fn incomplete_locks(observed: &Observed<'_>) -> Vec<String> {
    locks::incomplete(&observed.locks, observed.views.len(), observed.views.iter().filter(|view| view.dead).count())
}

/// One with other lists than the plan's is for the next reconciliation.
pub(super) fn change(observed: &Observed<'_>) -> ChangeStep {
    let lists = &observed.plan.lists;
    if lists.is_settled() || !observed.is_of_plan() {
        return ChangeStep::Nothing;
    }
    let pauses = !observed.plan.external.is_empty();
    let is_kept =
        |view: &&MemberView| view.external && lists.voters.contains(&view.name) && lists.wanted.contains(&view.name);
    let left_behind = match observed.views.iter().find(is_kept) {
        Some(_) => Vec::new(),
        None => observed.agreement.others(observed.boottime).into_iter().map(|other| other.name).collect(),
    };
    membership::decide(&membership::View {
        now: observed.now,
        lists,
        members: &observed.views,
        // With a pause they end.
        incomplete_locks: &if pauses { Vec::new() } else { incomplete_locks(observed) },
        busy: busy(observed),
        left_behind: &left_behind,
        former_closed_since: observed.former_closed_since,
        rejoin_delay: observed.rejoin_delay,
    })
}

/// What else is under way. Passwords that wait for a person's word may wait for long: every member has them.
fn busy(observed: &Observed<'_>) -> Option<Busy> {
    if !matches!(rollout(observed), RolloutStep::Nothing | RolloutStep::Paused { .. }) {
        return Some(Busy::Update);
    }
    let rotation = observed.stored_auth.as_ref().and_then(Auth::rotation);
    rotation.filter(|rotation| rotation.stage != Stage::Switched).map(|_| Busy::Passwords)
}

/// `files_written`: members that start now find the passwords of this stage.
pub(super) fn rotation(observed: &Observed<'_>, files_written: bool) -> RotationStep {
    let wanted = observed.quorum.metadata.annotations.as_ref().and_then(|all| all.get(ROTATE_PASSWORDS_ANNOTATION));
    rotation::decide(&rotation::View {
        wanted: wanted.map(|text| cut(text)).as_deref(),
        rotation: observed.auth.rotation(),
        rotated: observed.auth.rotated(),
        files_written,
        settled: observed.passwords_settle.is_none(),
        members: observed.own_views(),
    })
}

/// Annotations may be long; this much tells one request from another.
fn cut(text: &str) -> String {
    text.chars().take(253).collect()
}

/// What the conditions are made from. As long as nothing has been applied in this term nothing is known of updates and rotations.
pub(super) fn overview(observed: &Observed<'_>) -> Overview {
    let applied = observed.applied.as_ref();
    let rotation = |Applied { config_kept, .. }: &Applied| {
        let step = rotation(observed, *config_kept);
        Some(rotation::progress(observed.auth.rotation()?, observed.own_views(), &step))
    };
    let (said, rollout) = (says_lost(&observed.quorum), progress(observed));
    Overview {
        change: membership::describe(&observed.plan.lists, &change(observed), &observed.change_failures),
        blocked_clients: applied.map(|applied| applied.blocked_clients.clone()).unwrap_or_default(),
        rotation: applied.and_then(rotation),
        loss: lost_secrets::loss(observed.auth, said, observed.own_views(), rollout.as_ref()),
        tls: tls(observed),
        obstacle: applied.and_then(|applied| applied.obstacle.clone()),
        agreement: Some(status::quorum_agrees(&observed.agreement, observed.plan, observed.boottime)),
        rollout: rollout.filter(|_| applied.is_some()),
    }
}

/// What the condition says; `None` without TLS.
fn tls(observed: &Observed<'_>) -> Option<Condition> {
    let served = observed.own().iter().filter_map(|member| {
        let (_, view) = member.seen.as_ref()?;
        let failure = match &view.failure {
            Some(MemberError::Untrusted(text)) => Some(text.clone()),
            _ => None,
        };
        let (member, tls) = (member.plan.name.clone(), member.speaks_tls());
        Some(Served { member, tls, certificate: view.certificate, failure })
    });
    Some(report(observed.certificate.as_ref()?, &served.collect::<Vec<_>>()).condition())
}
