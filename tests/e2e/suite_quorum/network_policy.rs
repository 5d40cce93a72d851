//! Network access to Redis.
//!
//! The network plugin enforces policies, and the local one does not. Therefore only the object is tested.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::json;

use crate::{
    bench::Bench,
    locks::SOON,
    quorums::{Quorum, manifest},
};

pub(crate) async fn only_the_operator_and_clients_reach_redis(bench: Bench) -> anyhow::Result<()> {
    let policies = bench.record::<NetworkPolicy>("q").await?;
    let _quorum = Quorum::create(&bench, manifest(&bench, "q", Duration::from_secs(2))).await?;
    let policy = policies.until(SOON, "exists", |version| !version.gone).await?.object;
    let namespace = |name: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
    let operator = json!({
        "namespaceSelector": namespace(&bench.cluster.operator_namespace),
        "podSelector": {"matchLabels": {
            "app.kubernetes.io/name": "redlock-operator", "app.kubernetes.io/instance": "redlock-operator",
        }},
    });
    let expected = json!({
        "podSelector": {"matchLabels": {"redlock-operator.io/quorum": "q"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{
            "from": [operator, {"namespaceSelector": namespace(&bench.namespace)}],
            "ports": [{"port": 6379, "protocol": "TCP"}],
        }],
    });
    let spec = serde_json::to_value(policy.spec)?;
    ensure!(spec == expected, "{spec}");
    Ok(())
}
