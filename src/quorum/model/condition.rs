//! One condition of a quorum, before it is set.

use k8s_openapi::jiff::Timestamp;

use crate::api::RedisQuorumStatus;
use crate::api::conditions::{CommonReason, QuorumCondition, Status, set_condition};

/// The content of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition.
    pub type_: QuorumCondition,
    /// Whether it holds.
    pub holds: Status,
    /// The reason.
    pub reason: CommonReason,
    /// The message for users.
    pub message: String,
}

impl Condition {
    /// Sets it in the status.
    pub fn set(self, status: &mut RedisQuorumStatus, generation: Option<i64>, now: Timestamp) {
        let Self { type_, holds, reason, message } = self;
        set_condition(&mut status.conditions, type_, holds, reason, message, (generation, now));
    }
}
