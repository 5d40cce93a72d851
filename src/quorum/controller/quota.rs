//! Quorums beyond the limit of their namespace, which the operator does not serve.

use jiff::Timestamp;
use kube::api::{PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};

use super::cluster::finalizer_patch;
use super::error::{LONGEST_BACKOFF, Result};
use crate::api::RedisQuorum;
use crate::api::requests::request;
use crate::quorum::model::problems::Problem;
use crate::quorum::model::status::refused;
use crate::runtime::context::Context;

/// Ends a deleted quorum beyond the limit, and publishes the refusal of any other one.
///
/// None of its members has ever started, so nothing on them has to end.
pub(super) async fn handle(context: &Context, quorum: &RedisQuorum) -> Result<Action> {
    let (name, namespace) = (quorum.name_any(), quorum.namespace().unwrap_or_default());
    let api: Api<RedisQuorum> = Api::namespaced(context.client.clone(), &namespace);
    if quorum.metadata.deletion_timestamp.is_some() {
        if let Some(patch) = finalizer_patch(quorum, false) {
            request(api.patch(&name, &PatchParams::default(), &patch)).await?;
        }
        return Ok(Action::await_change());
    }
    let problem = Problem::TooMany { namespace, limit: context.replica.settings.limits.quorums };
    let now = Timestamp::from_millisecond(context.api_now().0).unwrap_or_default();
    let mut next = quorum.clone();
    refused(next.status.get_or_insert_default(), &problem, (quorum.metadata.generation, now));
    if next.status != quorum.status {
        request(api.replace_status(&name, &PostParams::default(), &next)).await?;
    }
    // There is room when another quorum of the namespace has gone.
    Ok(Action::requeue(LONGEST_BACKOFF))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::api::QUORUM_FINALIZER;
    use crate::runtime::fake_api;

    /// The requests for a quorum beyond the limit.
    async fn requests_for(deleted: bool) -> Vec<String> {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "q", "namespace": "ns", "uid": "u", "finalizers": [QUORUM_FINALIZER],
            "deletionTimestamp": deleted});
        let object = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum", "spec": {}, "metadata": metadata});
        let (requests, answer) = (Arc::new(Mutex::new(Vec::new())), object.clone());
        let recorded = requests.clone();
        let context = fake_api::context(move |request| {
            recorded.lock().push(format!("{} {}", request.method(), request.uri().path()));
            (200, answer.clone())
        });
        handle(&context, &serde_json::from_value(object).unwrap()).await.unwrap();
        requests.lock().clone()
    }

    #[tokio::test]
    async fn a_deleted_quorum_beyond_the_limit_loses_its_finalizer() {
        let path = "/apis/redlock-operator.io/v1alpha1/namespaces/ns/redisquorums/q";
        assert_eq!(requests_for(true).await, [format!("PATCH {path}")]);
        assert_eq!(requests_for(false).await, [format!("PUT {path}/status")]);
    }
}
