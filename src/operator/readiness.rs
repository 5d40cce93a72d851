//! When a replica is ready: when its caches are filled, and on a first installation when locks can be taken.
//!
//! The leader that creates the default quorum is not ready before that quorum has voted for the first time. So `helm install --wait` ends when
//! a lock can be taken. Later the quorum does not affect readiness, because the rollout of a version that repairs the quorum must not wait.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::sleep;

use super::args::OperatorArgs;
use crate::api::RedisQuorum;
use crate::api::conditions::{QuorumCondition, is_true};
use crate::api::requests::within;
use crate::runtime::context::Context;
use crate::runtime::leader::Term;

const PERIOD: Duration = Duration::from_millis(200);
/// Maximum time to read the Lease once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The default quorum, if the leader creates it.
pub(super) fn created_default<'a>(context: &'a Context, args: &OperatorArgs) -> Option<&'a ObjectRef<RedisQuorum>> {
    context.replica.settings.default_quorum.as_ref().filter(|_| !args.default_quorum.is_empty())
}

/// Resolves when the default quorum has voted, on the replica that has to create it: the leader.
///
/// It also resolves when another replica leads.
pub(super) async fn default_quorum_has_voted(
    context: Context,
    args: OperatorArgs,
    leadership: watch::Receiver<Option<Term>>,
) {
    let Some(default) = created_default(&context, &args) else { return };
    let mut first = true;
    while !has_voted(context.quorums.get(default).as_deref(), first) {
        // During an update a replica of the previous version leads. It can have another default quorum, so this replica must not wait for its own.
        if leadership.borrow().is_none() && lease_of_another(&context.client, &args).await.is_some() {
            return;
        }
        first = false;
        sleep(PERIOD).await;
    }
}

/// Whether members were admitted before this replica started, or a majority of them votes now.
fn has_voted(quorum: Option<&RedisQuorum>, first: bool) -> bool {
    let status = quorum.and_then(|quorum| quorum.status.as_ref());
    status.is_some_and(|status| {
        first && status.token_floor.is_some() || is_true(&status.conditions, QuorumCondition::QuorumAvailable)
    })
}

/// The Lease, if it names another replica. `None` without an answer of the API server in time.
pub(super) async fn lease_of_another(client: &Client, args: &OperatorArgs) -> Option<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &args.namespace);
    let lease = within(REQUEST_TIMEOUT, leases.get_opt(&args.lease)).await.ok()??.spec?;
    let is_another = |holder: &String| !holder.is_empty() && *holder != args.pod_name;
    lease.holder_identity.as_ref().is_some_and(is_another).then_some(lease)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::{condition, quorum};

    #[test]
    fn the_default_quorum_has_voted_now_or_at_an_earlier_time() {
        let quorum = |status: serde_json::Value| quorum(json!({}), status);
        let available = |status: &str| json!([condition("QuorumAvailable", status, "R")]);
        let starting = quorum(json!({"conditions": available("False")}));
        let first_member = quorum(json!({"tokenFloor": 7, "conditions": available("False")}));
        let voting = quorum(json!({"tokenFloor": 7, "conditions": available("True")}));
        assert!(!has_voted(None, true) && !has_voted(Some(&starting), true));
        assert!(
            has_voted(Some(&first_member), true),
            "it voted before this replica started, and this replica is perhaps the one that repairs it"
        );
        assert!(!has_voted(Some(&first_member), false), "one member alone grants nothing");
        assert!(has_voted(Some(&voting), false));
    }
}
