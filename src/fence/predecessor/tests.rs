use super::*;
use crate::tests::monotonic as at;

fn identity(uid: &str, machine: Option<&str>) -> NodeIdentity {
    let of = |id: &str| Machine { system_uuid: format!("system {id}"), machine_id: format!("machine {id}") };
    NodeIdentity { uid: uid.into(), machine: machine.map(of) }
}

fn before(node: Option<NodeIdentity>) -> Process {
    Process {
        run_id: RunId::new("a"),
        pod_uid: "pod-1".into(),
        container_id: Some("c1".into()),
        node_name: Some("node-c".into()),
        node,
    }
}

fn former() -> Process {
    before(Some(identity("n1", Some("A"))))
}

const EMPTY: NodeFacts = NodeFacts { present: None, deleted: Vec::new() };

const NOBODY: Facts<'static> = Facts {
    now: Monotonic::new(Duration::from_secs(1_000)),
    terminated: false,
    gone_since: None,
    node: &EMPTY,
    declared_dead: None,
};

fn doubt(until: Option<u64>) -> Verdict {
    Verdict::Unconfirmed { until: until.map(at) }
}

fn present(identity: NodeIdentity, ready_since: Option<u64>, out_of_service: bool) -> NodeFacts {
    let present = PresentNode { identity, ready_since: ready_since.map(at), out_of_service };
    NodeFacts { present: Some(present), deleted: Vec::new() }
}

fn deleted(identity: NodeIdentity, had_provider_id: bool, was_ready: bool) -> NodeFacts {
    NodeFacts { present: None, deleted: vec![DeletedNode { identity, had_provider_id, was_ready }] }
}

#[test]
fn a_process_can_run_until_its_container_terminates() {
    assert_eq!(judge(&former(), &NOBODY), doubt(None));
    let ended = Facts { terminated: true, ..NOBODY };
    assert_eq!(judge(&former(), &ended), Verdict::Dead(Evidence::Terminated));
}

#[test]
fn a_node_proves_an_end_by_its_state_and_its_time() {
    let own = || identity("n1", Some("A"));
    let another = present(identity("n2", Some("B")), Some(10), false).present;
    let renamed = NodeFacts { present: another, ..deleted(own(), true, false) };
    for (node, gone, verdict) in [
        (present(own(), Some(0), false), None, doubt(None)),
        (present(own(), Some(0), false), Some(990), doubt(Some(1_110))),
        (present(own(), Some(995), false), Some(10), doubt(Some(1_115))),
        (present(own(), Some(10), false), Some(880), Verdict::Dead(Evidence::NodeReady)),
        (present(own(), None, false), Some(1), doubt(None)),
        (present(own(), None, true), None, Verdict::Dead(Evidence::OutOfService)),
        (deleted(own(), true, false), None, Verdict::Dead(Evidence::NodeDeleted)),
        (deleted(own(), false, false), Some(1), doubt(None)),
        // A cloud controller deletes only nodes that are not Ready. The deletion of a Ready node proves nothing about its machine,
        // because the API server perhaps loses the connection to it a moment later.
        (deleted(own(), true, true), Some(1), doubt(None)),
        // Another machine has the name of the deleted one.
        (renamed, None, Verdict::Dead(Evidence::NodeDeleted)),
    ] {
        let facts = Facts { node: &node, gone_since: gone.map(at), ..NOBODY };
        assert_eq!(judge(&former(), &facts), verdict, "{node:?}");
    }
}

#[test]
fn a_node_is_evidence_for_its_own_machine_only() {
    use Evidence::{NodeDeleted, NodeReady, OutOfService};
    let with_ids = || before(Some(identity("n1", Some("A"))));
    let without_ids = || before(Some(identity("n1", None)));
    for (process, shown, same) in [
        (with_ids(), identity("n1", Some("A")), true),
        // The machine has registered again.
        (with_ids(), identity("n2", Some("A")), true),
        // Another machine has this name, with its own Node or with the existing one.
        (with_ids(), identity("n2", Some("B")), false),
        (with_ids(), identity("n1", Some("B")), false),
        (with_ids(), identity("n1", None), false),
        // The IDs identify no machine, so the UID decides.
        (without_ids(), identity("n1", Some("A")), true),
        (without_ids(), identity("n1", None), true),
        (without_ids(), identity("n2", Some("A")), false),
        (without_ids(), identity("n2", None), false),
        // No identity was recorded.
        (before(None), identity("n1", Some("A")), false),
        (before(Some(NodeIdentity::default())), NodeIdentity::default(), false),
    ] {
        for (node, evidence) in [
            (present(shown.clone(), Some(10), false), NodeReady),
            (present(shown.clone(), None, true), OutOfService),
            (deleted(shown.clone(), true, false), NodeDeleted),
        ] {
            let facts = Facts { node: &node, gone_since: Some(at(10)), ..NOBODY };
            let verdict = judge(&process, &facts);
            let expected = if same { Verdict::Dead(evidence) } else { doubt(None) };
            assert_eq!(verdict, expected, "{process:?} {node:?}");
        }
    }
}

#[test]
fn an_annotation_declares_pods_dead_by_their_uids() {
    let declared = |uid| judge(&former(), &Facts { declared_dead: Some(uid), ..NOBODY });
    assert_eq!(declared("pod-1"), Verdict::Dead(Evidence::Declared));
    assert_eq!(declared("pod-0, pod-1"), Verdict::Dead(Evidence::Declared), "next to another UID");
    assert_eq!(declared("pod-2"), doubt(None));
    assert_eq!(declared("pod-12,"), doubt(None));
}
