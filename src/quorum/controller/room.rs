//! Quorums for which there is no room in their namespace.

use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};

use super::{Error, LONGEST_BACKOFF, Leader, request};
use crate::api::RedisQuorum;
use crate::api::conditions::{QuorumCondition, set_condition};
use crate::quorum::model::problems::Problem;

impl Leader {
    /// Nothing is made for a quorum for which there is no room; it says so, and is looked at again.
    pub(super) async fn say_no_room(&self, quorum: &RedisQuorum) -> Result<Action, Error> {
        let mut next = quorum.clone();
        let (namespace, limit) = (quorum.namespace().unwrap_or_default(), self.context.replica.settings.limits.quorums);
        let problem = Problem::TooMany { namespace, limit };
        let (message, now) = (problem.to_string(), self.context.api_now());
        let now = jiff::Timestamp::from_millisecond(now.0).unwrap_or_default();
        let generation = quorum.metadata.generation;
        let status = next.status.get_or_insert_default();
        status.observed_generation = generation;
        for condition in [QuorumCondition::Ready, QuorumCondition::QuorumAvailable] {
            let reason = problem.reason();
            set_condition(&mut status.conditions, condition, false, reason, message.as_str(), generation, now);
        }
        if next.status != quorum.status {
            let api: Api<RedisQuorum> =
                Api::namespaced(self.context.client.clone(), &quorum.namespace().unwrap_or_default());
            request(api.replace_status(&quorum.name_any(), &PostParams::default(), &next)).await?;
        }
        Ok(Action::requeue(LONGEST_BACKOFF))
    }
}
