use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, ResourceExt};

use super::super::Kind;
use super::*;

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_when_its_kubelet_confirms_its_end() {
    let lab = Lab::new();
    let api: Api<Pod> = Api::namespaced(lab.client(), "default");
    let post = PostParams::default();
    let made = api.create(&post, &pod("p", Some("n"))).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    let ending = api.delete("p", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(ending.metadata.deletion_grace_period_seconds, Some(30));
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    api.patch_status("p", &PatchParams::default(), &status).await.unwrap();
    let sooner = api.delete("p", &DeleteParams::default().grace_period(5)).await.unwrap().left().unwrap();
    assert_eq!(sooner.metadata.deletion_grace_period_seconds, Some(5));
    api.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(api.get_opt("p").await.unwrap().is_none());
    // The server deletes a pod without a node immediately.
    api.create(&post, &pod("q", None)).await.unwrap();
    api.delete("q", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("q").await.unwrap().is_none());
    // The server deletes an ended pod immediately.
    api.create(&post, &pod("r", Some("n"))).await.unwrap();
    api.patch_status("r", &PatchParams::default(), &Patch::Merge(json!({"status": {"phase": "Failed"}})))
        .await
        .unwrap();
    api.delete("r", &DeleteParams::default()).await.unwrap();
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_patched_and_answered() {
    let lab = Lab::new();
    let api: Api<Pod> = Api::namespaced(lab.client(), "default");
    let made = api.create(&PostParams::default(), &pod("p", Some("n"))).await.unwrap();
    let patch = |uid: Option<String>, version: Option<String>| {
        Patch::Merge(json!({"metadata": {"labels": {"leader": "true"}, "uid": uid, "resourceVersion": version}}))
    };
    let params = PatchParams::default();
    let written = api.patch_metadata("p", &params, &patch(made.uid(), made.resource_version())).await.unwrap();
    assert_eq!(written.labels().get("leader").map(String::as_str), Some("true"));
    assert_eq!(code(api.patch_metadata("p", &params, &patch(made.uid(), made.resource_version())).await), 409);
    assert_eq!(code(api.patch_metadata("p", &params, &patch(Some("other".into()), None)).await), 422);
    let labelled = api.list_metadata(&ListParams::default().labels("leader")).await.unwrap();
    assert_eq!(labelled.items.len(), 1);
    assert_eq!(api.get_metadata("p").await.unwrap().uid(), made.uid());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_in_a_terminating_namespace() {
    let lab = Lab::new();
    let namespaces: Api<Namespace> = Api::all(lab.client());
    namespaces.create(&PostParams::default(), &of(json!({"metadata": {"name": "shop"}}))).await.unwrap();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "shop");
    api.create(&PostParams::default(), &lock("a")).await.unwrap();
    let ending = namespaces.delete("shop", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(ending.status.unwrap().phase.as_deref(), Some("Terminating"));
    assert_eq!(code(api.create(&PostParams::default(), &lock("b")).await), 403);
    assert!(api.get_opt("a").await.unwrap().is_some(), "its controller has not acted yet");
    let elsewhere: Api<DistributedLock> = Api::namespaced(lab.client(), "nowhere");
    assert_eq!(code(elsewhere.create(&PostParams::default(), &lock("a")).await), 404);
}

#[tokio::test(start_paused = true)]
async fn leases_services_and_stateful_sets_match_the_real_server() {
    let lab = Lab::new();
    let leases: Api<Lease> = Api::namespaced(lab.client(), "default");
    let made =
        leases.create(&PostParams::default(), &of(json!({"metadata": {"name": "l"}, "spec": {}}))).await.unwrap();
    let mut next = made.clone();
    next.spec.as_mut().unwrap().holder_identity = Some("me".into());
    leases.replace("l", &PostParams::default(), &next).await.unwrap();
    assert_eq!(code(leases.replace("l", &PostParams::default(), &next).await), 409);
    let services: Api<Service> = Api::namespaced(lab.client(), "default");
    let wanted: Service = of(json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 6379}]}}));
    let made = services.create(&PostParams::default(), &wanted).await.unwrap();
    let ip = made.spec.as_ref().unwrap().cluster_ip.clone().unwrap();
    let mut again = wanted.clone();
    again.metadata.resource_version = made.resource_version();
    let again = services.replace("s", &PostParams::default(), &again).await.unwrap();
    assert_eq!(again.spec.as_ref().unwrap().cluster_ip.as_ref(), Some(&ip));
    assert_eq!(again.resource_version(), made.resource_version(), "defaults do not change the object");
    let sets: Api<StatefulSet> = Api::namespaced(lab.client(), "default");
    let set = |service: &str, image: &str| -> StatefulSet {
        of(
            json!({"metadata": {"name": "q-0"}, "spec": {"serviceName": service, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "redis", "image": image}]}}}}),
        )
    };
    let made = sets.create(&PostParams::default(), &set("q", "1")).await.unwrap();
    assert_eq!((made.metadata.generation, made.status.unwrap().replicas), (Some(1), 0));
    assert_eq!(code(sets.replace("q-0", &PostParams::default(), &set("r", "1")).await), 422);
    let newer = sets.replace("q-0", &PostParams::default(), &set("q", "2")).await.unwrap();
    assert_eq!(newer.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn omitted_fields_are_removed_and_foreign_fields_stay() {
    let lab = Lab::new();
    let secrets: Api<Secret> = Api::namespaced(lab.client(), "default");
    let apply = |labels: Value| {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": labels}});
        let secrets = secrets.clone();
        async move { secrets.patch("s", &PatchParams::apply("us").force(), &Patch::Apply(object)).await.unwrap() }
    };
    apply(json!({"a": "1", "b": "2"})).await;
    let other = Patch::Merge(json!({"metadata": {"labels": {"c": "3"}}}));
    secrets.patch("s", &PatchParams::default(), &other).await.unwrap();
    let now = apply(json!({"a": "1"})).await;
    let labels: Vec<_> = now.labels().keys().cloned().collect();
    assert_eq!(labels, ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn events_are_counted_and_not_kept() {
    let lab = Lab::new();
    let before = lab.lock().server.version();
    let recorder = Recorder::new(lab.client(), Reporter { controller: "t".into(), instance: None });
    let event = Event {
        type_: EventType::Normal,
        reason: "Fenced".into(),
        note: None,
        action: "Fenced".into(),
        secondary: None,
    };
    let reference =
        k8s_openapi::api::core::v1::ObjectReference { namespace: Some("default".into()), ..Default::default() };
    for _ in 0..3 {
        recorder.publish(&event, &reference).await.unwrap();
    }
    let inner = lab.lock();
    assert_eq!(inner.server.events["Fenced"], 3);
    assert_eq!((inner.server.version(), inner.server.objects(Kind::Event).count()), (before, 0));
}
