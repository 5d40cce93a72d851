//! Publishes the status of a lock, and corrects the metadata of a held one.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::lock_store::{LockStore, Newer};
use super::progress::Error;
use crate::api::conditions::{AcceptedReason, KEY_NEVER_EXPIRES, LockCondition};
use crate::api::{DistributedLock, DistributedLockStatus};
use crate::lock::model::decide::Correction;
use crate::lock::model::events::LockEvent;
use crate::lock::model::readiness::overdue;
use crate::lock::model::refusal::Refusal;

/// Writes the status if it differs.
pub(super) async fn publish(store: &LockStore, lock: &Arc<DistributedLock>, status: &DistributedLockStatus) -> Newer {
    let goes = lock.metadata.deletion_timestamp.is_some() && lock.finalizers().is_empty();
    if goes || lock.status.as_ref() == Some(status) {
        return Ok(lock.clone());
    }
    let written = store.replace_status(lock, status.clone()).await?;
    if let Some(refusal) = new_fault(lock, &written) {
        let (accepted, message) = (refusal.reason.clone(), refusal.message.clone());
        store.event(&written, LockEvent::Refused { accepted, message });
    }
    let is_new = overdue(lock.conditions()).is_none();
    if let Some(ready) = overdue(written.conditions()).filter(|_| is_new) {
        let why = ready.message.clone();
        let event = match ready.reason.as_str() {
            KEY_NEVER_EXPIRES => LockEvent::KeyNeverExpires { why },
            _ if lock.spec.election.is_some() => LockEvent::NoLeader { why },
            _ => LockEvent::NoHolder { why },
        };
        store.event(&written, event);
    }
    Ok(written)
}

/// Corrects the metadata of a held lock.
///
/// It publishes an Event for a release with the token of another hold.
pub(super) async fn correct_metadata(store: &LockStore, lock: &DistributedLock) -> Result<(), Error> {
    let Some(correction) = Correction::of(lock) else { return Ok(()) };
    let stale: Vec<_> = correction.stale.into_iter().collect();
    let corrected = store.prepare(lock, &stale).await.map_err(|error| {
        Error::of_write(error, |cause| Refusal::MetadataNotWritten { fields: correction.fields, cause })
    })?;
    if let Some(token) = lock.fencing_token().filter(|_| correction.stale.is_some()) {
        store.event(&corrected, LockEvent::ReleaseRefused { token });
    }
    Ok(())
}

/// The condition that refuses the spec or has a fault, if its reason is new.
fn new_fault<'a>(before: &DistributedLock, after: &'a DistributedLock) -> Option<&'a Condition> {
    let earlier = before.condition(LockCondition::Accepted);
    let now = after.condition(LockCondition::Accepted).filter(|now| now.reason != AcceptedReason::Accepted.as_str())?;
    let reported = earlier.is_some_and(|earlier| earlier.status == now.status && earlier.reason == now.reason);
    (!reported).then_some(now)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::{condition, lock, merged};

    #[test]
    fn a_fault_of_a_served_lock_is_reported_when_its_reason_is_new() {
        let lock = |status: &str, reason: &str, message: &str| {
            let accepted = merged(condition("Accepted", status, reason), json!({"message": message}));
            lock(json!({}), json!({"transitions": 1, "conditions": [accepted]}))
        };
        let served = lock("True", "Accepted", "");
        let refused = lock("True", "LabelRefused", "request 1");
        assert_eq!(new_fault(&served, &refused).map(|fault| fault.message.as_str()), Some("request 1"));
        assert_eq!(new_fault(&refused, &lock("True", "LabelRefused", "request 2")), None);
        assert_eq!(new_fault(&refused, &served), None);
        assert!(new_fault(&served, &lock("False", "TTLTooLong", "")).is_some());
    }
}
