use super::*;

#[test]
fn a_stateful_set_replaces_its_pod_only_after_a_deletion() {
    let mut world = World::new(1, 3);
    world.create(Kind::StatefulSet, stateful_set("m"));
    world.run(8_000);
    let pod = world.pod("m-0").unwrap();
    let container = world.container(pod.uid());
    assert_eq!(status(&pod, "/phase"), "Running");
    assert_eq!(status(&pod, "/containerStatuses/0/containerID"), &json!(container));
    let set = |world: &World| world.api.get(Kind::StatefulSet, "default", "m").unwrap();
    assert_eq!(pod.label("controller-revision-hash"), set(&world).value["status"]["updateRevision"].as_str());
    assert_eq!(set(&world).value["status"]["readyReplicas"], 1);
    let image = |value: &mut Value| value["spec"]["template"]["spec"]["containers"][0]["image"] = json!("new");
    world.api.edit(Kind::StatefulSet, ("default", "m"), Part::Main, by(world.now, "test"), image).unwrap();
    world.run(5_000);
    assert_eq!(world.pod("m-0").unwrap().uid(), pod.uid());
    assert_eq!(set(&world).value["status"]["observedGeneration"], 2);
    assert_ne!(pod.label("controller-revision-hash"), set(&world).value["status"]["updateRevision"].as_str());
    world.delete(Kind::Pod, "m-0", &background());
    world.run(15_000);
    let next = world.pod("m-0").unwrap();
    assert_ne!(next.uid(), pod.uid());
    assert_eq!(next.label("controller-revision-hash"), set(&world).value["status"]["updateRevision"].as_str());
    assert!(!world.cluster.truth().is_running(&container) && world.cluster.truth().pod_runs(next.uid()));
    assert!(
        world.happenings.iter().any(|is| matches!(is, Happening::Ended(running) if running.container == container))
    );
}

#[test]
fn a_kubelet_reports_a_container_restart_with_a_delay() {
    let mut world = World::new(2, 1);
    world.create(Kind::StatefulSet, stateful_set("m"));
    world.run(8_000);
    let pod = world.pod("m-0").unwrap();
    let first = world.container(pod.uid());
    world.inflict(Fault::Exit { container: first.clone(), code: 1 });
    assert!(!world.cluster.truth().is_running(&first));
    let stale = world.pod("m-0").unwrap();
    assert!(
        status(&stale, "/containerStatuses/0/state/running").is_object(),
        "the kubelet has not noticed the end yet"
    );
    world.run(20_000);
    let pod = world.pod("m-0").unwrap();
    let second = world.container(pod.uid());
    assert_ne!(first, second);
    assert_eq!(status(&pod, "/containerStatuses/0/containerID"), &json!(second));
    assert_eq!(status(&pod, "/containerStatuses/0/lastState/terminated/containerID"), &json!(first));
    assert_eq!(status(&pod, "/containerStatuses/0/restartCount"), 1);
}

#[test]
fn secrets_are_mounted_before_a_container_starts() {
    let mut world = World::new(3, 1);
    let spec = json!({"containers": [{"name": "redis"}], "volumes": [{"name": "config", "secret": {
        "secretName": "s", "items": [{"key": "acl-1", "path": "users.acl"}]}}]});
    world.create(Kind::Pod, json!({"metadata": {"name": "p"}, "spec": spec}));
    world.run(10_000);
    let pod = world.pod("p").unwrap();
    assert!(!world.cluster.truth().pod_runs(pod.uid()), "its Secret is missing");
    world.create(Kind::Secret, json!({"metadata": {"name": "s"}, "data": {"acl-1": "dXNlcg=="}}));
    world.run(10_000);
    let files = world.happenings.iter().find_map(|happening| match happening {
        Happening::Started { files, .. } => Some(files.clone()),
        Happening::Ended(_) => None,
    });
    assert_eq!(files.unwrap()[&("config".to_owned(), "users.acl".to_owned())], "user");
}

#[test]
fn a_job_tries_again_and_its_end_takes_its_claims_along() {
    let mut world = World::new(4, 2);
    let template = json!({"metadata": {"annotations": {"simulation/run-millis": "2000", "simulation/exit-code": "1"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "work"}]}});
    let job =
        world.create(Kind::Job, json!({"metadata": {"name": "j"}, "spec": {"backoffLimit": 1, "template": template}}));
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job.uid()}]);
    let claim = json!({"metadata": {"name": "claim", "ownerReferences": owner}, "spec": {"key": "k", "claim": {"identity": "j"}}});
    world.create(Kind::DistributedLock, claim);
    world.run(40_000);
    let job = world.api.get(Kind::Job, "default", "j").unwrap();
    assert_eq!(job.value["status"]["failed"], 2);
    assert_eq!(job.value["status"]["conditions"][0]["type"], "Failed");
    assert_eq!(world.api.objects(Kind::Pod).count(), 2);
    assert_eq!(world.cluster.truth().running().count(), 0);
    world.delete(Kind::Job, "j", &background());
    world.run(20_000);
    let left = [Kind::Job, Kind::Pod, Kind::DistributedLock].map(|kind| world.api.objects(kind).count());
    assert_eq!(left, [0, 0, 0]);
}

#[test]
fn a_suspended_job_ends_its_pods() {
    let mut world = World::new(5, 2);
    let template = json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{"name": "work"}]}});
    world.create(Kind::Job, json!({"metadata": {"name": "j"}, "spec": {"template": template}}));
    world.run(10_000);
    assert_eq!(world.cluster.truth().running().count(), 1);
    let suspend = |value: &mut Value| value["spec"]["suspend"] = json!(true);
    world.api.edit(Kind::Job, ("default", "j"), Part::Main, by(world.now, "test"), suspend).unwrap();
    world.run(15_000);
    assert_eq!((world.cluster.truth().running().count(), world.api.objects(Kind::Pod).count()), (0, 0));
}

#[test]
fn a_deployment_rolls_without_going_below_its_size() {
    let mut world = World::new(6, 3);
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "app"}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "template": template});
    world.create(Kind::Deployment, json!({"metadata": {"name": "d"}, "spec": spec}));
    world.run(15_000);
    let ready = |world: &World| {
        world.api.objects(Kind::Pod).filter(|pod| workloads::is_ready(pod) && !pod.is_deleting()).count()
    };
    assert_eq!(ready(&world), 3);
    let before: Vec<String> = world.api.objects(Kind::Pod).map(|pod| pod.uid().to_owned()).collect();
    let image = |value: &mut Value| value["spec"]["template"]["spec"]["containers"][0]["image"] = json!("new");
    world.api.edit(Kind::Deployment, ("default", "d"), Part::Main, by(world.now, "test"), image).unwrap();
    for _ in 0..60 {
        world.run(1_000);
        assert!(ready(&world) >= 3);
    }
    assert_eq!(world.api.objects(Kind::Pod).count(), 3);
    assert!(world.api.objects(Kind::Pod).all(|pod| !before.iter().any(|uid| uid == pod.uid())));
}

#[test]
fn a_namespace_is_deleted_after_all_its_objects() {
    let mut world = World::new(7, 2);
    world.create(Kind::Namespace, json!({"metadata": {"name": "shop"}}));
    let test = |now| by(now, "test");
    let lock =
        json!({"metadata": {"name": "l", "finalizers": ["x/y"]}, "spec": {"key": "k", "claim": {"identity": "i"}}});
    world.api.create(Kind::DistributedLock, "shop", lock, test(world.now)).unwrap();
    world.api.create(Kind::StatefulSet, "shop", stateful_set("m"), test(world.now)).unwrap();
    world.run(8_000);
    assert_eq!(world.cluster.truth().running().count(), 1);
    world.delete(Kind::Namespace, "shop", &background());
    world.run(20_000);
    assert_eq!(world.cluster.truth().running().count(), 0);
    assert!(world.api.get(Kind::Namespace, "", "shop").is_some());
    let done = |value: &mut Value| value["metadata"]["finalizers"] = json!([]);
    world.api.edit(Kind::DistributedLock, ("shop", "l"), Part::Main, test(world.now), done).unwrap();
    world.run(8_000);
    assert!(world.api.get(Kind::Namespace, "", "shop").is_none());
}

#[test]
fn init_containers_run_one_after_another() {
    let mut world = World::new(8, 1);
    let spec = json!({"initContainers": [{"name": "one"}, {"name": "two"}], "containers": [{"name": "app"}], "restartPolicy": "Never"});
    let annotations = json!({"simulation/run-millis": "3000"});
    world.create(Kind::Pod, json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec}));
    world.run(30_000);
    let names: Vec<_> = world
        .happenings
        .iter()
        .map(|happening| match happening {
            Happening::Started { running, .. } => format!("+{}", running.name),
            Happening::Ended(running) => format!("-{}", running.name),
        })
        .collect();
    assert_eq!(names, ["+one", "-one", "+two", "-two", "+app", "-app"]);
    assert_eq!(status(&world.pod("p").unwrap(), "/phase"), "Succeeded");
}
