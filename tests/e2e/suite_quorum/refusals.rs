//! The operator does not change objects of other owners.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::json;

use super::helpers::{RESTART_LIMIT, reason_after};
use crate::{
    bench::Bench,
    operators,
    pods::{container_security, pod_security},
    poll,
    quorums::{Quorum, is_ready, manifest},
};

const MAX_TTL: Duration = Duration::from_secs(2);

pub(crate) async fn objects_of_others_are_refused_and_kept(bench: Bench) -> anyhow::Result<()> {
    let theirs = json!({"metadata": {"name": "q-1"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}});
    let before = bench.create::<Service>(theirs).await?;
    let quorum = Quorum::create(&bench, manifest(&bench, "q", MAX_TTL)).await?;
    let message = reason_after(&quorum, 0, RESTART_LIMIT, "Ready", "InvalidSpec").await?;
    ensure!(message.contains("Service q-1 exists and does not belong to this RedisQuorum"), "{message}");
    let services = bench.api::<Service>();
    let same =
        || async { Ok(services.get("q-1").await?.metadata.resource_version == before.metadata.resource_version) };
    poll::stays(Duration::from_secs(3), "somebody's Service is as it was", same).await?;
    bench.delete::<Service>("q-1").await?;
    quorum.recorder.until(RESTART_LIMIT, "Ready", is_ready).await?;
    Ok(())
}

pub(crate) async fn the_operator_may_delete_no_other_pods(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let labels = json!({"redlock-operator.io/quorum": "q", "redlock-operator.io/member": "q-0"});
    bench
        .create::<Pod>(json!({
            "metadata": {"name": "bystander", "labels": labels},
            "spec": {"securityContext": pod_security(), "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "c", "image": bench.cluster.member_image, "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "3600"], "securityContext": container_security(),
            }]},
        }))
        .await?;
    let namespace = &bench.cluster.operator_namespace;
    let operator = format!("--as=system:serviceaccount:{namespace}:{}", operators::NAME);
    let delete = |name: &'static str, more: &'static [&'static str]| {
        let fixed = ["-n", &bench.namespace, "delete", "pod", name, "--wait=false", "--dry-run=server", &operator];
        let all: Vec<String> = fixed.iter().chain(more).map(ToString::to_string).collect();
        let cluster = bench.cluster.clone();
        async move {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            cluster.kubectl_output(&all, "").await
        }
    };
    for (name, more, allowed) in
        [("bystander", &[][..], false), ("q-0-0", &["--force", "--grace-period=0"], false), ("q-0-0", &[], true)]
    {
        let output = delete(name, more).await?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() == allowed, "delete {name} {more:?}: {error}");
        ensure!(allowed || error.contains("the operator can"), "{error}");
    }
    Ok(())
}
