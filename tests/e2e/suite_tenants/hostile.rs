//! Hostile masters and peers of one tenant.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::api::{DEFAULT_QUORUM_ANNOTATION, RedisQuorum};
use serde_json::json;

use super::victim::Victim;
use crate::{
    bench::Bench,
    hostile::Harm,
    locks::{Lock, SOON, claim},
    masters::Masters,
    operators,
    quorums::Quorum,
};

/// The length of an attack, in which the operator connects to the masters several times.
const GOES_ON: Duration = Duration::from_secs(20);
const MAX_TTL: Duration = Duration::from_secs(4);
/// The addresses of peers, and the connections that each address keeps to the operator's port.
const PEERS: [(u8, usize); 2] = [(1, 2_000), (32, 17)];

pub(crate) async fn masters_with_endless_answers_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 0).await?;
    let mut addresses = Vec::new();
    for index in 0..3 {
        let listen = masters.free_address(index)?;
        masters.start_hostile(Harm::Endless { listen }).await?;
        addresses.push(listen.to_string());
    }
    Bench::beside(&bench, "endless-answers-victim", async |other| {
        let victim = Victim::new(other).await?;
        let quorum = masters.create(&bench, masters.manifest("q", 0, &addresses, MAX_TTL)).await?;
        let is_reported = |quorum: &RedisQuorum| {
            let members = quorum.status.iter().flat_map(|status| &status.members);
            members.filter(|member| member.message.is_some()).count() == 3
        };
        quorum.recorder.until(SOON, "its members are reported", |observed| is_reported(&observed.object)).await?;
        tokio::time::sleep(GOES_ON).await;
        victim.check("beside masters whose answers do not end").await
    })
    .await
}

pub(crate) async fn masters_that_fall_silent_move_the_leadership_rarely(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 3).await?;
    let mut addresses = Vec::new();
    for index in 0..3 {
        addresses.push(masters.start_forgetful(index).await?);
    }
    let _quorum = masters.ready(&bench, masters.manifest("q", 0, &addresses, MAX_TTL)).await?;
    Bench::beside(&bench, "silent-masters-victim", async |other| {
        let victim = Victim::new(other).await?;
        let _lock = Lock::take(&bench, claim("renewed", "k", Some("q"), Duration::from_secs(1))).await?;
        masters.forget().await?;
        tokio::time::sleep(GOES_ON).await;
        victim.check("beside masters that answer and fall silent").await
    })
    .await
}

pub(crate) async fn connections_to_the_operators_port_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    for (peers, count) in PEERS {
        let masters = Masters::start(&bench, 0).await?;
        let from = masters.add_peers(peers).await?;
        Bench::beside(&bench, "connections-victim", async |other| {
            let victim = Victim::new(other).await?;
            for pod in operators::pods(&bench.cluster).await? {
                let to = format!("{}:8080", ip(&pod)?).parse()?;
                masters.start_hostile(Harm::Half { to, count, from: from.clone() }).await?;
            }
            // The attack lasts longer than three failed probes of the kubelet, after which a container is restarted.
            tokio::time::sleep(2 * GOES_ON).await;
            victim.check(&format!("beside {count} half requests from each of {peers} peers")).await
        })
        .await?;
    }
    Ok(())
}

fn ip(pod: &Pod) -> anyhow::Result<&str> {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("a pod without an address")
}

pub(crate) async fn a_quorum_that_a_tenant_marks_as_default_is_not_used(bench: Bench) -> anyhow::Result<()> {
    Bench::beside(&bench, "default-quorum-victim", async |other| {
        let victim = Victim::new(other).await?;
        let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
        bench.kubectl(&["annotate", "rq", "q", &format!("{DEFAULT_QUORUM_ANNOTATION}=true")]).await?;
        victim.check("beside a quorum that calls itself the default").await?;
        let mine = Lock::create(&bench, claim("mine", "mine", None, MAX_TTL)).await?;
        let held = mine.held(SOON).await?;
        let quorum = held.object.status.and_then(|status| status.holder).and_then(|holder| holder.quorum);
        let namespace = quorum.context("a holder without a quorum")?.namespace;
        ensure!(namespace == bench.cluster.operator_namespace, "it was granted on a quorum of {namespace}");
        let patch = json!({"metadata": {"annotations": {DEFAULT_QUORUM_ANNOTATION: null}}});
        bench.patch("rq", "q", &patch.to_string()).await
    })
    .await
}
