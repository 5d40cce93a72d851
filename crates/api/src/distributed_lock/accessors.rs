//! The fields of the status, which an object without a status lacks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{DistributedLock, Ending, LockHolder, PastHold, Stopping};
use crate::MilliTime;
use crate::conditions::{LockCondition, find_condition, is_true};

impl DistributedLock {
    /// The present holder.
    #[must_use]
    pub fn holder(&self) -> Option<&LockHolder> {
        self.status.as_ref()?.holder.as_ref()
    }

    /// Namespace and name of the quorum that the specification names. `None` is the default quorum.
    #[must_use]
    pub fn named_quorum(&self) -> Option<(String, String)> {
        let named = self.spec.quorum_ref.as_ref()?;
        let home = || self.metadata.namespace.clone().unwrap_or_default();
        Some((named.namespace.clone().unwrap_or_else(home), named.name.clone()))
    }

    /// Whether the condition Held is true.
    ///
    /// The status of a lost lock names its holder until a majority confirms the end.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.status.as_ref().is_some_and(|status| is_true(&status.conditions, LockCondition::Held))
    }

    /// The end of the hold, once the operator no longer renews it.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.status.as_ref()?.ending.as_ref()
    }

    /// The suspension of the Job that holds the lock.
    #[must_use]
    pub fn stopping(&self) -> Option<&Stopping> {
        self.status.as_ref()?.stopping.as_ref()
    }

    /// The fencing token of the hold.
    #[must_use]
    pub fn fencing_token(&self) -> Option<i64> {
        self.status.as_ref()?.fencing_token
    }

    /// The end of the published validity.
    #[must_use]
    pub fn valid_until(&self) -> Option<MilliTime> {
        self.status.as_ref()?.valid_until
    }

    /// The last ended hold.
    #[must_use]
    pub fn past(&self) -> Option<&PastHold> {
        self.status.as_ref()?.history.first()
    }

    /// All conditions.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: LockCondition) -> Option<&Condition> {
        find_condition(self.conditions(), type_)
    }

    /// Whether the claim ended and never queues again.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_true(self.conditions(), LockCondition::Finished)
    }
}
