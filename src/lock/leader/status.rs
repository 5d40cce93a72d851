//! The status of a lock that needs nothing else, and the annotations that asked for nothing that can be done.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::due_renewals::{Publications, is_mere_renewal};
use super::store::Store;
use crate::api::conditions::{LockCondition, find_condition};
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, DistributedLockStatus};
use crate::lock::model::decide::Rest;
use crate::lock::model::events::LockEvent;
use crate::lock::model::readiness::is_leaderless;

/// Writes the status if it says something else. Nothing is written while nothing changes.
pub(super) async fn publish(
    store: &Store,
    lock: &Arc<DistributedLock>,
    status: &DistributedLockStatus,
) -> Result<Arc<DistributedLock>, RequestError> {
    let goes = lock.metadata.deletion_timestamp.is_some() && lock.finalizers().is_empty();
    if goes || lock.status.as_ref() == Some(status) {
        return Ok(lock.clone());
    }
    let written = store.replace_status(lock, status.clone()).await?;
    if let Some(refusal) = new_refusal(lock, &written) {
        let (accepted, message) = (refusal.reason.clone(), refusal.message.clone());
        store.event(&written, LockEvent::Refused { accepted, message });
    }
    let conditions = |lock: &'_ DistributedLock| lock.status.as_ref().map(|status| status.conditions.clone());
    let is_new = is_leaderless(&conditions(lock).unwrap_or_default()).is_none();
    if let Some(ready) = is_leaderless(&conditions(&written).unwrap_or_default()).filter(|_| is_new) {
        store.event(&written, LockEvent::NoLeader { why: ready.message.clone() });
    }
    Ok(written)
}

/// The same, but a mere renewal is published beside the reconciles.
pub(super) async fn publish_or_ask(
    store: &Store,
    publications: &Publications,
    lock: &Arc<DistributedLock>,
    rest: &Rest,
) -> Result<Arc<DistributedLock>, RequestError> {
    match &rest.renewal {
        Some(renewal) if is_mere_renewal(lock, &rest.status) => {
            publications.ask(lock, renewal.runs_out);
            Ok(lock.clone())
        }
        _ => publish(store, lock, &rest.status).await,
    }
}

/// Takes off what asked for nothing that can be done, and says so of a release.
pub(super) async fn clear_requests(
    store: &Store,
    lock: &DistributedLock,
    names: &[&str],
) -> Result<Arc<DistributedLock>, RequestError> {
    let cleared = store.clear_annotations(lock, names).await?;
    if let Some(token) = lock.status.as_ref().and_then(|status| status.fencing_token) {
        store.event(&cleared, LockEvent::ReleaseRefused { token });
    }
    Ok(cleared)
}

/// The condition that says why the spec cannot be served, if that was not said before.
fn new_refusal<'a>(before: &DistributedLock, after: &'a DistributedLock) -> Option<&'a Condition> {
    let refusal = |lock: &'a DistributedLock| {
        let conditions = &lock.status.as_ref()?.conditions;
        find_condition(conditions, LockCondition::Accepted).filter(|accepted| accepted.status == "False")
    };
    let said = before.status.as_ref().and_then(|status| find_condition(&status.conditions, LockCondition::Accepted));
    let now = refusal(after)?;
    let known = said.is_some_and(|said| said.status == now.status && said.reason == now.reason);
    (!known).then_some(now)
}
