//! The fields of the status, which an object without a status lacks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{MemberStatus, RedisQuorum, RedisQuorumStatus};
use crate::conditions::{QuorumCondition, find_condition};

impl RedisQuorum {
    /// The published members.
    #[must_use]
    pub fn members(&self) -> &[MemberStatus] {
        self.status.as_ref().map(|status| status.members.as_slice()).unwrap_or_default()
    }

    /// The published member with this name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&MemberStatus> {
        self.members().iter().find(|member| member.name == name)
    }

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: QuorumCondition) -> Option<&Condition> {
        find_condition(&self.status.as_ref()?.conditions, type_)
    }
}

impl RedisQuorumStatus {
    /// The published member with this name, for a change.
    #[must_use]
    pub fn member_mut(&mut self, name: &str) -> Option<&mut MemberStatus> {
        self.members.iter_mut().find(|member| member.name == name)
    }
}
