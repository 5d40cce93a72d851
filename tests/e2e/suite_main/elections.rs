//! An election among the pods of a Deployment, its leader label, and a Service that follows it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
    discovery::v1::{Endpoint, EndpointSlice},
};
use kube::{ResourceExt, api::ListParams};
use redlock_operator::api::leader_label;
use serde_json::json;

use crate::{
    bench::Bench,
    foreign::Client,
    history::check_one_label,
    locks::{Lock, SOON, is_held, status, token, with},
    pods::application,
    quorums::Quorum,
    record::{Recorder, Version},
    suite_lock::support::election,
};

const ROUNDS: usize = 3;
const FAILOVER_LIMIT: Duration = Duration::from_secs(3);
const PODS_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn a_single_pod_leads_and_the_next_follows_in_three_seconds(bench: Bench) -> anyhow::Result<()> {
    const WHAT: &str = "SIGKILL to the leader's container -> next leader in status";
    let quorum = Quorum::ready(&bench, "q", Duration::from_secs(3)).await?;
    let client = Client::start(&quorum).await?;
    let deployment = start_pods(&bench).await?;

    let label = leader_label("scheduler");
    let labelled = Recorder::<Pod>::labelled(bench.api(), &format!("{label}=true")).await?;
    let slices =
        Recorder::<EndpointSlice>::labelled(bench.api(), "kubernetes.io/service-name=scheduler-leader").await?;
    let service = json!({"metadata": {"name": "scheduler-leader"},
        "spec": {"selector": {&label: "true"}, "ports": [{"port": 6379}]}});
    bench.create::<Service>(service).await?;
    let election = election("scheduler", "scheduler", Duration::from_secs(2));
    let lock = Lock::create(&bench, with(election, json!({"quorumRef": {"name": "q"}}))).await?;

    let mut leading = lock.held(SOON).await?;
    let mut leader = leader_of(&leading)?;
    ensure!(oldest(&bench).await?.contains(&leader.pod), "{} leads and is not the oldest", leader.pod);
    for round in 0.. {
        labelled.until(SOON, "the leader's pod is labelled", |v| !v.gone && v.object.name_any() == leader.pod).await?;
        let endpoints = format!("the Service has the endpoint {} alone", leader.pod);
        slices.until(SOON, &endpoints, |v| ready_pods(&v.object) == [leader.pod.as_str()]).await?;
        answers(&client, &leader.pod).await?;
        if round == ROUNDS {
            break;
        }
        let three = |v: &Version<Deployment>| ready(&v.object) == 3;
        deployment.until_after(deployment.mark() - 1, PODS_LIMIT, "three pods are ready", three).await?;

        let start = bench.now();
        bench.cluster.faults.kill_container(&bench.namespace, &leader.pod, "app").await?;
        let next =
            |v: &Version<_>| is_held(&v.object) && leader_of(v).is_ok_and(|next| next.container != leader.container);
        let next = lock.recorder.until_after(lock.recorder.mark() - 1, SOON, "another leader", next).await?;
        let took = next.at.since(start);
        bench.figures.add(WHAT, took);
        ensure!(took < FAILOVER_LIMIT, "the next leader led after {took:?}");
        ensure!(token(&next.object)? > token(&leading.object)?, "the next token is not greater");
        (leader, leading) = (leader_of(&next)?, next);
    }
    check_one_label(&labelled.versions())
}

/// Starts pods, one clearly before the others.
async fn start_pods(bench: &Bench) -> anyhow::Result<Recorder<Deployment>> {
    let deployment = bench.record::<Deployment>("scheduler").await?;
    bench.create::<Deployment>(application("scheduler", 1, &bench.cluster.member_image)).await?;
    deployment.until(PODS_LIMIT, "a pod is ready", |v| ready(&v.object) == 1).await?;
    bench.kubectl(&["scale", "deployment/scheduler", "--replicas=3"]).await?;
    deployment.until(PODS_LIMIT, "three pods are ready", |v| ready(&v.object) == 3).await?;
    Ok(deployment)
}

fn ready(deployment: &Deployment) -> i32 {
    deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default()
}

/// The pods that were created first.
async fn oldest(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let pods = bench.api::<Pod>().list(&ListParams::default().labels("app=scheduler")).await?;
    let first = pods.iter().filter_map(|pod| pod.creation_timestamp().map(|time| time.0)).min();
    let is_first = |pod: &&Pod| pod.creation_timestamp().map(|time| time.0) == first;
    Ok(pods.iter().filter(is_first).map(ResourceExt::name_any).collect())
}

struct Leader {
    pod: String,
    container: String,
}

fn leader_of(version: &Version<redlock_operator::api::DistributedLock>) -> anyhow::Result<Leader> {
    let holder = status(&version.object).holder.context("no holder")?;
    let pod = holder.pod_name.context("the holder has no podName")?;
    Ok(Leader { pod, container: holder.container_id.context("the holder has no containerID")? })
}

fn ready_pods(slice: &EndpointSlice) -> Vec<&str> {
    let ready = |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|all| all.ready).unwrap_or(true);
    slice.endpoints.iter().filter(ready).filter_map(|one| one.target_ref.as_ref()?.name.as_deref()).collect()
}

/// Waits until a connection to the Service reaches the leader, when the nodes have its endpoint.
async fn answers(client: &Client, pod: &str) -> anyhow::Result<()> {
    let ask = "redis-cli -h scheduler-leader CONFIG GET dbfilename 2>&1 | tail -n 1";
    let script = format!(
        "i=0; until [ \"$({ask})\" = {pod} ]; do i=$((i + 1)); [ $i -lt 50 ] || {{ {ask}; exit 0; }}; sleep 0.1; done; echo {pod}"
    );
    let answer = client.shell(&script).await?;
    ensure!(answer == pod, "{pod} leads, but {answer} answers behind the Service");
    Ok(())
}
