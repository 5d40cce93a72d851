//! The auth Secret: made once, written back from memory, and replaced by a new one only when no copy of it is left
//! ([`crate::quorum::model::lost_secrets`]).

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;

use super::cluster::Cluster;
use super::error::{Error, LONGEST_BACKOFF};
use super::memory::Applied;
use super::publish;
use crate::api::requests::{is_ours, put};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::build::auth_secret;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::lost_secrets::{Found, SecretsStep, View, decide};
use crate::quorum::model::plan::Plan;
use crate::quorum::model::problems::Problem;
use crate::quorum::session::{QuorumSession, auth_of, records_loss};
use crate::time::Monotonic;

/// The result of a change of the secrets.
pub(super) enum Stored {
    /// The Secret has it.
    Done,
    /// The Secret belongs to another object.
    InTheWay,
}

/// Keeps or makes the quorum's secrets.
///
/// Where they are lost, the status records it, and this reconciliation ends. `missing_since` is the time since which they
/// have been missing, with no copy here.
pub(super) async fn ensure(
    cluster: &Cluster<'_>,
    session: &QuorumSession,
    plan: &Plan,
    applied: &Mutex<Option<Applied>>,
    missing_since: &Mutex<Option<Monotonic>>,
) -> Result<Auth, Error> {
    let (in_use, now) = (session.auth(), cluster.now());
    let fresh = applied.lock().as_ref().is_some_and(|applied| applied.fresh_for(now).is_some());
    if let Some(in_use) = in_use.clone().filter(|_| fresh) {
        return Ok(in_use);
    }
    let stored: Option<Secret> = cluster.get(&plan.namespace, &plan.auth_name()).await?;
    let found = match &stored {
        None => Found::Nothing,
        Some(secret) => auth_of(secret, &plan.uid).map_or(Found::Useless, Found::Secrets),
    };
    let has_members = in_use.is_none() && stored.is_none() && has_members(cluster, session, plan).await?;
    let is_missing = stored.is_none() && in_use.is_none() && records_loss(&session.quorum());
    let now = cluster.now();
    let missing_since = {
        let mut since = missing_since.lock();
        *since = is_missing.then(|| since.unwrap_or(now));
        *since
    };
    let made = match decide(&View { found: &found, in_use: in_use.as_ref(), has_members, missing_since, now }) {
        SecretsStep::Keep(auth) => return Ok(auth),
        SecretsStep::Overwrite(auth) => {
            if let Some(secret) = &stored {
                write_over(cluster, plan, secret, &auth).await?;
            }
            return Ok(auth);
        }
        SecretsStep::WriteBack(auth) => {
            create(cluster, plan, &auth).await?;
            tracing::warn!(quorum = %plan.name, "the auth Secret was gone, written back from memory");
            return Ok(auth);
        }
        SecretsStep::AwaitCopy { until } => {
            return refuse(cluster, session, &gone(plan), until.since(now)).await;
        }
        SecretsStep::AwaitPerson => {
            return refuse(cluster, session, &useless(plan), LONGEST_BACKOFF).await;
        }
        SecretsStep::Adopt(stored) => stored,
        SecretsStep::MakeFirst => create(cluster, plan, &Auth::random()).await?,
        SecretsStep::MakeAnew => {
            let made = create(cluster, plan, &Auth::replacement(cluster.api_now())).await?;
            cluster.publish_event(QuorumEvent::AuthLost { secret: plan.auth_name() }).await;
            made
        }
    };
    session.set_auth(made.clone());
    Ok(made)
}

/// Publishes why nothing can be done without the secrets, and ends this reconciliation.
async fn refuse(
    cluster: &Cluster<'_>,
    session: &QuorumSession,
    problem: &Problem,
    pause: Duration,
) -> Result<Auth, Error> {
    publish::refuse(cluster, &session.quorum(), problem).await?;
    Err(Error::Later(pause))
}

/// Creates the auth Secret.
///
/// It fails with a conflict if another leader was quicker. The next reconciliation reads what that leader made.
async fn create(cluster: &Cluster<'_>, plan: &Plan, auth: &Auth) -> Result<Auth, Error> {
    put(&cluster.api(&plan.namespace), auth_secret(plan, auth), None).await?;
    Ok(auth.clone())
}

/// A Secret that is ours gets its seed back. One that is not ours is not touched: what is in memory suffices until its
/// owner takes it away.
async fn write_over(cluster: &Cluster<'_>, plan: &Plan, found: &Secret, auth: &Auth) -> Result<(), Error> {
    if !is_ours(found, &plan.uid) {
        tracing::warn!(quorum = %plan.name, "the auth Secret does not belong to this RedisQuorum");
        return Ok(());
    }
    let mut secret = auth_secret(plan, auth);
    // It cannot be changed.
    secret.type_.clone_from(&found.type_);
    put(&cluster.api(&plan.namespace), secret, Some(found)).await?;
    Ok(())
}

/// A change of the secrets: to the Secret first, and only over the state that this was decided on. A conflict is another state: the
/// next reconciliation begins with that.
pub(super) async fn store(
    cluster: &Cluster<'_>,
    session: &QuorumSession,
    applied: &Mutex<Option<Applied>>,
    plan: &Plan,
    in_use: &Auth,
    next: Auth,
) -> Result<Stored, Error> {
    let found: Option<Secret> = cluster.get(&plan.namespace, &plan.auth_name()).await?;
    let stored = found.as_ref().and_then(|found| auth_of(found, &plan.uid));
    match found {
        Some(found) if stored.as_ref() == Some(in_use) => {
            write_over(cluster, plan, &found, &next).await?;
            session.set_auth(next);
            Ok(Stored::Done)
        }
        Some(found) if !is_ours(&found, &plan.uid) => Ok(Stored::InTheWay),
        _ => {
            // An earlier write of ours whose outcome was unknown, or another leader's.
            if let Some(stored) = stored.filter(|stored| stored.supersedes(in_use)) {
                session.set_auth(stored);
            }
            *applied.lock() = None;
            Err(Error::Conflict)
        }
    }
}

/// Whether members exist that were started with secrets.
///
/// Then new secrets would only lock the operator out.
async fn has_members(cluster: &Cluster<'_>, session: &QuorumSession, plan: &Plan) -> Result<bool, Error> {
    if session.quorum().status.as_ref().is_some_and(|status| status.membership_epoch.is_some()) {
        return Ok(true);
    }
    let Some(first) = plan.members.first() else { return Ok(false) };
    let found: Option<StatefulSet> = cluster.get(&plan.namespace, &first.name).await?;
    Ok(found.is_some_and(|set| is_ours(&set, &plan.uid)))
}

/// The text of the status while the operator waits for a copy.
fn gone(plan: &Plan) -> Problem {
    Problem::PasswordsGone { secret: plan.auth_name() }
}

/// The problem of a Secret that exists without usable passwords.
fn useless(plan: &Plan) -> Problem {
    Problem::PasswordsUnusable { secret: plan.auth_name() }
}
