//! The role `holder`: an application takes locks by claims, and changes no other objects.

use std::time::Duration;

use anyhow::{bail, ensure};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use redlock_operator::api::{DistributedLock, RedisQuorum};
use serde_json::{Value, json};

use super::requests::{client_of, pod_of};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, token, with},
    operators::HOLDER_ROLE,
    quorums::member_of,
    record::Version,
    suite_lock::support::{election, finished},
};

const TTL: Duration = Duration::from_secs(4);
const OWN: &str = "annotate and delete your own claims";
const SPEC: &str = "create claims for pods and identities, and change no specification";

/// Checks that the API server refused the request with this word in its error.
fn refused<T>(what: &str, result: Result<T, kube::Error>, word: &str) -> anyhow::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.message.contains(word) => Ok(()),
        Err(error) => bail!("{what}: refused without {word:?}: {error}"),
        Ok(_) => bail!("{what}: it was not refused"),
    }
}

/// A claim of an account, as `redlock` creates it with this account.
fn claim_by(bench: &Bench, account: &str, name: &str) -> Value {
    let mut lock = claim(name, name, None, TTL);
    let user = format!("system:serviceaccount:{}:{account}", bench.namespace);
    lock["metadata"]["annotations"] = json!({"redlock-operator.io/created-by": user});
    lock
}

/// The locks for a new pod of this account.
async fn locks_of(bench: &Bench, account: &str) -> anyhow::Result<Api<DistributedLock>> {
    let pod = pod_of(bench, &format!("{account}-0"), account, account).await?;
    Ok(Api::namespaced(client_of(bench, account, Some(&pod)).await?, &bench.namespace))
}

async fn created(bench: &Bench, by: &Api<DistributedLock>, lock: Value) -> anyhow::Result<Lock> {
    let lock: DistributedLock = serde_json::from_value(lock)?;
    let name = lock.metadata.name.clone().unwrap_or_default();
    let recorder = bench.record::<DistributedLock>(&name).await?;
    by.create(&PostParams::default(), &lock).await?;
    Ok(Lock { bench: bench.clone(), name, recorder })
}

pub(crate) async fn an_application_changes_only_its_own_claims(bench: Bench) -> anyhow::Result<()> {
    for account in ["app", "other"] {
        bench.create_account(account, HOLDER_ROLE).await?;
    }
    let (app, other) = (locks_of(&bench, "app").await?, locks_of(&bench, "other").await?);
    let patch = async |name: &str, patch: Value| app.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    // An application cannot create elections and claims of Jobs, because the holders would be pods and Jobs of other owners.
    let of_pods: DistributedLock = serde_json::from_value(election("mine", "other", TTL))?;
    refused("an election", app.create(&PostParams::default(), &of_pods).await, SPEC)?;
    let of_job = with(claim_by(&bench, "app", "of-job"), json!({"claim": {"jobName": "wipe"}}));
    let of_job: DistributedLock = serde_json::from_value(of_job)?;
    refused("a claim for a Job", app.create(&PostParams::default(), &of_job).await, SPEC)?;

    let scheduler = Lock::create(&bench, election("scheduler", "other", TTL)).await?;
    let theirs = created(&bench, &other, claim_by(&bench, "other", "theirs")).await?;
    for lock in [&scheduler, &theirs] {
        let held = token(&lock.held(SOON).await?.object)?;
        let name = lock.name.as_str();
        for spec in [json!({"suspend": true}), json!({"maxHold": "1s"})] {
            refused(name, patch(name, json!({"spec": spec})).await, SPEC)?;
        }
        let owner =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}]);
        let user = format!("system:serviceaccount:{}:app", bench.namespace);
        for metadata in [
            json!({"annotations": {"redlock-operator.io/step-down": "mine"}}),
            json!({"annotations": {"redlock-operator.io/created-by": user}}),
            json!({"ownerReferences": owner}),
        ] {
            refused(name, patch(name, json!({"metadata": metadata})).await, OWN)?;
        }
        let word = json!({"metadata": {"annotations": {"redlock-operator.io/release": held.to_string()}}});
        refused(name, patch(name, word).await, "the holder sets release")?;
        refused(name, app.delete(name, &DeleteParams::default()).await, OWN)?;
        ensure!(is_held(&lock.recorder.last()?.object), "{name} is no longer held");
        ensure!(token(&lock.recorder.last()?.object)? == held, "{name} was given to another holder");
    }
    let selector = json!({"spec": {"election": {"selector": {"matchLabels": {"app": "app"}}}}});
    refused("another selector", patch("scheduler", selector).await, SPEC)?;

    // An application can release and delete its own claim.
    let mine = created(&bench, &app, claim_by(&bench, "app", "mine")).await?;
    let held = token(&mine.held(SOON).await?.object)?;
    patch("mine", json!({"metadata": {"annotations": {"redlock-operator.io/release": held.to_string()}}})).await?;
    finished(&mine, "Released", SOON).await?;
    app.delete("mine", &DeleteParams::default()).await?;
    Ok(())
}

pub(crate) async fn a_foreign_secret_is_sent_to_no_address(bench: Bench) -> anyhow::Result<()> {
    let arguments = ["create", "secret", "generic", "orders", "--from-literal=username=o", "--from-literal=password=p"];
    bench.kubectl(&arguments).await?;
    let external = json!([{"name": "vm", "address": "192.0.2.2:7100", "secretRef": {"name": "orders"}}]);
    let recorder = bench.record::<RedisQuorum>("q").await?;
    let spec = json!({"members": 0, "external": external});
    bench.create::<RedisQuorum>(json!({"metadata": {"name": "q"}, "spec": spec})).await?;
    let says_why = |version: &Version<RedisQuorum>| {
        let message = member_of(&version.object, "vm").and_then(|member| member.message.clone()).unwrap_or_default();
        message.contains("Secret orders is not for this RedisQuorum") && message.contains("set the label")
    };
    recorder.until(SOON, "the member says which label is missing", says_why).await.map(drop)
}
