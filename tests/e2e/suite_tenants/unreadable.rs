//! Claims that the operator's types cannot parse.
//!
//! The schema refuses them. Those that an older schema admitted harm only themselves.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
};
use redlock_operator::api::DistributedLock;
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    operators, poll,
    quorums::Quorum,
    suite_main::generated_specs::judged,
};

const CRD: &str = "distributedlocks.redlock-operator.io";
/// More hours than 63 bits of nanoseconds.
const UNREADABLE: &str = "9999999h";
const MAX_TTL: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(5);
/// The limit for the end of the validity, one rejoin delay, and the operator's start.
const ENDED: Duration = Duration::from_secs(60);

/// Locks as JSON, because our types cannot parse all of them.
fn locks(bench: &Bench) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<DistributedLock>(&());
    Api::namespaced_with(bench.cluster.client.clone(), &bench.namespace, &kind)
}

async fn lock(bench: &Bench, name: &str) -> anyhow::Result<Option<Value>> {
    Ok(locks(bench).get_opt(name).await?.map(|lock| json!(lock)))
}

fn unreadable(name: &str, key: &str) -> Value {
    let mut object = claim(name, key, Some("q"), TTL);
    object["apiVersion"] = json!("redlock-operator.io/v1alpha1");
    object["kind"] = json!("DistributedLock");
    object["spec"]["ttlAfterFinished"] = json!(UNREADABLE);
    object
}

/// The verdict of the API server on an object, which it does not store.
async fn verdict(bench: &Bench, object: &Value) -> anyhow::Result<Result<(), String>> {
    judged(&locks(bench), object, true).await
}

/// The schema without the rules about the two fields that older schemas did not limit.
fn loosened(mut crd: Value) -> Value {
    let spec = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    for name in ["ttlAfterFinished", "minHold"] {
        if let Some(field) = spec["properties"][name].as_object_mut() {
            field.remove("x-kubernetes-validations");
        }
        if let Some(rules) = spec["x-kubernetes-validations"].as_array_mut() {
            rules.retain(|rule| !rule["rule"].as_str().is_some_and(|rule| rule.contains(name)));
        }
    }
    crd
}

/// Runs a test while the API server accepts objects that our types cannot parse, like an older schema.
async fn with_a_loose_schema(bench: &Bench, test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let crds = Api::<CustomResourceDefinition>::all(bench.cluster.client.clone());
    let tight = crds.get(CRD).await?;
    let replace = async |wanted: Value| {
        let mut crd: CustomResourceDefinition = serde_json::from_value(wanted)?;
        crd.metadata.resource_version = crds.get(CRD).await?.metadata.resource_version;
        crds.replace(CRD, &PostParams::default(), &crd).await?;
        anyhow::Ok(())
    };
    let until_taken = async |taken: bool| {
        let ask =
            || async { Ok((verdict(bench, &unreadable("probe", "probe")).await?.is_ok() == taken).then_some(())) };
        poll::until(SOON * 3, "the API server uses the schema", ask).await
    };
    let done = async {
        replace(loosened(json!(tight))).await?;
        until_taken(true).await?;
        test.await
    }
    .await;
    replace(json!(tight)).await?;
    until_taken(false).await?;
    done
}

/// Stores unreadable objects while no operator runs.
///
/// It creates one unreadable claim, makes two held claims unreadable, and deletes one of these.
async fn store_unreadable(bench: &Bench) -> anyhow::Result<()> {
    let patch = |field: &str| json!({"spec": {field: UNREADABLE}}).to_string();
    with_a_loose_schema(bench, async {
        let free = serde_json::from_value(unreadable("free", "free"))?;
        locks(bench).create(&PostParams::default(), &free).await?;
        bench.patch("dlock", "held", &patch("ttlAfterFinished")).await?;
        bench.patch("dlock", "going", &patch("minHold")).await
    })
    .await?;
    bench.kubectl(&["delete", "dlock", "going", "--wait=false"]).await.map(drop)
}

fn condition<'a>(lock: &'a Value, type_: &str) -> Option<&'a Value> {
    let conditions = lock.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == type_)
}

fn is_reported(lock: &Value) -> bool {
    condition(lock, "Accepted").is_some_and(|accepted| {
        accepted["reason"] == "Unreadable" && accepted["message"].as_str().is_some_and(|text| text.contains(UNREADABLE))
    })
}

pub(crate) async fn unreadable_stored_claims_do_not_affect_other_claims(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    for name in ["held", "going"] {
        Lock::create(&bench, claim(name, name, Some("q"), TTL)).await?.held(SOON).await?;
    }
    operators::while_stopped(&bench.cluster, store_unreadable(&bench)).await?;
    let before = operators::restarts(&bench.cluster).await?;

    // The operator serves other claims, on their own keys and on the key of an unreadable claim.
    Lock::create(&bench, claim("other", "other", Some("q"), TTL)).await?.held(SOON * 3).await?;
    Lock::create(&bench, claim("next", "held", Some("q"), TTL)).await?.held(ENDED).await?;

    let ended = |lock: &Value| is_reported(lock) && lock.pointer("/status/holder").is_none();
    for (name, what) in [("held", "its hold has ended"), ("free", "it is told")] {
        let ask = || async { Ok(lock(&bench, name).await?.filter(ended)) };
        let last = poll::until(ENDED, &format!("{name}: {what}"), ask).await?;
        ensure!(name == "free" || condition(&last, "Finished").is_some_and(|it| it["status"] == "True"), "{last}");
    }
    let gone = || async { Ok(lock(&bench, "going").await?.is_none().then_some(())) };
    poll::until(ENDED, "a held lock that cannot be read goes away when it is deleted", gone).await?;
    let event = ["get", "events", "--field-selector=involvedObject.name=free,reason=Unreadable", "-o", "name"];
    let is_told = async || Ok((!bench.kubectl(&event).await?.is_empty()).then_some(()));
    poll::until(SOON, "an Event says it", is_told).await?;
    let pods = operators::pods(&bench.cluster).await?;
    let pod = pods.first().and_then(|pod| pod.metadata.name.clone()).context("no replica")?;
    let metrics = operators::read(&bench.cluster, &pod, "metrics").await?;
    ensure!(metrics.contains(r#"redlock_unreadable_objects{kind="DistributedLock"} 2"#), "{metrics}");
    ensure!(operators::restarts(&bench.cluster).await? == before, "an operator pod was restarted");

    // The repaired object is an ordinary claim.
    bench.patch("dlock", "free", r#"{"spec":{"ttlAfterFinished":"1h"}}"#).await?;
    let held = |lock: &Value| condition(lock, "Held").is_some_and(|held| held["status"] == "True");
    poll::until(SOON, "held once it can be read", || async { Ok(lock(&bench, "free").await?.filter(held)) }).await?;
    Ok(())
}

/// Our types must parse every unusual value that the API server accepts.
pub(crate) async fn values_that_fit_the_schema_are_read(bench: Bench) -> anyhow::Result<()> {
    let refused = verdict(&bench, &unreadable("bad", "k")).await?;
    ensure!(refused.as_ref().is_err_and(|why| why.contains("spec.ttlAfterFinished")), "{refused:?}");
    let numbers = ["0", "1", "999999", "2562047", "2562048", "9999999", "9999999999", "18446744073709551616"];
    let units = ["ms", "s", "m", "h"];
    let mut texts: Vec<_> = numbers.iter().flat_map(|number| units.map(|unit| format!("{number}{unit}"))).collect();
    texts.extend(["999999h999999h99999h", "1h1m1s1ms", "1s1s", "", "1", "-1s", "1.5s", "1d"].map(str::to_owned));
    let (mut taken, mut refused) = (0, 0);
    for text in &texts {
        for field in ["ttl", "renewInterval", "minHold", "maxHold", "waitTimeout", "lockDelay", "ttlAfterFinished"] {
            let mut object = unreadable("probe", "probe");
            object["spec"]["ttlAfterFinished"] = json!("1h");
            object["spec"][field] = json!(text);
            if verdict(&bench, &object).await?.is_err() {
                refused += 1;
                continue;
            }
            taken += 1;
            let read = serde_json::from_value::<DistributedLock>(object);
            ensure!(read.is_ok(), "the API server accepts {field}: {text}, but the operator cannot parse it: {read:?}");
        }
    }
    ensure!(taken > 20 && refused > 20, "{taken} taken, {refused} refused, so the test covers only one side");
    Ok(())
}
