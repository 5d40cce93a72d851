use std::collections::BTreeMap;

use super::super::cluster::{MachineSpec, Settings};
use super::*;

const START: Millis = 1_767_225_600_000;

fn surroundings() -> Surroundings {
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    Surroundings {
        namespaces: text(&["shop", "bank"]),
        quorums: vec![("redis".into(), "main".into()), ("shop".into(), "other".into())],
        keys: text(&["k0", "k1"]),
        max_ttl: 10_000,
        members: 3,
        masters: 0,
        spare_masters: 0,
        locks: 12,
        habits: Habits::USUAL,
    }
}

fn live(seed: u64, deeds: u64) -> (ApiServer, Vec<(DeedKind, String)>) {
    let mut api = ApiServer::new(seed, START);
    let specs = ["a", "b", "c"].map(MachineSpec::named);
    let mut cluster = Cluster::new(seed, Settings::QUICK, &specs, &mut api, START);
    let mut users = Users::new(surroundings());
    users.furnish(seed, &mut api, START);
    let (mut chance, mut output, mut now) = (Seeded(seed), Vec::new(), START);
    for _ in 0..deeds {
        for _ in 0..15 {
            now += 50;
            cluster.step(&mut api, now);
            users.tick(&mut api, now);
        }
        let deed = Deed { kind: *chance.pick(&DeedKind::ALL).unwrap(), number: chance.below(1 << 40) };
        output.extend(users.act(deed, &mut api, now).map(|what| (deed.kind, what)));
    }
    (api, output)
}

#[test]
fn most_actions_are_accepted_and_every_kind_happens() {
    let mut count: BTreeMap<DeedKind, (u32, u32)> = BTreeMap::new();
    for seed in 0..6 {
        for (kind, what) in live(seed, 250).1 {
            let (done, refused) = count.entry(kind).or_default();
            *done += 1;
            *refused += u32::from(what.contains("refused"));
        }
    }
    // These need statuses or finalizers of the operator. The last one needs objects that the operator creates.
    let without_operator =
        [DeedKind::EditLockStatus, DeedKind::EditQuorumStatus, DeedKind::ForceQuorum, DeedKind::Meddle];
    for kind in DeedKind::ALL.iter().filter(|kind| !without_operator.contains(kind)) {
        let (done, refused) = count.get(kind).copied().unwrap_or_default();
        assert!(done > 0 && refused * 2 < done, "{kind:?}: {refused} of {done} refused, {count:?}");
    }
}

#[test]
fn a_number_gives_the_same_history_each_time() {
    let words = |seed| live(seed, 80).1;
    assert!(words(3) == words(3) && words(3) != words(4));
}

#[test]
fn predecessors_are_confirmed_only_when_they_are_dead() {
    let mut api = ApiServer::new(1, START);
    let mut cluster = Cluster::new(1, Settings::QUICK, &[MachineSpec::named("a")], &mut api, START);
    let by = By { now: START, manager: "test" };
    let pod = json!({"metadata": {"name": "q-0-0"}, "spec": {"containers": [{"name": "redis"}]}});
    let uid = api.create(Kind::Pod, "default", pod, by).unwrap().uid().to_owned();
    let now = START + 8_000;
    for at in START..now {
        cluster.step(&mut api, at);
    }
    api.create(Kind::RedisQuorum, "default", json!({"metadata": {"name": "q"}, "spec": {}}), by).unwrap();
    let member = json!({"name": "q-0", "state": "Fenced", "reason": "PredecessorUnconfirmed",
        "predecessor": {"runID": "r", "podUID": uid}});
    api.merge(Kind::RedisQuorum, ("default", "q"), &json!({"status": {"members": [member]}}), Part::Status, by)
        .unwrap();
    let mut users = Users::new(surroundings());
    assert_eq!(users.confirm(&mut api, &mut cluster, false, now), 0, "it runs");
    assert_eq!(users.confirm(&mut api, &mut cluster, true, now), 1);
    assert!(!cluster.truth().pod_runs(&uid));
    let quorum = api.get(Kind::RedisQuorum, "default", "q").unwrap();
    assert_eq!(quorum.annotation(PREDECESSOR_DEAD_ANNOTATION), Some(uid.as_str()));
    assert_eq!(users.confirm(&mut api, &mut cluster, true, now), 0, "once");
}
