//! The operator undoes every change of a user to the objects of a quorum.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::StatefulSet,
        core::v1::{Secret, Service},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
};
use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use super::helpers::{pod_uids, quorum_and_lock};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::SOON,
    poll,
    record::{Version, Watchable},
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
/// An update that a change caused would be visible within this time.
const QUIET: Duration = Duration::from_secs(3);
/// The limit for changes of Secrets, which the operator reads once a minute and does not watch.
const SECRET_LIMIT: Duration = Duration::from_secs(75);

/// The compared fields of an object: its labels, and all fields except metadata and status.
fn essence<K: Resource + Serialize>(object: &K) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(object)?;
    let fields = value.as_object_mut().context("an object")?;
    fields.remove("status");
    fields.insert("metadata".into(), serde_json::to_value(&object.meta().labels)?);
    Ok(value)
}

/// Changes an object by kubectl, and waits until it is as before.
async fn mended<K>(bench: &Bench, name: &str, limit: Duration, change: &[&str]) -> anyhow::Result<()>
where
    K: Watchable + Resource<Scope = NamespaceResourceScope>,
{
    let recorder = bench.record::<K>(name).await?;
    let before = essence(&bench.api::<K>().get(name).await?)?;
    let (mark, start) = (recorder.mark(), bench.now());
    // kubectl would wait until no object has the name, and can mistake the new object for the old one.
    let at_once: &[&str] = if change.first() == Some(&"delete") { &["--wait=false"] } else { &[] };
    bench.kubectl(&[change, at_once].concat()).await?;
    let is_other = |object: &K| essence(object).ok().as_ref() != Some(&before);
    let changed = recorder.until_after(mark, SOON, "changed or gone", |v| v.gone || is_other(&v.object)).await?;
    let later = |v: &Version<K>| v.at > changed.at && !v.gone && !is_other(&v.object);
    recorder.until_after(mark, limit, &format!("as before, after kubectl {}", change.join(" ")), later).await?;
    bench.figures.add(&format!("{} touched -> mended", K::kind(&())), bench.now().since(start));
    Ok(())
}

pub(crate) async fn deletions_edits_and_additions_are_mended(bench: Bench) -> anyhow::Result<()> {
    let (_quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let before = pod_uids(&bench, 3).await?;
    mended::<Service>(&bench, "q-0", SOON, &["delete", "service", "q-0"]).await?;
    mended::<PodDisruptionBudget>(&bench, "q", SOON, &["delete", "pdb", "q"]).await?;
    mended::<NetworkPolicy>(&bench, "q", SOON, &["delete", "networkpolicy", "q"]).await?;
    let orphan = ["delete", "statefulset", "q-1", "--cascade=orphan"];
    mended::<StatefulSet>(&bench, "q-1", SOON, &orphan).await?;
    poll::until(SOON, "four Events tell of the deleted objects", async || {
        let events = bench.kubectl(&["get", "events", "--field-selector=reason=Mended", "-o", "name"]).await?;
        Ok((events.lines().count() >= 4).then_some(()))
    })
    .await?;

    for (name, patch) in [
        ("q-0", r#"{"spec":{"template":{"spec":{"containers":[{"name":"extra","image":"x"}]}}}}"#),
        ("q-0", r#"{"spec":{"template":{"spec":{"volumes":[{"name":"extra","emptyDir":{}}]}}}}"#),
        ("q-1", r#"{"spec":{"template":{"metadata":{"annotations":{"restarted":"now"}}}}}"#),
        ("q-1", r#"{"spec":{"updateStrategy":{"type":"RollingUpdate"},"replicas":1}}"#),
        ("q-2", r#"{"metadata":{"labels":{"extra":"x","redlock-operator.io/quorum":null}}}"#),
    ] {
        let change = ["patch", "statefulset", name, "--type=strategic", "--patch", patch];
        mended::<StatefulSet>(&bench, name, SOON, &change).await?;
    }
    let port = r#"{"spec":{"ports":[{"name":"extra","port":7000}],"publishNotReadyAddresses":false}}"#;
    mended::<Service>(&bench, "q-0", SOON, &["patch", "service", "q-0", "--patch", port]).await?;
    let budget = r#"{"spec":{"maxUnavailable":3}}"#;
    mended::<PodDisruptionBudget>(&bench, "q", SOON, &["patch", "pdb", "q", "--type=merge", "--patch", budget]).await?;
    let open = r#"{"spec":{"ingress":[{}]}}"#;
    let change = ["patch", "networkpolicy", "q", "--type=merge", "--patch", open];
    mended::<NetworkPolicy>(&bench, "q", SOON, &change).await?;
    // The operator must keep annotations of other controllers.
    bench.kubectl(&["annotate", "service", "q-0", "other.example/note=kept"]).await?;
    poll::stays(QUIET, "the pods are those of before", async || Ok(pod_uids(&bench, 3).await? == before)).await?;
    let service = bench.api::<Service>().get("q-0").await?;
    let is_kept = service.metadata.annotations.is_some_and(|all| all.contains_key("other.example/note"));
    ensure!(is_kept, "the annotation of another controller is gone");
    check_held_throughout(&lock.recorder.versions()).map(drop)
}

pub(crate) async fn secrets_are_mended_without_new_passwords(bench: Bench) -> anyhow::Result<()> {
    let (_quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let before = pod_uids(&bench, 3).await?;
    let edit = r#"{"data":{"redis.conf":"YXBwZW5kb25seSB5ZXM=","extra":"eA=="}}"#;
    mended::<Secret>(&bench, "q-config", SECRET_LIMIT, &["patch", "secret", "q-config", "--patch", edit]).await?;
    mended::<Secret>(&bench, "q-auth", SECRET_LIMIT, &["delete", "secret", "q-auth"]).await?;
    mended::<Secret>(&bench, "q-client-outside", SECRET_LIMIT, &["delete", "secret", "q-client-outside"]).await?;
    ensure!(pod_uids(&bench, 3).await? == before, "a pod was replaced");
    check_held_throughout(&lock.recorder.versions()).map(drop)
}
