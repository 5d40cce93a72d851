//! One tenant spends the operator's memory and time with objects that the API server admits.
//!
//! Locks of other tenants are not affected.

use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{shares::as_tenant, victim::Victim};
use crate::{
    bench::Bench,
    locks::{AT_ONCE, claim, create_all, is_held, reason_of, until_all, watch_all, with},
    record::Version,
    suite_lock::support::election,
};

const TTL: Duration = Duration::from_secs(10);
/// The chart's policy refuses a lock whose annotations have more than 32 KiB.
const LARGEST_OF_A_LOCK: usize = 31 * 1024;
/// Kubernetes refuses an object whose annotations have more than 256 KiB.
const LARGEST_OF_A_POD: usize = 255 * 1024;
/// The number of locks, and then of pods, that the test creates and deletes.
const CHURNED: usize = 200;
/// The schema allows no more labels in a selector.
const SELECTED: usize = 16;
const ELECTIONS: usize = 1_000;
const CHANGE_OF_THE_POD: Duration = Duration::from_millis(250);
/// Claims with the longest heartbeat that their ttl allows.
const HEARTBEATS: usize = 400;
/// Claims that are renewed as often as the schema allows.
const RENEWED: usize = 600;
/// The limit until the operator has judged a thousand locks.
const JUDGED: Duration = Duration::from_secs(300);

/// Metadata as large as the API server and the policy admit, with an annotation of this number of bytes.
fn large(name: &str, annotation: usize) -> Value {
    let label = |number: usize| (format!("{}.example.com/{number}", "a".repeat(60)), "b".repeat(63));
    let labels: serde_json::Map<_, _> = (0..63).map(label).map(|(key, value)| (key, value.into())).collect();
    json!({"name": name, "labels": labels, "annotations": {"example.com/large": "c".repeat(annotation)}})
}

/// Creates and deletes each object, so that a ResourceQuota of a few objects would not refuse them.
async fn churn<K>(api: &Api<K>, object: impl Fn(usize) -> Value) -> anyhow::Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    futures::stream::iter(0..CHURNED)
        .map(|number| {
            let object = object(number);
            async move {
                let name = object["metadata"]["name"].as_str().context("no name")?.to_owned();
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                api.delete(&name, &DeleteParams::background().grace_period(0)).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

pub(crate) async fn churn_of_large_locks_and_pods_harms_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let locks = as_tenant(&bench).await?;
    let pods: Api<Pod> = Api::namespaced(locks.clone().into_client(), &bench.namespace);
    Bench::beside(&bench, "large-objects-victim", async |other| {
        let victim = Victim::new(other).await?;
        churn(&locks, |number| {
            let name = format!("large-{number}");
            let mut lock = claim(&name, &name, None, TTL);
            lock["metadata"] = large(&name, LARGEST_OF_A_LOCK);
            lock["spec"]["suspend"] = json!(true);
            lock
        })
        .await?;
        churn(&pods, |number| pending_pod(large(&format!("large-{number}"), LARGEST_OF_A_POD))).await?;
        victim.check("beside large objects that come and go").await
    })
    .await
}

/// A pod that no node accepts.
fn pending_pod(metadata: Value) -> Value {
    json!({"metadata": metadata, "spec": {
        "nodeSelector": {"example.com/nowhere": "true"},
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "app", "image": "example.com/none", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})
}

pub(crate) async fn a_thousand_elections_on_one_key_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let label = |number: usize| (format!("label-{number}"), json!("value"));
    let labels: serde_json::Map<_, _> = (0..SELECTED).map(label).collect();
    let candidate: Pod = bench.create(pending_pod(json!({"name": "candidate", "labels": labels}))).await?;
    let name = candidate.metadata.name.context("no name")?;
    let recorder = watch_all(&bench).await?;
    let tenant = as_tenant(&bench).await?;
    let pods: Api<Pod> = Api::namespaced(tenant.clone().into_client(), &bench.namespace);
    let change = async {
        let mut change = tokio::time::interval(CHANGE_OF_THE_POD);
        for number in 0.. {
            change.tick().await;
            let patch = json!({"metadata": {"annotations": {"example.com/change": number.to_string()}}});
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        anyhow::Ok(())
    };
    Bench::beside(&bench, "elections-victim", async |other| {
        let victim = Victim::new(other).await?;
        let attacked = async {
            let lock = |number| {
                let mut lock = election(&format!("election-{number}"), "candidate", TTL);
                lock["spec"]["key"] = json!("one");
                lock["spec"]["election"]["selector"] = json!({"matchLabels": labels});
                lock
            };
            create_all(&tenant, ELECTIONS, lock).await?;
            let is_judged = |v: &Version<_>| reason_of(&v.object, "Accepted").is_some();
            until_all(&recorder, ELECTIONS, JUDGED, "judged", is_judged).await?;
            victim.check("beside 1,000 elections on one key").await
        };
        tokio::select! {
            attacked = attacked => attacked,
            failed = change => failed,
        }
    })
    .await
}

pub(crate) async fn frequent_heartbeats_and_renewals_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let recorder = watch_all(&bench).await?;
    let tenant = as_tenant(&bench).await?;
    Bench::beside(&bench, "heartbeats-victim", async |other| {
        let victim = Victim::new(other).await?;
        let lease = |number: usize| {
            let bench = &bench;
            let lease = json!({"metadata": {"name": format!("many-{number}")}, "spec": {"holderIdentity": "one"}});
            async move { bench.create::<Lease>(lease).await.map(drop) }
        };
        futures::stream::iter(0..HEARTBEATS).map(lease).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let lock = |number: usize| {
            let name = format!("many-{number}");
            if number >= HEARTBEATS {
                return with(claim(&name, &name, None, TTL), json!({"renewInterval": "1s"}));
            }
            let beats = json!({"renewInterval": "3s", "claim": {"identity": name, "heartbeat": "15s"}});
            with(claim(&name, &name, None, 3 * TTL), beats)
        };
        create_all(&tenant, HEARTBEATS + RENEWED, lock).await?;
        until_all(&recorder, HEARTBEATS + RENEWED, JUDGED, "held", |v| is_held(&v.object)).await?;
        victim.check("beside 1,000 claims that are renewed every second").await
    })
    .await
}
