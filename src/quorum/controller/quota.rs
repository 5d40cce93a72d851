//! Quorums for which there is no room in their namespace.

use kube::api::PostParams;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};

use super::error::{Error, LONGEST_BACKOFF};
use crate::api::RedisQuorum;
use crate::api::requests::request;
use crate::quorum::model::problems::Problem;
use crate::quorum::model::status::refused;
use crate::runtime::context::Context;

/// Publishes the refusal of a quorum beyond the limit, and checks it again later.
///
/// It creates no objects.
pub(super) async fn refuse(context: &Context, quorum: &RedisQuorum) -> Result<Action, Error> {
    let mut next = quorum.clone();
    let (namespace, limit) = (quorum.namespace().unwrap_or_default(), context.replica.settings.limits.quorums);
    let problem = Problem::TooMany { namespace, limit };
    let now = jiff::Timestamp::from_millisecond(context.api_now().0).unwrap_or_default();
    let generation = quorum.metadata.generation;
    let status = next.status.get_or_insert_default();
    status.observed_generation = generation;
    refused(status, &problem, generation, now);
    if next.status != quorum.status {
        let api: Api<RedisQuorum> = Api::namespaced(context.client.clone(), &quorum.namespace().unwrap_or_default());
        request(api.replace_status(&quorum.name_any(), &PostParams::default(), &next)).await?;
    }
    Ok(Action::requeue(LONGEST_BACKOFF))
}
