use super::*;

fn ready(world: &World, node: &str) -> String {
    let node = world.api.get(Kind::Node, "", node).unwrap();
    nodes::ready(&node.value).unwrap()["status"].as_str().unwrap().to_owned()
}

/// A pod on one of three nodes.
///
/// Its node is disconnected.
fn cut_off(seed: u64) -> (World, Shared, String, MachineId) {
    let mut world = World::new(seed, 3);
    world.create(Kind::StatefulSet, stateful_set("m"));
    world.run(8_000);
    let pod = world.pod("m-0").unwrap();
    let (container, machine) = (world.container(pod.uid()), world.machine_of(pod.uid()));
    world.inflict(Fault::Cut(machine));
    (world, pod, container, machine)
}

#[test]
fn a_silent_node_is_unknown_and_its_running_pods_are_deleted() {
    let (mut world, pod, container, machine) = cut_off(1);
    world.run(12_000);
    let node = pod.value["spec"]["nodeName"].as_str().unwrap().to_owned();
    assert_eq!(ready(&world, &node), "Unknown");
    assert!(!world.pod("m-0").unwrap().is_deleting());
    world.run(20_000);
    let ending = world.pod("m-0").unwrap();
    assert!(ending.is_deleting() && ending.uid() == pod.uid(), "the kubelet has not reported the end of the pod");
    assert!(world.cluster.truth().is_running(&container) && world.cluster.truth().is_cut(machine));
    world.inflict(Fault::Heal(machine));
    world.run(20_000);
    assert_eq!(ready(&world, &node), "True");
    assert!(!world.cluster.truth().is_running(&container));
    assert_ne!(world.pod("m-0").unwrap().uid(), pod.uid());
}

#[test]
fn while_most_nodes_are_silent_nothing_is_evicted() {
    let (mut world, _, _, machine) = cut_off(2);
    let other = world.cluster.machines().map(|(id, _)| id).find(|id| *id != machine).unwrap();
    world.inflict(Fault::Cut(other));
    world.run(60_000);
    assert!(!world.pod("m-0").unwrap().is_deleting());
}

#[test]
fn an_outage_of_the_server_makes_all_nodes_unknown_for_a_while() {
    let (mut world, _, _, machine) = cut_off(3);
    world.inflict(Fault::Heal(machine));
    world.run(10_000);
    world.cluster.set_outage(true, world.now);
    let version = world.api.version();
    world.run(20_000);
    assert_eq!(world.api.version(), version, "no component writes");
    world.cluster.set_outage(false, world.now);
    let mut silent = 0;
    for _ in 0..100 {
        world.run(100);
        silent = silent.max(["a", "b", "c"].iter().filter(|node| ready(&world, node) == "Unknown").count());
    }
    assert!(silent > 0, "{silent}");
    assert!(["a", "b", "c"].iter().all(|node| ready(&world, node) == "True"));
}

#[test]
fn a_pod_deleted_by_force_runs_until_its_kubelet_reconnects() {
    let (mut world, pod, container, machine) = cut_off(4);
    world.run(12_000);
    world.inflict(Fault::ForceDelete { namespace: "default".into(), pod: "m-0".into() });
    world.run(20_000);
    let next = world.pod("m-0").unwrap();
    assert!(next.uid() != pod.uid() && world.cluster.truth().pod_runs(next.uid()));
    assert!(world.cluster.truth().is_running(&container));
    world.inflict(Fault::Heal(machine));
    world.run(10_000);
    assert!(!world.cluster.truth().is_running(&container) && world.cluster.truth().pod_runs(next.uid()));
}

#[test]
fn the_pods_of_a_deleted_node_fail_with_unchanged_statuses() {
    let (mut world, pod, container, _) = cut_off(5);
    let version = world.api.version();
    world.inflict(Fault::DeleteNode(pod.value["spec"]["nodeName"].as_str().unwrap().to_owned()));
    world.run(20_000);
    let last = world
        .api
        .changes_after(version)
        .find(|change| change.change == Change::Deleted && change.object.uid() == pod.uid());
    let last = last.unwrap().object.clone();
    assert_eq!(status(&last, "/phase"), "Failed");
    assert!(status(&last, "/containerStatuses/0/state/running").is_object());
    assert!(world.cluster.truth().is_running(&container));
    assert_ne!(world.pod("m-0").unwrap().uid(), pod.uid());
}

#[test]
fn another_machine_takes_the_name_of_a_node_and_starts_its_pods() {
    for same_ids in [false, true] {
        let (mut world, pod, container, machine) = cut_off(6);
        let node = pod.value["spec"]["nodeName"].as_str().unwrap().to_owned();
        let before = world.api.get(Kind::Node, "", &node).unwrap();
        world.inflict(Fault::ReplaceNode { node: node.clone(), same_ids });
        world.run(15_000);
        let after = world.api.get(Kind::Node, "", &node).unwrap();
        assert_ne!(before.uid(), after.uid());
        assert_eq!(status(&before, "/nodeInfo") == status(&after, "/nodeInfo"), same_ids);
        assert!(world.cluster.truth().is_running(&container), "the earlier machine continues to run");
        let twins = world.cluster.truth().running().filter(|running| running.pod_uid == pod.uid()).count();
        assert_eq!(twins, 2);
        let now = world.pod("m-0").unwrap();
        assert_ne!(status(&now, "/containerStatuses/0/containerID"), &json!(container));
        assert_eq!(status(&now, "/containerStatuses/0/lastState/terminated/reason"), "ContainerStatusUnknown");
        world.inflict(Fault::Heal(machine));
        world.run(15_000);
        assert!(!world.cluster.truth().is_running(&container));
    }
}

#[test]
fn a_container_that_was_not_located_runs_with_its_successor() {
    let mut world = World::new(7, 1);
    world.create(Kind::StatefulSet, stateful_set("m"));
    world.run(8_000);
    let uid = world.pod("m-0").unwrap().uid().to_owned();
    let container = world.container(&uid);
    world.inflict(Fault::Lose { container: container.clone(), named: true });
    let mut together = false;
    for _ in 0..100 {
        world.run(100);
        together |= world.cluster.truth().running().count() == 2;
    }
    assert!(together);
    let pod = world.pod("m-0").unwrap();
    assert_eq!(status(&pod, "/containerStatuses/0/lastState/terminated/reason"), "ContainerStatusUnknown");
    assert_eq!(status(&pod, "/containerStatuses/0/lastState/terminated/containerID"), &json!(container));
    world.run(80_000);
    assert_ne!(world.container(&uid), container);
}

#[test]
fn a_pod_can_fail_without_container_statuses() {
    let mut world = World::new(8, 1);
    let spec = json!({"containers": [{"name": "app"}], "terminationGracePeriodSeconds": 5});
    let pod = world.create(Kind::Pod, json!({"metadata": {"name": "p"}, "spec": spec}));
    world.run(8_000);
    world.inflict(Fault::FailWithoutStatuses { namespace: "default".into(), pod: "p".into() });
    let failed = world.pod("p").unwrap();
    assert_eq!((status(&failed, "/phase"), status(&failed, "/containerStatuses")), (&json!("Failed"), &Value::Null));
    assert!(world.cluster.truth().pod_runs(pod.uid()));
    world.run(30_000);
    assert!(!world.cluster.truth().pod_runs(pod.uid()));
    assert_eq!(status(&world.pod("p").unwrap(), "/phase"), "Failed");
}

#[test]
fn a_machine_that_was_off_starts_its_pods_again() {
    let mut world = World::new(9, 1);
    world.create(Kind::StatefulSet, stateful_set("m"));
    world.run(8_000);
    let pod = world.pod("m-0").unwrap();
    let (container, machine) = (world.container(pod.uid()), world.machine_of(pod.uid()));
    world.inflict(Fault::PowerOff(machine));
    world.run(5_000);
    assert_eq!(world.cluster.truth().running().count(), 0);
    assert!(status(&world.pod("m-0").unwrap(), "/containerStatuses/0/state/running").is_object());
    world.inflict(Fault::PowerOn(machine));
    world.run(10_000);
    let now = world.pod("m-0").unwrap();
    assert_eq!(now.uid(), pod.uid());
    assert_eq!(status(&now, "/containerStatuses/0/lastState/terminated/containerID"), &json!(container));
    assert_eq!(status(&now, "/containerStatuses/0/containerID"), &json!(world.container(pod.uid())));
}
