//! Creates the auth Secret once, and restores it from memory. The operator makes new secrets only if no copy of the old ones is left
//! ([`crate::quorum::model::lost_secrets`]).

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;

use super::error::{Error, LONGEST_BACKOFF, Result};
use super::memory::AuthWrite;
use super::snapshot::Sources;
use super::{owned, publish};
use crate::api::requests::is_ours;
use crate::quorum::model::auth::Auth;
use crate::quorum::model::build::auth_secret;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::lost_secrets::{Found, Input, SecretsStep, decide};
use crate::quorum::model::plan::{Plan, auth_name};
use crate::quorum::model::problems::Problem;
use crate::quorum::session::{auth_of, records_loss};

/// Keeps or makes the quorum's secrets.
///
/// If they are lost, the status records it, and this reconciliation ends. `missing_since` is the time since which they
/// have been missing without a copy at this leader.
pub(super) async fn ensure(sources: &Sources<'_>, plan: &Plan) -> Result<Auth> {
    let Sources { session, cluster, memory, .. } = sources;
    let (in_use, now) = (session.auth(), cluster.now());
    let fresh = memory.applied.lock().as_ref().is_some_and(|applied| applied.fresh_until(now).is_some());
    if let Some(in_use) = in_use.clone().filter(|_| fresh) {
        return Ok(in_use);
    }
    let stored: Option<Secret> = cluster.get(&plan.namespace, &auth_name(&plan.name)).await?;
    let found = match &stored {
        None => Found::Nothing,
        Some(secret) => auth_of(secret, &plan.owner.uid).map_or(Found::Useless, Found::Secrets),
    };
    let has_members = in_use.is_none() && stored.is_none() && has_members(sources, plan).await?;
    let is_missing = stored.is_none() && in_use.is_none() && records_loss(&session.quorum());
    let now = cluster.now();
    let since = *memory.auth_missing_since.lock();
    let missing_since = is_missing.then(|| since.unwrap_or(now));
    *memory.auth_missing_since.lock() = missing_since;
    let (mut refused, secret) = (None, auth_name(&plan.name));
    let auth = match decide(&Input { found: &found, in_use: in_use.as_ref(), has_members, missing_since, now }) {
        SecretsStep::Use(auth) => auth,
        // The passwords in memory suffice until the owner of a foreign Secret deletes it.
        SecretsStep::WriteBack(auth) if stored.as_ref().is_some_and(|found| !is_ours(found, &plan.owner.uid)) => {
            tracing::warn!(quorum = %plan.name, "the auth Secret does not belong to this RedisQuorum");
            auth
        }
        SecretsStep::WriteBack(auth) => {
            refused = owned::write_secret(cluster, plan, auth_secret(plan, &auth), stored.as_ref()).await?;
            if refused.is_none() && stored.is_none() {
                tracing::warn!(quorum = %plan.name, "the auth Secret was gone, written back from memory");
            }
            auth
        }
        SecretsStep::AwaitCopy(until) => refuse(sources, &Problem::PasswordsGone { secret }, until.since(now)).await?,
        SecretsStep::AwaitPerson => refuse(sources, &Problem::PasswordsUnusable { secret }, LONGEST_BACKOFF).await?,
        SecretsStep::MakeFirst => make(sources, plan, Auth::random()).await?,
        SecretsStep::Recreate => {
            let made = make(sources, plan, Auth::replacement(cluster.api_now())).await?;
            cluster.publish_event(QuorumEvent::AuthLost { secret }).await;
            made
        }
    };
    memory.record_auth_refusal(AuthWrite::Keep, refused);
    if in_use.as_ref() != Some(&auth) {
        session.set_auth(auth.clone());
    }
    Ok(auth)
}

/// Publishes why no step is possible without the secrets, and ends this reconciliation.
async fn refuse(sources: &Sources<'_>, problem: &Problem, pause: Duration) -> Result<Auth> {
    publish::refuse(sources.cluster, &sources.session.quorum(), problem).await?;
    Err(Error::Later(pause))
}

/// Creates the auth Secret of a quorum without passwords. A refusal is published, and ends this reconciliation.
async fn make(sources: &Sources<'_>, plan: &Plan, auth: Auth) -> Result<Auth> {
    match owned::write_secret(sources.cluster, plan, auth_secret(plan, &auth), None).await? {
        Some(objects) => refuse(sources, &Problem::InTheWay { objects }, LONGEST_BACKOFF).await,
        None => Ok(auth),
    }
}

/// Writes a change of the secrets over the state that it was decided on, and returns the obstacle.
///
/// After a conflict the next reconciliation begins with the new state.
pub(super) async fn store(sources: &Sources<'_>, plan: &Plan, in_use: &Auth, next: Auth) -> Result<Option<String>> {
    let Sources { session, cluster, memory, .. } = sources;
    let found: Option<Secret> = cluster.get(&plan.namespace, &auth_name(&plan.name)).await?;
    let stored = found.as_ref().and_then(|found| auth_of(found, &plan.owner.uid));
    // A Secret that is gone is written back with the change.
    if found.is_none() || stored.as_ref() == Some(in_use) {
        let obstacle = owned::write_secret(cluster, plan, auth_secret(plan, &next), found.as_ref()).await?;
        if obstacle.is_none() {
            session.set_auth(next);
        }
        return Ok(obstacle);
    }
    if let Some(foreign) = found.filter(|found| !is_ours(found, &plan.owner.uid)) {
        return Ok(owned::refusal(&foreign, plan, false));
    }
    // This is an earlier write of ours with an unknown outcome, or a write of another leader.
    if let Some(stored) = stored.filter(|stored| stored.supersedes(in_use)) {
        session.set_auth(stored);
    }
    *memory.applied.lock() = None;
    Err(Error::CONFLICT)
}

/// Whether members exist that were started with secrets.
///
/// Then new secrets would only exclude the operator from the members.
async fn has_members(sources: &Sources<'_>, plan: &Plan) -> Result<bool> {
    if sources.session.quorum().status.as_ref().is_some_and(|status| status.membership_epoch.is_some()) {
        return Ok(true);
    }
    let Some(first) = plan.members.first() else { return Ok(false) };
    let found = sources.cluster.get::<StatefulSet>(&plan.namespace, &first.name).await?;
    Ok(found.is_some_and(|set| is_ours(&set, &plan.owner.uid)))
}
