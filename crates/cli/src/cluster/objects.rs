//! The fields of locks and quorums that the commands use.
//!
//! A newer operator can write values that this version cannot read. Such a value must not hide its object, or the other objects of a list.
//! Therefore locks are read leniently, and states of members are texts.

mod quorum;

pub use quorum::{QuorumMember, QuorumObject, QuorumObjectSpec, QuorumObjectStatus};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use redlock_api::conditions::{AcceptedReason, HeldReason, LockCondition, find_condition, is_true};
use redlock_api::lenient::read_object;
use redlock_api::{DistributedLock, DistributedLockSpec, DistributedLockStatus, MilliTime, Validity};

/// A DistributedLock, with the fields that this version can read.
#[derive(Clone, Debug, Default, Resource)]
#[resource(inherit = DistributedLock)]
pub struct LockObject {
    /// The metadata without `managedFields`.
    pub metadata: ObjectMeta,
    /// The specification.
    pub spec: DistributedLockSpec,
    /// The status that the operator writes.
    pub status: DistributedLockStatus,
}

/// An unreadable field is absent, so that one object never hides another object of a list.
impl<'de> Deserialize<'de> for LockObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = read_object(Value::deserialize(deserializer)?);
        let DistributedLock { metadata, spec, status } = read.unwrap_or_else(|raw| DistributedLock::lenient(&raw));
        Ok(Self { metadata, spec, status: status.unwrap_or_default() })
    }
}

impl LockObject {
    /// The key of the lock.
    #[must_use]
    pub fn key(&self) -> String {
        self.spec.key.clone().unwrap_or_else(|| self.name_any())
    }

    /// `<namespace>/<key>`.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("{}/{}", self.namespace().unwrap_or_default(), self.key())
    }

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: LockCondition) -> Option<&Condition> {
        find_condition(&self.status.conditions, type_)
    }

    /// The condition of a fault with which the operator still serves the lock.
    ///
    /// Either Accepted is true with another reason than `Accepted`, or Ready is false because holders repeatedly fail their check.
    #[must_use]
    pub fn fault(&self) -> Option<&Condition> {
        let accepted = self.condition(LockCondition::Accepted)?;
        let ready = self.condition(LockCondition::Ready);
        let unhealthy = |ready: &&Condition| ready.status == "False" && ready.reason == "HolderUnhealthy";
        match accepted.status == "True" && accepted.reason != AcceptedReason::Accepted.as_str() {
            true => Some(accepted),
            false => ready.filter(unhealthy),
        }
    }

    /// Whether the lock has a holder. This is true while its hold ends.
    #[must_use]
    pub fn is_held(&self) -> bool {
        is_true(&self.status.conditions, LockCondition::Held)
    }

    /// Whether the claim ended and never queues again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_true(&self.status.conditions, LockCondition::Finished)
    }

    /// The condition that explains the state: Accepted if the lock is refused, else Held.
    #[must_use]
    pub fn decisive(&self) -> Option<&Condition> {
        let held = self.condition(LockCondition::Held);
        let is_refused = held.is_some_and(|held| held.reason == HeldReason::NotAccepted.as_str());
        self.condition(LockCondition::Accepted).filter(|_| is_refused).or(held)
    }

    /// The reason of the decisive condition, as in the column STATUS of kubectl. A lock without a status is `Pending`.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.decisive().map_or(HeldReason::Pending.as_str(), |condition| condition.reason.as_str())
    }

    /// The holder, or the candidate that the claim names.
    #[must_use]
    pub fn who(&self) -> String {
        if let Some(holder) = &self.status.holder {
            return holder.identity.clone();
        }
        let claim = self.spec.claim.clone().unwrap_or_default();
        claim.identity.or(claim.pod_name).or(claim.job_name).unwrap_or_default()
    }

    /// `Claim` or `Election`.
    #[must_use]
    pub const fn kind_of_lock(&self) -> &'static str {
        if self.spec.election.is_some() { "Election" } else { "Claim" }
    }

    /// The end of the published validity. With `validity: Transitions` there is none.
    #[must_use]
    pub fn valid_until(&self) -> Option<MilliTime> {
        let is_published = self.spec.validity != Validity::Transitions;
        self.status.valid_until.filter(|_| is_published && self.is_held())
    }

    /// Time of the creation.
    #[must_use]
    pub fn created(&self) -> Option<MilliTime> {
        self.metadata.creation_timestamp.as_ref().map(|time| MilliTime::from(time.0))
    }

    /// `<namespace>/<name>` of the quorum in the hold, or else in the specification.
    ///
    /// `None`: the lock uses the default quorum.
    #[must_use]
    pub fn quorum(&self) -> Option<(String, String)> {
        let of_hold = self.status.holder.as_ref().and_then(|holder| holder.quorum.as_ref());
        if let Some(quorum) = of_hold {
            return Some((quorum.namespace.clone(), quorum.name.clone()));
        }
        let named = self.spec.quorum_ref.as_ref()?;
        let namespace = named.namespace.clone().or_else(|| self.namespace()).unwrap_or_default();
        Some((namespace, named.name.clone()))
    }
}

#[cfg(test)]
pub(crate) mod fake;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_a_newer_operator_can_be_read() {
        let lock = fake::lock(
            "a",
            "{spec: {validity: Sometimes, new: 1, election: {selector: {}, preference: Tallest}},
              status: {new: 1, conditions: [{type: Held, status: 'False', reason: Dreaming, message: '',
                lastTransitionTime: 2026-01-01T11:00:00Z}]}}",
        );
        assert_eq!((lock.reason(), lock.kind_of_lock(), lock.key().as_str()), ("Dreaming", "Election", "a"));
        assert_eq!(lock.metadata.managed_fields, None);
        let mut quorum = fake::quorum(["Admitted", "Admitted", "Dreaming"]);
        assert_eq!((quorum.voting(), quorum.is_default()), (2, true));
        quorum.status.voters = vec!["main-0".into()];
        assert!(quorum.voting() == 1 && quorum.counts("main-0") && !quorum.counts("main-2"));
    }

    #[test]
    fn an_unreadable_object_hides_no_other() {
        let odd = "{spec: {key: k, ttl: 9999999h, claim: {identity: me}}, status: {validUntil: soon, fencingToken: 7}}";
        let lock = fake::lock("odd", odd);
        assert_eq!((lock.key().as_str(), lock.who().as_str(), lock.status.fencing_token), ("k", "me", Some(7)));
        assert_eq!(lock.valid_until(), None);
        let quorum = serde_json::json!({"metadata": {"name": "q"}, "spec": {"maxTTL": "9999999h", "installation": "a/b"},
            "status": {"ready": "2/3", "conditions": [{"type": 1}],
                "members": [{"name": "q-0", "state": "Fenced", "rejoinAt": "soon"}]}});
        let quorum: QuorumObject = serde_json::from_value(quorum).unwrap();
        assert_eq!((quorum.spec.max_ttl, quorum.spec.installation.as_str()), (None, "a/b"));
        assert_eq!((quorum.status.members[0].rejoin_at, quorum.status.conditions.len()), (None, 0));
    }

    #[test]
    fn a_validity_without_published_renewals_is_not_displayed() {
        let mut lock = fake::held("a");
        assert!(lock.valid_until().is_some());
        lock.spec.validity = Validity::Transitions;
        assert_eq!(lock.valid_until(), None);
    }
}
