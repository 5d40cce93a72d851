//! The operator's own pods.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::api::{DeleteParams, ListParams};

use crate::{cluster::Cluster, faults::Injected, pods, quorums, record::Recorder};

/// The name of the Lease and the Deployment, and the app label.
pub(crate) const NAME: &str = "redlock-operator";
/// The number of replicas on the local cluster.
pub(crate) const REPLICAS: usize = 2;
/// The chart's memory limit of a replica in MiB, which is enough for the 10,000 locks of one namespace.
pub(crate) const MEMORY_LIMIT: u64 = 256;
/// The limit for 20,000 locks in two namespaces, as docs/installation.md computes it.
pub(crate) const LARGER_LIMIT: u64 = 456;
/// The Deployment for kubectl.
pub(crate) const DEPLOYMENT: &str = "deployment/redlock-operator";
/// The role of applications that hold locks.
pub(crate) const HOLDER_ROLE: &str = "redlock-operator-holder";
/// The label selector of its pods.
const SELECTOR: &str = "app.kubernetes.io/name=redlock-operator";
/// Another replica leads within this time after any fault of the earlier leader.
pub(crate) const LEADER_LIMIT: Duration = Duration::from_secs(15);

/// The image of the installed operator.
pub(crate) async fn image(cluster: &Cluster) -> anyhow::Result<String> {
    let path = "-o=jsonpath={.spec.template.spec.containers[0].image}";
    let image = cluster.kubectl(&["-n", &cluster.operator_namespace, "get", DEPLOYMENT, path]).await?;
    Ok(image.trim().to_owned())
}

/// The name of the operator's account.
pub(crate) fn account(cluster: &Cluster) -> String {
    format!("system:serviceaccount:{}:{NAME}", cluster.operator_namespace)
}

/// The leader and its term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) pod: String,
    pub(crate) term: i32,
}

/// The leader and its term in this version of the Lease.
pub(crate) fn leader_of(lease: &Lease) -> Option<Leader> {
    let spec = lease.spec.as_ref()?;
    let pod = spec.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    Some(Leader { pod, term: spec.lease_transitions.unwrap_or_default() })
}

/// Watches the Lease.
pub(crate) async fn watch_leader(cluster: &Cluster) -> anyhow::Result<Recorder<Lease>> {
    Recorder::of(cluster.operator_api(), NAME).await
}

/// Reads the current leader.
pub(crate) async fn leader(cluster: &Cluster) -> anyhow::Result<Leader> {
    leader_of(&cluster.operator_api().get(NAME).await?).context("no replica of the operator leads")
}

/// The node of the current leader.
pub(crate) async fn node_of_leader(cluster: &Cluster) -> anyhow::Result<String> {
    let pod: Pod = cluster.operator_api().get(&leader(cluster).await?.pod).await?;
    pod.spec.and_then(|spec| spec.node_name).context("the operator's leader has no node")
}

/// Drops the packets of a replica to a port.
pub(crate) async fn cut_off(cluster: &Cluster, pod: &str, port: u16) -> anyhow::Result<Injected> {
    let pod: Pod = cluster.operator_api().get(pod).await?;
    let (node, address) = pods::place(&pod).context("the replica has no node or no address")?;
    cluster.faults.cut_off(&node, &address, port).await
}

/// Deletes a replica's pod, and does not wait for its end.
pub(crate) async fn delete(cluster: &Cluster, pod: &str) -> anyhow::Result<()> {
    cluster.operator_api::<Pod>().delete(pod, &DeleteParams::default()).await?;
    Ok(())
}

/// The leader in the last recorded version.
pub(crate) fn current(leases: &Recorder<Lease>) -> anyhow::Result<Leader> {
    leader_of(&leases.last()?.object).context("no replica of the operator leads")
}

/// Waits for a term after `before`.
pub(crate) async fn until_next_term(leases: &Recorder<Lease>, before: &Leader) -> anyhow::Result<Leader> {
    let next = |lease: &Lease| leader_of(lease).filter(|leader| leader.term > before.term);
    let what = format!("a term of leadership after {before:?}");
    let version = leases.until(LEADER_LIMIT, &what, |version| next(&version.object).is_some()).await?;
    next(&version.object).context("no leader")
}

/// Waits until this replica leads.
pub(crate) async fn until_leads(leases: &Recorder<Lease>, pod: &str) -> anyhow::Result<()> {
    let leads = |lease: &Lease| leader_of(lease).is_some_and(|leader| leader.pod == pod);
    // The replica can have led before, so only the last version and later ones count.
    let mark = leases.mark().saturating_sub(1);
    leases.until_after(mark, LEADER_LIMIT, &format!("{pod} leads"), |version| leads(&version.object)).await.map(drop)
}

/// The pods of all replicas.
pub(crate) async fn pods(cluster: &Cluster) -> anyhow::Result<Vec<Pod>> {
    Ok(cluster.operator_api::<Pod>().list(&ListParams::default().labels(SELECTOR)).await?.items)
}

/// The restarts of the containers of all operator pods, by pod.
pub(crate) async fn restarts(cluster: &Cluster) -> anyhow::Result<Vec<(Option<String>, i32)>> {
    let mut restarts: Vec<_> = pods(cluster)
        .await?
        .into_iter()
        // The former pods of a rollout can still end.
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .map(|pod| {
            let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
            (pod.metadata.name, statuses.iter().map(|status| status.restart_count).sum())
        })
        .collect();
    restarts.sort();
    Ok(restarts)
}

/// Waits until all replicas are available and up to date.
pub(crate) async fn all_available(cluster: &Cluster) -> anyhow::Result<()> {
    let rollout = ["-n", &cluster.operator_namespace, "rollout", "status", DEPLOYMENT, "--timeout=120s"];
    cluster.kubectl(&rollout).await.map(drop)
}

/// Waits for [`all_available`] and the default quorum.
pub(crate) async fn all_ready(cluster: &Cluster) -> anyhow::Result<()> {
    all_available(cluster).await?;
    quorums::default_is_ready(cluster).await
}

/// The response of a replica's own HTTP port.
pub(crate) async fn read(cluster: &Cluster, pod: &str, path: &str) -> anyhow::Result<String> {
    let namespace = &cluster.operator_namespace;
    cluster.kubectl(&["get", "--raw", &format!("/api/v1/namespaces/{namespace}/pods/{pod}:8080/proxy/{path}")]).await
}

/// The number of this series on a page of metrics.
pub(crate) fn sample(metrics: &str, series: &str) -> anyhow::Result<u64> {
    let number = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    Ok(number.with_context(|| format!("no {series} among the metrics"))?.trim().parse()?)
}

/// The log lines of all replicas since `seconds` ago.
pub(crate) async fn log_since(cluster: &Cluster, seconds: u64) -> anyhow::Result<String> {
    let since = format!("--since={seconds}s");
    let selector = format!("--selector={SELECTOR}");
    cluster.kubectl(&["-n", &cluster.operator_namespace, "logs", &selector, "--tail=-1", &since]).await
}

/// Begins to replace all replicas, one after the other.
pub(crate) async fn roll(cluster: &Cluster) -> anyhow::Result<()> {
    cluster.kubectl(&["-n", &cluster.operator_namespace, "rollout", "restart", DEPLOYMENT]).await.map(drop)
}

/// Sets the number of replicas, and waits until they run.
pub(crate) async fn scale(cluster: &Cluster, replicas: usize) -> anyhow::Result<()> {
    let count = format!("--replicas={replicas}");
    cluster.kubectl(&["-n", &cluster.operator_namespace, "scale", DEPLOYMENT, &count]).await?;
    if replicas == 0 {
        let selector = format!("--selector={SELECTOR}");
        let gone = ["-n", &cluster.operator_namespace, "wait", "--for=delete", "pod", &selector, "--timeout=90s"];
        return cluster.kubectl(&gone).await.map(drop);
    }
    all_available(cluster).await
}

/// Runs a test while no replica runs, and starts them afterwards, even if the test fails.
pub(crate) async fn while_stopped<T>(
    cluster: &Cluster,
    test: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    scale(cluster, 0).await?;
    let result = test.await;
    scale(cluster, REPLICAS).await?;
    result
}

/// Runs a test that changes the installation, and restores the usual one afterwards.
///
/// It also does so if the test fails.
pub(crate) async fn then_as_before<T>(
    cluster: &Cluster,
    test: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let result = test.await;
    let back = async {
        cluster.deploy().await?;
        all_ready(cluster).await
    };
    let back = back.await;
    result.and_then(|value| back.map(|()| value))
}

/// Runs a test with [`LARGER_LIMIT`], and restores the chart's limit afterwards.
pub(crate) async fn with_larger_limit<T>(
    cluster: &Cluster,
    test: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let test = async {
        cluster.deploy_with(&[&format!("resources.limits.memory={LARGER_LIMIT}Mi")]).await?;
        test.await
    };
    then_as_before(cluster, test).await
}

/// Resident memory of the operator's processes on this machine, in KiB.
pub(crate) fn memory() -> Vec<u64> {
    memory_of("VmRSS:")
}

/// The peak of the resident memory of these processes, in KiB.
pub(crate) fn peak_memory() -> Vec<u64> {
    memory_of("VmHWM:")
}

fn memory_of(field: &str) -> Vec<u64> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_operator = |path: &std::path::PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"redlock")) && words.next() == Some(b"operator")
    };
    let resident = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("status")).ok()?;
        text.lines().find_map(|line| line.strip_prefix(field))?.trim().strip_suffix(" kB")?.parse().ok()
    };
    processes.filter(is_operator).filter_map(resident).collect()
}
