//! The fields of locks and quorums that the commands use.
//!
//! States and reasons are texts here, because a newer operator can write names that this version does not have. An unreadable object
//! must not hide the others.

mod quorum;

pub use quorum::{QuorumMember, QuorumObject, QuorumObjectSpec, QuorumObjectStatus};

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta, Time};
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Deserializer};

use redlock_api::conditions::{HeldReason, LockCondition, find_condition, is_true};
use redlock_api::{DistributedLock, DistributedLockStatus, GoDuration, MilliTime, QuorumRef};

/// A DistributedLock.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LockObject {
    /// Without `managedFields`.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The specification.
    #[serde(default)]
    pub spec: LockObjectSpec,
    /// The status that the operator writes.
    #[serde(default)]
    pub status: DistributedLockStatus,
}

/// The specification of a lock or a quorum.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LockObjectSpec {
    /// The key. Default: the name of the object.
    pub key: Option<String>,
    /// The quorum, if it is not the default.
    pub quorum_ref: Option<QuorumRef>,
    /// How long the lock lives without a renewal.
    pub ttl: Option<GoDuration>,
    /// How often `status.validUntil` is written.
    pub validity: Option<String>,
    /// Order in the queue.
    pub priority: i32,
    /// Holders at a time.
    pub slots: Option<i32>,
    /// It is paused.
    pub suspend: bool,
    /// It is a claim.
    pub claim: Option<ClaimSpec>,
    /// It is an election.
    pub election: Option<ElectionSpec>,
}

/// A named holder.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// Its free name.
    pub identity: Option<String>,
    /// The pod that is to hold.
    pub pod_name: Option<String>,
    /// The Job that is to hold.
    pub job_name: Option<String>,
    /// Its UID.
    #[serde(rename = "jobUID")]
    pub job_uid: Option<String>,
}

/// Candidates.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ElectionSpec {
    /// Their labels.
    pub selector: LabelSelector,
}

/// The metadata without `managedFields`, which are half of an object and not used here.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

fn slim<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = SlimMeta::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        annotations: slim.annotations,
        ..ObjectMeta::default()
    })
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

    /// A condition.
    #[must_use]
    pub fn condition(&self, type_: LockCondition) -> Option<&Condition> {
        find_condition(&self.status.conditions, type_)
    }

    /// Whether the lock has a holder. Its hold can be ending.
    #[must_use]
    pub fn is_held(&self) -> bool {
        is_true(&self.status.conditions, LockCondition::Held)
    }

    /// Whether the claim ended and never queues again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_true(&self.status.conditions, LockCondition::Finished)
    }

    /// The reason of the condition Held. A lock without a status is `Pending`.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.condition(LockCondition::Held).map_or(HeldReason::Pending.as_str(), |held| held.reason.as_str())
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

    /// The time within which an ended hold expires, as text.
    #[must_use]
    pub fn ttl_text(&self) -> String {
        self.spec.ttl.map_or("one ttl".to_owned(), |ttl| ttl.to_string())
    }

    /// `Claim` or `Election`.
    #[must_use]
    pub const fn kind_of_lock(&self) -> &'static str {
        if self.spec.election.is_some() { "Election" } else { "Claim" }
    }

    /// The end of the published validity. With `validity: Transitions` there is none.
    #[must_use]
    pub fn valid_until(&self) -> Option<MilliTime> {
        let is_published = self.spec.validity.as_deref() != Some("Transitions");
        self.status.valid_until.filter(|_| is_published && self.is_held())
    }

    /// Time of the creation.
    #[must_use]
    pub fn created(&self) -> Option<MilliTime> {
        self.metadata.creation_timestamp.as_ref().map(|time| MilliTime::from(time.0))
    }

    /// `<namespace>/<name>` of its quorum: that of the hold, else that of the specification. `None`: the default.
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

impl Resource for LockObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        DistributedLock::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        DistributedLock::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        DistributedLock::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        DistributedLock::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
pub(crate) mod fake;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_a_newer_operator_can_be_seen() {
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
    fn a_validity_that_is_not_kept_up_to_date_is_not_shown() {
        let mut lock = fake::held("a");
        assert!(lock.valid_until().is_some());
        lock.spec.validity = Some("Transitions".into());
        assert_eq!(lock.valid_until(), None);
    }
}
