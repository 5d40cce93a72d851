//! The auth Secret: made once, written back from memory, and replaced by a new one only when no copy of it is left
//! ([`crate::quorum::model::lost_secrets`]).

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Secret;

use super::cluster::Cluster;
use super::error::{Error, LONGEST_BACKOFF};
use super::memory::AuthWrite;
use super::owned::refused;
use super::publish;
use super::snapshot::Sources;
use crate::api::requests::{is_ours, put};
use crate::quorum::model::auth::Auth;
use crate::quorum::model::build::auth_secret;
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::model::lost_secrets::{Found, Input, SecretsStep, decide};
use crate::quorum::model::plan::Plan;
use crate::quorum::model::problems::Problem;
use crate::quorum::session::{auth_of, records_loss};

/// The result of a change of the secrets.
pub(super) enum Stored {
    /// The Secret has it.
    Done,
    /// The Secret belongs to another object.
    InTheWay,
    /// The API server refused the change, with this text.
    Refused(String),
}

impl Stored {
    /// The refusal of the API server.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => Some(refusal.clone()),
            Self::Done | Self::InTheWay => None,
        }
    }
}

/// Keeps or makes the quorum's secrets.
///
/// Where they are lost, the status records it, and this reconciliation ends. `missing_since` is the time since which they
/// have been missing, with no copy here.
pub(super) async fn ensure(sources: &Sources<'_>, plan: &Plan) -> Result<Auth, Error> {
    let Sources { session, cluster, memory, .. } = sources;
    let (in_use, now) = (session.auth(), cluster.now());
    let fresh = memory.applied.lock().as_ref().is_some_and(|applied| applied.fresh_for(now).is_some());
    if let Some(in_use) = in_use.clone().filter(|_| fresh) {
        return Ok(in_use);
    }
    let stored: Option<Secret> = cluster.get(&plan.namespace, &plan.auth_name()).await?;
    let found = match &stored {
        None => Found::Nothing,
        Some(secret) => auth_of(secret, &plan.uid).map_or(Found::Useless, Found::Secrets),
    };
    let has_members = in_use.is_none() && stored.is_none() && has_members(sources, plan).await?;
    let is_missing = stored.is_none() && in_use.is_none() && records_loss(&session.quorum());
    let now = cluster.now();
    let missing_since = {
        let mut since = memory.auth_missing_since.lock();
        *since = is_missing.then(|| since.unwrap_or(now));
        *since
    };
    let obstacle = |refused: Option<String>| memory.record_auth_refusal(AuthWrite::Keep, refused);
    let made = match decide(&Input { found: &found, in_use: in_use.as_ref(), has_members, missing_since, now }) {
        SecretsStep::Keep(auth) => {
            obstacle(None);
            return Ok(auth);
        }
        SecretsStep::Overwrite(auth) => {
            let written = match &stored {
                Some(secret) => write_over(cluster, plan, secret, &auth).await,
                None => Ok(()),
            };
            obstacle(refusal_of(plan, written)?);
            return Ok(auth);
        }
        SecretsStep::WriteBack(auth) => {
            let refused = refusal_of(plan, create(cluster, plan, &auth).await)?;
            if refused.is_none() {
                tracing::warn!(quorum = %plan.name, "the auth Secret was gone, written back from memory");
            }
            obstacle(refused);
            return Ok(auth);
        }
        SecretsStep::AwaitCopy { until } => {
            return refuse(sources, &Problem::PasswordsGone { secret: plan.auth_name() }, until.since(now)).await;
        }
        SecretsStep::AwaitPerson => {
            return refuse(sources, &Problem::PasswordsUnusable { secret: plan.auth_name() }, LONGEST_BACKOFF).await;
        }
        SecretsStep::Adopt(stored) => stored,
        SecretsStep::MakeFirst => make(sources, plan, Auth::random()).await?,
        SecretsStep::MakeAnew => {
            let made = make(sources, plan, Auth::replacement(cluster.api_now())).await?;
            cluster.publish_event(QuorumEvent::AuthLost { secret: plan.auth_name() }).await;
            made
        }
    };
    session.set_auth(made.clone());
    Ok(made)
}

/// Publishes why nothing can be done without the secrets, and ends this reconciliation.
async fn refuse(sources: &Sources<'_>, problem: &Problem, pause: Duration) -> Result<Auth, Error> {
    publish::refuse(sources.cluster, &sources.session.quorum(), problem).await?;
    Err(Error::Later(pause))
}

/// Creates the auth Secret of a quorum without passwords. A refusal is published, and ends this reconciliation.
async fn make(sources: &Sources<'_>, plan: &Plan, auth: Auth) -> Result<Auth, Error> {
    match refusal_of(plan, create(sources.cluster, plan, &auth).await)? {
        Some(objects) => refuse(sources, &Problem::InTheWay { objects }, LONGEST_BACKOFF).await,
        None => Ok(auth),
    }
}

/// Creates the auth Secret.
///
/// It fails with a conflict if another leader was quicker. The next reconciliation reads what that leader made.
async fn create(cluster: &Cluster<'_>, plan: &Plan, auth: &Auth) -> Result<(), Error> {
    put(&cluster.api(&plan.namespace), auth_secret(plan, auth), None).await?;
    Ok(())
}

/// The refusal of the API server to write the auth Secret. Other errors end this reconciliation.
fn refusal_of(plan: &Plan, written: Result<(), Error>) -> Result<Option<String>, Error> {
    match written {
        Ok(()) => Ok(None),
        Err(Error::Request(error)) => refused::<Secret>(&plan.auth_name(), error).map(Some),
        Err(error) => Err(error),
    }
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
pub(super) async fn store(sources: &Sources<'_>, plan: &Plan, in_use: &Auth, next: Auth) -> Result<Stored, Error> {
    let Sources { session, cluster, memory, .. } = sources;
    let found: Option<Secret> = cluster.get(&plan.namespace, &plan.auth_name()).await?;
    let stored = found.as_ref().and_then(|found| auth_of(found, &plan.uid));
    match found {
        Some(found) if stored.as_ref() == Some(in_use) => {
            if let Some(refused) = refusal_of(plan, write_over(cluster, plan, &found, &next).await)? {
                return Ok(Stored::Refused(refused));
            }
            session.set_auth(next);
            Ok(Stored::Done)
        }
        Some(found) if !is_ours(&found, &plan.uid) => Ok(Stored::InTheWay),
        _ => {
            // An earlier write of ours whose outcome was unknown, or another leader's.
            if let Some(stored) = stored.filter(|stored| stored.supersedes(in_use)) {
                session.set_auth(stored);
            }
            *memory.applied.lock() = None;
            Err(Error::Conflict)
        }
    }
}

/// Whether members exist that were started with secrets.
///
/// Then new secrets would only lock the operator out.
async fn has_members(sources: &Sources<'_>, plan: &Plan) -> Result<bool, Error> {
    if sources.session.quorum().status.as_ref().is_some_and(|status| status.membership_epoch.is_some()) {
        return Ok(true);
    }
    let Some(first) = plan.members.first() else { return Ok(false) };
    let found: Option<StatefulSet> = sources.cluster.get(&plan.namespace, &first.name).await?;
    Ok(found.is_some_and(|set| is_ours(&set, &plan.uid)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::api::RedisQuorum;
    use crate::api::requests::RequestError;
    use crate::quorum::model::plan::validate;

    #[test]
    fn a_refused_secret_is_named_and_other_errors_end_the_visit() {
        let mut quorum = RedisQuorum::new("q", serde_json::from_value(json!({})).unwrap());
        (quorum.metadata.namespace, quorum.metadata.uid) = (Some("ns".into()), Some("u".into()));
        let plan = validate(&quorum).unwrap();
        let quota =
            "exceeded quota: secrets, requested: count/secrets=1, used: count/secrets=3, limited: count/secrets=3";
        let failed = |code: u16, reason: &str| {
            let status: Status =
                serde_json::from_value(json!({"status": "Failure", "message": quota, "code": code, "reason": reason}))
                    .unwrap();
            Err(Error::from(RequestError::from(kube::Error::Api(Box::new(status)))))
        };
        let refused = refusal_of(&plan, failed(403, "Forbidden")).unwrap().unwrap();
        assert!(refused.contains(&plan.auth_name()) && refused.contains(quota), "{refused}");
        assert!(matches!(refusal_of(&plan, failed(409, "Conflict")), Err(Error::Conflict)));
        assert!(
            refusal_of(&plan, failed(500, "InternalError")).is_err() && refusal_of(&plan, Ok(())).unwrap().is_none()
        );
        assert_eq!((Stored::Refused(refused.clone()).refusal(), Stored::Done.refusal()), (Some(refused), None));
    }
}
