//! Shows the operator that this process lives: it renews a Lease with the name of the claim.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::Problem;
use crate::console;
use redlock_api::requests::{RequestError, within};
use redlock_api::{DistributedLock, MilliTime};
use redlock_engine::time::{Clock, SystemClock};

/// Sends heartbeats until it is dropped.
pub(super) async fn beat(client: Client, claim: DistributedLock) {
    let Some(longest) = claim.spec.claim.as_ref().and_then(|claim| claim.heartbeat) else { return };
    let leases: Api<Lease> = Api::namespaced(client, &claim.namespace().unwrap_or_default());
    let (longest, pause) = (longest.get(), longest.get() / 3);
    let (mut is_there, mut is_reported) = (false, false);
    loop {
        let begun = SystemClock.boottime();
        // With a slow credential plugin one heartbeat takes longer than the pause.
        let result =
            if is_there { renew(&leases, &claim, longest).await } else { create(&leases, &claim, longest).await };
        match result {
            Ok(()) => is_there = true,
            Err(RequestError::Gone) => is_there = false,
            Err(error @ RequestError::Refused(_)) if !is_reported => {
                is_reported = true;
                let failure = "no heartbeat of the claim can be sent, so the lock will be lost";
                console::report(Problem::of_holder(failure, &error));
            }
            // The operator measures the pause between heartbeats by its own clock, and does not end a hold for an outage of the API server.
            Err(_) => {}
        }
        sleep(pause.saturating_sub(SystemClock.boottime().since(begun))).await;
    }
}

async fn create(leases: &Api<Lease>, claim: &DistributedLock, longest: Duration) -> Result<(), RequestError> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": claim.name_any(), "ownerReferences": claim.owner_ref(&()).map(|owner| vec![owner])},
        "spec": times(claim),
    });
    let Ok(lease) = serde_json::from_value(lease) else { return Err(RequestError::Unknown(None)) };
    match within(longest, leases.create(&PostParams::default(), &lease)).await {
        Err(RequestError::Conflict) => renew(leases, claim, longest).await,
        result => result.map(drop),
    }
}

async fn renew(leases: &Api<Lease>, claim: &DistributedLock, longest: Duration) -> Result<(), RequestError> {
    let patch = Patch::Merge(json!({"spec": times(claim)}));
    within(longest, leases.patch(&claim.name_any(), &PatchParams::default(), &patch)).await.map(drop)
}

/// The spec of the Lease. Each heartbeat differs, because the operator detects a change of the Lease.
fn times(claim: &DistributedLock) -> Value {
    let renewed = MilliTime::from_millis(SystemClock.wall().0);
    let seconds = claim.spec.ttl.get().as_secs().max(1);
    json!({
        "holderIdentity": claim.name_any(),
        "leaseDurationSeconds": seconds,
        "renewTime": renewed.map(|at| format!("{:.6}", at.get())),
    })
}
