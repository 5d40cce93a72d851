//! Carries out the steps of a password rotation that [`crate::quorum::model::rotation`] decides. Its state is in the auth Secret, so any
//! leader can continue it.

use std::time::Duration;

use super::error::{LONGEST_BACKOFF, RESYNC, Result};
use super::memory::AuthWrite;
use super::observe::{Observed, Observer};
use super::{auth, decide};
use crate::api::PasswordStage;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::rotation::RotationStep;
use crate::quorum::session::ActError;
use crate::redis_member::acl::OPERATOR_USER;

/// The pause before the next attempt at a failed member.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Takes steps until the rotation must wait, and returns the pause until the next check.
pub(super) async fn rotate(observer: &Observer<'_>, files_written: bool) -> Result<Duration> {
    let (auth, plan) = (observer.auth, observer.plan);
    // A joint change and a rotation exclude each other. A change becomes joint only after the end of a rotation stage in progress.
    if plan.lists.is_joint() {
        return Ok(RESYNC);
    }
    for _ in 0..=plan.members.len() {
        let observed = observer.observe();
        let (next, event) = match decide::rotation(&observed, files_written) {
            RotationStep::Nothing | RotationStep::Wait(_) | RotationStep::AwaitFinish => {
                observer.sources.memory.record_auth_refusal(AuthWrite::Rotate, None);
                return Ok(auth.rotation().and(observed.readers_wait).unwrap_or(RESYNC));
            }
            RotationStep::Begin(request) => (auth.begin(&request), QuorumEvent::RotationBegins),
            RotationStep::Advance => {
                let next = auth.advance();
                let event = match next.rotation().map(|rotation| rotation.stage) {
                    Some(PasswordStage::Switched) => QuorumEvent::RotationSwitched,
                    Some(_) => QuorumEvent::RotationEnds,
                    None => QuorumEvent::PasswordsRotated,
                };
                (next, event)
            }
            RotationStep::Confirm { name, cut } => {
                let confirmed = confirm(&observed, &name, cut).await;
                if let Err(error) = &confirmed {
                    tracing::info!(member = %name, %error, "passwords not set yet");
                }
                // Each reconciliation cuts the connections of one member. The next one follows when its connections are back.
                if confirmed.is_err() || cut {
                    return Ok(AFTER_FAILURE);
                }
                continue;
            }
        };
        return change(observer, next, event).await;
    }
    Ok(AFTER_FAILURE)
}

async fn confirm(observed: &Observed<'_>, name: &str, cut: bool) -> Result<(), ActError> {
    let auth = observed.auth;
    let (link, state) = observed.link(name).ok_or(ActError::NoAddress)?;
    let last = state.processes.last().ok_or(ActError::OtherProcess)?;
    let operator = auth.accepted(name, OPERATOR_USER);
    // The user of the next epoch can be open already, before a change of the members.
    let mut users = observed.plan.user_rules(auth, name);
    users.push(observed.plan.next_locker(auth, name));
    link.admin_session(&last.run_id).await?.set_passwords(observed.sources.term.epoch, &operator, &users, cut).await?;
    tracing::info!(member = %name, generation = auth.generation(), cut, "passwords set");
    observed.sources.memory.passwords.lock().confirmed.insert(last.run_id.clone(), auth.generation());
    Ok(())
}

/// Writes the Secret, but only over the state on which this was decided.
///
/// Returns the pause before the next step.
async fn change(observer: &Observer<'_>, next: Auth, event: QuorumEvent) -> Result<Duration> {
    let obstacle = auth::store(&observer.sources, observer.plan, observer.auth, next).await?;
    let is_stored = obstacle.is_none();
    let is_new = observer.sources.memory.record_auth_refusal(AuthWrite::Rotate, obstacle);
    if is_stored {
        observer.sources.cluster.publish_event(event).await;
        return Ok(Duration::ZERO);
    }
    // The next reconciliation publishes a new obstacle.
    Ok(if is_new { AFTER_FAILURE } else { LONGEST_BACKOFF })
}
