//! The operator does not change objects of other owners.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::json;

use super::helpers::{RESTART_LIMIT, reason_after};
use crate::{
    bench::Bench,
    operators, poll,
    quorums::{Quorum, is_ready},
    suite_lock::support::{IDLE, worker},
};

const MAX_TTL: Duration = Duration::from_secs(2);

pub(crate) async fn foreign_objects_are_refused_and_kept(bench: Bench) -> anyhow::Result<()> {
    let theirs = json!({"metadata": {"name": "q-1"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}}});
    let before = bench.create::<Service>(theirs).await?;
    let quorum = Quorum::create_with(&bench, "q", MAX_TTL, json!({})).await?;
    let message = reason_after(&quorum, 0, RESTART_LIMIT, "Ready", "InvalidSpec").await?;
    ensure!(message.contains("Service q-1 exists and does not belong to this RedisQuorum"), "{message}");
    let services = bench.api::<Service>();
    let same =
        || async { Ok(services.get("q-1").await?.metadata.resource_version == before.metadata.resource_version) };
    poll::stays(Duration::from_secs(3), "somebody's Service is as it was", same).await?;
    bench.delete::<Service>("q-1").await?;
    quorum.recorder.until(RESTART_LIMIT, "Ready", is_ready).await.map(drop)
}

pub(crate) async fn the_operator_can_delete_no_other_pods(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let mut bystander = worker(&bench, "bystander", "app", IDLE);
    bystander["metadata"]["labels"] = json!({"redlock-operator.io/quorum": "q", "redlock-operator.io/member": "q-0"});
    bench.create::<Pod>(bystander).await?;
    let operator = format!("--as={}", operators::account(&bench.cluster));
    let delete = ["delete", "pod", "--wait=false", "--dry-run=server", &operator];
    for pod in [&["bystander"][..], &["q-0-0", "--force", "--grace-period=0"]] {
        bench.refuses(&[&delete[..], pod].concat(), "", "the operator can").await?;
    }
    bench.kubectl(&[&delete[..], &["q-0-0"]].concat()).await.map(drop)
}
