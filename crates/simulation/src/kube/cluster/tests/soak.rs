use super::super::super::chance::Chance as _;
use super::*;

fn workloads(world: &mut World) {
    world.create(Kind::StatefulSet, stateful_set("m"));
    world.create(Kind::StatefulSet, stateful_set("n"));
    let template = json!({"metadata": {"labels": {"app": "d"}}, "spec": {"terminationGracePeriodSeconds": 3, "containers": [{"name": "app"}]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "template": template});
    world.create(Kind::Deployment, json!({"metadata": {"name": "d"}, "spec": spec}));
    let template = json!({"metadata": {"annotations": {"simulation/run-millis": "9000"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "work"}]}});
    world.create(Kind::Job, json!({"metadata": {"name": "j"}, "spec": {"template": template}}));
}

/// Runs random faults and describes them.
///
/// The text differs if two runs differ.
fn broken(seed: u64, steps: u64) -> (World, String) {
    let mut world = World::new(seed, 4);
    workloads(&mut world);
    let mut chance = Seeded(seed);
    let mut faults = String::new();
    for _ in 0..steps {
        world.run(1_500);
        let mishap =
            Mishap { kind: *chance.pick(&FaultKind::ALL).unwrap(), number: chance.below(1 << 40), aim: Aim::Anywhere };
        if let Some(fault) = mishap.resolve(&world.cluster, &world.api) {
            faults += &format!("{fault:?}\n");
            world.inflict(fault);
        }
    }
    let changes = world.api.changes_after(0).map(|entry| format!("{:?} {}\n", entry.change, entry.object.value));
    let trace = changes.collect::<String>() + &faults + &format!("{:?}", world.cluster.truth());
    (world, trace)
}

#[test]
fn a_seed_gives_the_same_history_each_time() {
    let (one, other, another) = (broken(1, 40).1, broken(1, 40).1, broken(2, 40).1);
    assert!(one == other && one != another);
}

#[test]
fn a_healed_cluster_works_again_and_can_be_emptied() {
    for seed in 0..6 {
        let (mut world, _) = broken(seed, 60);
        world.cluster.heal_all(&mut world.api, world.now);
        world.run(20_000);
        // A second pass heals the machines that came back after the first one.
        world.cluster.heal_all(&mut world.api, world.now);
        world.run(150_000);
        for name in ["m-0", "n-0"] {
            let pod = world.pod(name).unwrap_or_else(|| panic!("seed {seed}: no {name}"));
            assert!(workloads::is_ready(&pod), "seed {seed}: {}", pod.value);
            assert_eq!(
                status(&pod, "/containerStatuses/0/containerID"),
                &json!(world.container(pod.uid())),
                "seed {seed}"
            );
        }
        for (kind, name) in
            [(Kind::StatefulSet, "m"), (Kind::StatefulSet, "n"), (Kind::Deployment, "d"), (Kind::Job, "j")]
        {
            world.delete(kind, name, &background());
        }
        world.run(150_000);
        let left: Vec<_> = world.api.objects(Kind::Pod).map(|pod| pod.value.to_string()).collect();
        assert!(left.is_empty(), "seed {seed}: {left:#?}");
        let runs: Vec<_> = world.cluster.truth().running().collect();
        assert!(runs.is_empty(), "seed {seed}: {runs:#?}");
    }
}
