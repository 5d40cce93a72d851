use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use redlock_api::GoDuration;

use super::*;

fn post() -> PostParams {
    PostParams { field_manager: Some("tests".into()), ..PostParams::default() }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_replaced_only_on_the_version_that_was_read() {
    let lab = Lab::new();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    let made = api.create(&post(), &lock("a")).await.unwrap();
    let mut first = made.clone();
    first.status = Some(serde_json::from_value(json!({"transitions": 1})).unwrap());
    first.spec.suspend = true;
    let written = api.replace_status("a", &post(), &first).await.unwrap();
    assert!(!written.spec.suspend, "a write of the status changes only the status");
    assert_eq!(written.metadata.generation, Some(1));
    assert_eq!(code(api.replace_status("a", &post(), &first).await), 409);
    let again = api.replace_status("a", &post(), &written).await.unwrap();
    assert_eq!(again.resource_version(), written.resource_version(), "a write without a change has no new version");
    let mut spec = again.clone();
    spec.spec.suspend = true;
    spec.status = None;
    let spec = api.replace("a", &post(), &spec).await.unwrap();
    assert_eq!((spec.metadata.generation, spec.status), (Some(2), written.status.clone()));
    let mut no_version = written.clone();
    no_version.metadata.resource_version = None;
    assert_eq!(code(api.replace("a", &post(), &no_version).await), 422);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_removed_and_defaults_are_added() {
    let lab = Lab::new();
    let written = {
        let mut inner = lab.lock();
        let by = super::super::By { now: 0, manager: "t" };
        let mut value =
            object("DistributedLock", "a", json!({"key": "k", "claim": {"identity": "i", "new": 1}, "x": {}}));
        value["stray"] = json!(true);
        inner.server.create(super::super::Kind::DistributedLock, "default", value, by).unwrap()
    };
    assert_eq!(written.value["spec"]["ttl"], "10s");
    assert_eq!(written.value["spec"]["claim"], json!({"identity": "i"}));
    assert!(written.value["spec"].get("x").is_none() && written.value.get("stray").is_none());
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    let merge = |patch: Value| {
        let api = api.clone();
        async move { api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await }
    };
    assert_eq!(code(merge(json!({"spec": {"key": "other"}})).await), 422);
    assert_eq!(code(merge(json!({"spec": {"claim": {"identity": "you"}}})).await), 422);
    assert_eq!(code(merge(json!({"spec": {"slots": 0}})).await), 422);
    assert_eq!(code(merge(json!({"spec": {"validity": "Sometimes"}})).await), 422);
    assert_eq!(code(merge(json!({"spec": {"priority": "high"}})).await), 422);
    assert_eq!(code(merge(json!({"metadata": {"resourceVersion": "1"}})).await), 409);
    let changed = merge(json!({"spec": {"ttl": "20s"}})).await.unwrap();
    assert_eq!(changed.spec.ttl, GoDuration::from_secs(20));
    assert_eq!(changed.metadata.generation, Some(2));
    let quorums: Api<RedisQuorum> = Api::namespaced(lab.client(), "default");
    let made = quorums.create(&post(), &quorum("q")).await.unwrap();
    let patch = |spec: Value| Patch::Merge(json!({"spec": spec}));
    let keys = patch(json!({"keys": "Verbatim"}));
    assert_eq!(code(quorums.patch("q", &PatchParams::default(), &keys).await), 422);
    assert_eq!(code(quorums.patch("q", &PatchParams::default(), &patch(json!({"members": 2}))).await), 422);
    assert_eq!(made.spec, quorum("q").spec);
}

#[tokio::test(start_paused = true)]
async fn deletion_applies_preconditions_finalizers_and_generations() {
    let lab = Lab::new();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    let mut held = lock("a");
    held.metadata.finalizers = Some(vec!["x/y".into()]);
    let made = api.create(&post(), &held).await.unwrap();
    let by_uid = |uid: &str| DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.into()), resource_version: None }),
        ..DeleteParams::default()
    };
    assert_eq!(code(api.delete("a", &by_uid("other")).await), 409);
    let checked = api.delete("a", &by_uid(&made.uid().unwrap()).dry_run()).await.unwrap().left().unwrap();
    assert_eq!(checked.metadata.deletion_timestamp, None, "a dry run deletes nothing");
    let ending = api.delete("a", &by_uid(&made.uid().unwrap())).await.unwrap().left().unwrap();
    assert_eq!(ending.metadata.generation, Some(2));
    assert_eq!(api.create(&post(), &lock("a")).await.map_err(|_| ()), Err(()), "its name is taken until it is gone");
    let finalizers = |list: Value| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    assert_eq!(code(api.patch("a", &PatchParams::default(), &finalizers(json!(["x/y", "z/z"]))).await), 422);
    api.patch("a", &PatchParams::default(), &finalizers(json!([]))).await.unwrap();
    assert_eq!(code(api.get("a").await), 404);
    let again = api.create(&post(), &lock("a")).await.unwrap();
    assert_ne!(again.uid(), made.uid());
    // The request has the metadata of a deleted object with the same name.
    assert_eq!(code(api.replace_status("a", &post(), &made).await), 409);
    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert_eq!(code(api.replace_status("a", &post(), &made).await), 409, "no object has its UID");
    assert_eq!(code(api.delete("a", &DeleteParams::default()).await), 404);
}

#[tokio::test(start_paused = true)]
async fn annotations_name_their_author() {
    let lab = Lab::new();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    api.create(&post(), &lock("a")).await.unwrap();
    let patch = |name: &str, value: Value| Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
    let by = |manager: &str| PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    api.patch("a", &by("ann"), &patch("one", json!("1"))).await.unwrap();
    let found = api.patch("a", &by("bob"), &patch("two", json!("2"))).await.unwrap();
    let managers = |lock: &DistributedLock| -> Vec<(String, String)> {
        let entry = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
            let fields = entry.fields_v1.as_ref().unwrap().0.pointer("/f:metadata/f:annotations").unwrap().clone();
            (entry.manager.clone().unwrap(), fields.as_object().unwrap().keys().cloned().collect())
        };
        lock.managed_fields().iter().map(entry).collect()
    };
    assert_eq!(managers(&found), [("ann".into(), "f:one".into()), ("bob".into(), "f:two".into())]);
    let found = api.patch("a", &by("cid"), &patch("one", json!("3"))).await.unwrap();
    assert_eq!(managers(&found), [("bob".into(), "f:two".into()), ("cid".into(), "f:one".into())]);
    let found = api.patch("a", &by("cid"), &patch("two", Value::Null)).await.unwrap();
    assert_eq!(managers(&found), [("cid".into(), "f:one".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_moment_comes_through() {
    let lab = Lab::new();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    lab.lock().refusals = vec![ApiServer::too_many_requests(1)];
    match api.get("a").await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 1));
        }
        other => panic!("{other:?}"),
    }
}
