use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher as watch};
use kube::{Api, ResourceExt};

use super::*;

type Context = (Api<DistributedLock>, Arc<Mutex<Vec<String>>>);

/// Describes an event of a watcher.
fn summary(event: &Event<DistributedLock>) -> String {
    match event {
        Event::Init => "init".into(),
        Event::InitApply(lock) => format!("listed {}", lock.name_any()),
        Event::InitDone => "done".into(),
        Event::Apply(lock) => format!("applied {}", lock.name_any()),
        Event::Delete(lock) => format!("deleted {}", lock.name_any()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_is_resumed_and_lists_again_only_after_410() {
    let lab = Lab::new();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    let events = watch(Api::<DistributedLock>::all(lab.client()), watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events.map(|event| summary(&event.unwrap_or(Event::Init))));
    let post = PostParams::default();
    api.create(&post, &lock("a")).await.unwrap();
    let first: Vec<_> = events.by_ref().take(3).collect().await;
    assert_eq!(first, ["init", "listed a", "done"]);
    api.create(&post, &lock("b")).await.unwrap();
    assert_eq!(events.next().await.unwrap(), "applied b");
    lab.cut();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(events.next().await.unwrap(), "deleted a", "the watch resumes without a loss");
    let lists = |lab: &Lab| lab.lock().requests.iter().filter(|request| request.contains("limit=")).count();
    assert_eq!(lists(&lab), 1);
    // Cut the watch after the server has forgotten changes that the watch has not sent.
    lab.cut();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    api.create(&post, &lock("c")).await.unwrap();
    {
        let mut inner = lab.lock();
        let version = inner.server.version();
        inner.server.compact(version);
    }
    let rest: Vec<_> =
        events.by_ref().filter(|summary| std::future::ready(summary.contains(' '))).take(1).collect().await;
    assert_eq!(rest, ["listed c"], "the watch does not report the deletion of b");
    assert_eq!(lists(&lab), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout_and_is_resumed() {
    let lab = Lab::new();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    let config = watcher::Config::default().timeout(5);
    let mut events = std::pin::pin!(watch(Api::<DistributedLock>::all(lab.client()), config));
    for _ in 0..2 {
        events.try_next().await.unwrap();
    }
    let writes = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        api.create(&PostParams::default(), &lock("late")).await.unwrap();
    };
    let (event, ()) = tokio::join!(events.try_next(), writes);
    assert_eq!(summary(&event.unwrap().unwrap()), "applied late");
    let watches = lab.lock().requests.iter().filter(|request| request.contains("watch=true")).count();
    assert_eq!(watches, 3);
}

#[tokio::test(start_paused = true)]
async fn a_reflector_has_all_objects_after_lag_cuts_and_410() {
    let lab = Lab::new();
    lab.lock().lag = 300;
    let api: Api<ConfigMap> = Api::namespaced(lab.client(), "default");
    let (reader, writer) = reflector::store::<ConfigMap>();
    let follow = reflector(writer, watch(Api::<ConfigMap>::all(lab.client()), watcher::Config::default()));
    let follow = tokio::spawn(follow.default_backoff().for_each(|_| std::future::ready(())));
    reader.wait_until_ready().await.unwrap();
    let names = || reader.state().iter().map(|map| map.name_any()).collect::<BTreeSet<_>>();
    for round in 0..20_u32 {
        let name = format!("m{}", round % 7);
        let made: ConfigMap = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        if round % 3 == 2 || api.create(&PostParams::default(), &made).await.is_err() {
            let _ = api.delete(&name, &DeleteParams::default()).await;
        }
        assert!(round != 0 || names().is_empty(), "the watch lags");
        if round % 4 == 1 {
            lab.cut();
        }
        if round % 5 == 4 {
            let mut inner = lab.lock();
            let version = inner.server.version();
            inner.server.compact(version);
            inner.cuts += 1;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let really: BTreeSet<_> =
        api.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names(), really);
    follow.abort();
}

#[tokio::test(start_paused = true)]
async fn a_controller_holds_its_finalizer_until_it_has_cleaned_up() {
    let lab = Lab::new();
    let api: Api<DistributedLock> = Api::namespaced(lab.client(), "default");
    let cleaned = Arc::new(Mutex::new(Vec::new()));
    let context = Arc::new((api.clone(), cleaned.clone()));
    let reconcile = |lock: Arc<DistributedLock>, context: Arc<Context>| async move {
        let is_deleting = lock.metadata.deletion_timestamp.is_some();
        if is_deleting {
            context.1.lock().unwrap().push(lock.name_any());
        }
        let finalizers = if is_deleting { json!([]) } else { json!(["test/hold"]) };
        let patch = json!({"metadata": {"finalizers": finalizers, "resourceVersion": lock.resource_version()}});
        context.0.patch(&lock.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let controller = Controller::new(Api::<DistributedLock>::all(lab.client()), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), context)
        .for_each(|_| std::future::ready(()));
    let controller = tokio::spawn(controller);
    api.create(&PostParams::default(), &lock("held")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.get("held").await.unwrap().finalizers(), ["test/hold"]);
    let ending = api.delete("held", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(ending.metadata.deletion_timestamp.is_some());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(api.get_opt("held").await.unwrap().is_none());
    assert_eq!(*cleaned.lock().unwrap(), ["held"]);
    controller.abort();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_a_selection_is_deleted_for_its_watch() {
    let lab = Lab::new();
    let api: Api<Pod> = Api::namespaced(lab.client(), "default");
    let config = watcher::Config::default().labels("app in (a, b),!hidden");
    let mut events = std::pin::pin!(watch(Api::<Pod>::all(lab.client()), config));
    api.create(&PostParams::default(), &pod("p", None)).await.unwrap();
    for _ in 0..3 {
        events.try_next().await.unwrap();
    }
    let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {"hidden": value}}}));
    api.patch_metadata("p", &PatchParams::default(), &label(json!("yes"))).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap().unwrap(), Event::Delete(_)));
    api.patch_metadata("p", &PatchParams::default(), &label(Value::Null)).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap().unwrap(), Event::Apply(_)));
}

#[tokio::test(start_paused = true)]
async fn lists_have_pages_of_one_state_and_their_tokens_expire() {
    let lab = Lab::new();
    let api: Api<ConfigMap> = Api::namespaced(lab.client(), "default");
    let make = |name: String| -> ConfigMap { serde_json::from_value(json!({"metadata": {"name": name}})).unwrap() };
    for index in 0..5 {
        api.create(&PostParams::default(), &make(format!("m{index}"))).await.unwrap();
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    api.delete("m3", &DeleteParams::default()).await.unwrap();
    let second = api.list(&ListParams::default().limit(9).continue_token(&token)).await.unwrap();
    let names: Vec<_> = second.iter().map(ResourceExt::name_any).collect();
    assert_eq!((names.join(" ").as_str(), second.metadata.continue_), ("m2 m3 m4", None), "as at the first page");
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    let version = lab.lock().server.version();
    lab.lock().server.compact(version);
    assert_eq!(code(api.list(&ListParams::default().continue_token(&token)).await), 410);
    lab.lock().server.page_size = Some(1);
    let found = watch(api, watcher::Config::default()).take(6);
    let listed = found.filter(|event| std::future::ready(matches!(event, Ok(Event::InitApply(_))))).count().await;
    assert_eq!(listed, 4, "the watcher turns the pages");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_errors_are_lines_that_kube_parses() {
    let lab = Lab::new();
    let request = |version: u64| {
        let uri = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        Request::get(uri).body(Bytes::new()).unwrap()
    };
    let mut inner = lab.lock();
    let version = inner.server.version();
    let Answer::Watch(mut watch) = inner.server.handle(&request(version), 0) else { panic!() };
    assert!(watch.bookmarks && inner.server.pending(&watch).is_none());
    let parse = |lines: &Lines| {
        let text = String::from_utf8(lines.lines.concat()).unwrap();
        serde_json::from_str::<kube::core::WatchEvent<Pod>>(text.trim_end()).unwrap()
    };
    match parse(&inner.server.bookmark(&watch)) {
        kube::core::WatchEvent::Bookmark(mark) => assert_eq!(mark.metadata.resource_version, version.to_string()),
        other => panic!("{other:?}"),
    }
    assert!(inner.server.lines(&mut watch, u64::MAX).lines.is_empty());
    let Answer::Watch(mut old) = inner.server.handle(&request(1), 0) else { panic!() };
    let lines = inner.server.lines(&mut old, u64::MAX);
    match parse(&lines) {
        kube::core::WatchEvent::Error(status) => assert_eq!((status.code, lines.end), (410, true)),
        other => panic!("{other:?}"),
    }
}
