//! The usual setup without an operator: three Redis servers that restart and vote immediately.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::nemesis::Target;
use crate::{
    bench::Bench,
    pods::is_ready,
    suite_lock::support::{with_container, worker},
};

const START_LIMIT: Duration = Duration::from_secs(60);
/// Restarts Redis immediately, like systemd or a container runtime.
const SUPERVISOR: &str = "trap 'exit 0' TERM; while :; do redis-server --save '' --protected-mode no & wait $!; done";

/// Starts them, and returns them with their URLs.
pub(crate) async fn start(bench: &Bench) -> anyhow::Result<(Target, Vec<String>)> {
    let target = Target { pods: (0..3).map(|number| format!("plain-{number}")).collect(), supervised: true };
    for name in &target.pods {
        let redis = json!({"name": "redis", "readinessProbe": {"tcpSocket": {"port": 6379}, "periodSeconds": 1}});
        bench.create::<Pod>(with_container(worker(bench, name, "plain", SUPERVISOR), redis)).await?;
    }
    let mut urls = Vec::new();
    for name in &target.pods {
        let recorder = bench.record::<Pod>(name).await?;
        let ready = recorder.until(START_LIMIT, "ready", |version| is_ready(&version.object)).await?;
        let address = ready.object.status.and_then(|status| status.pod_ip).context("no address")?;
        urls.push(format!("redis://{address}:6379"));
    }
    Ok((target, urls))
}
