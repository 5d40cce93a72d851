//! The history of nodes at one replica: the machine of each Node object, and its reports.

use std::collections::{HashMap, HashSet, VecDeque};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::evidence;
use crate::fence::predecessor::{DeletedNode, Machine, NodeFacts, NodeIdentity, PresentNode};
use crate::time::Monotonic;

const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Maximum number of deleted Node objects that are kept for one name.
const REMEMBERED: usize = 4;

/// Maximum number of names without a Node object that are kept.
///
/// An autoscaler gives each new node another name. A replica that forgets the oldest names has the evidence of a replica
/// that started later.
const NAMES_REMEMBERED: usize = 1_000;

/// The machine that a Node object reports.
fn identity(node: &Node) -> NodeIdentity {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let named = info.filter(|info| !info.system_uuid.is_empty() && !info.machine_id.is_empty());
    let machine =
        named.map(|info| Machine { system_uuid: info.system_uuid.clone(), machine_id: info.machine_id.clone() });
    NodeIdentity { uid: node.uid().unwrap_or_default(), machine }
}

fn ready_since(node: &Node) -> Option<String> {
    let ready = evidence::readiness(node).filter(|ready| ready.status == "True")?;
    Some(ready.last_transition_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default())
}

/// Since when a node has been Ready, as text of the API server.
///
/// The text changes with every transition, and with the machine.
pub fn ready_transition(node: &Node) -> Option<String> {
    let since = ready_since(node)?;
    let NodeIdentity { uid, machine } = identity(node);
    let machine = machine.map(|machine| format!("{} {}", machine.system_uuid, machine.machine_id));
    Some(format!("{uid} {} {since}", machine.unwrap_or_default()))
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT))
}

fn has_provider_id(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).is_some_and(|id| !id.is_empty())
}

/// The history of the nodes of one name, as one replica observed it.
#[derive(Clone, Debug, Default)]
struct NodeWatch {
    ready: Option<(String, Monotonic)>,
    facts: NodeFacts,
}

impl NodeWatch {
    fn observe(&mut self, node: &Node, now: Monotonic) {
        self.ready = match (ready_transition(node), self.ready.take()) {
            (Some(transition), Some((recorded, since))) if recorded == transition => Some((recorded, since)),
            // The node was perhaps Ready earlier, but this replica has not observed it.
            (Some(transition), _) => Some((transition, now)),
            (None, _) => None,
        };
        let (identity, ready_since) = (identity(node), self.ready.as_ref().map(|(_, since)| *since));
        // A machine that has returned was not gone.
        self.facts.deleted.retain(|deleted| !deleted.identity.is(&identity));
        self.facts.present = Some(PresentNode { identity, ready_since, out_of_service: is_out_of_service(node) });
    }

    /// Drops the present object, if it is this one.
    ///
    /// The end of an earlier object proves nothing about the current one.
    fn drop_present(&mut self, last: &NodeIdentity) {
        if self.facts.present.as_ref().is_some_and(|present| present.identity.uid == last.uid) {
            (self.ready, self.facts.present) = (None, None);
        }
    }

    fn deleted(&mut self, last: &Node) {
        let identity = identity(last);
        self.drop_present(&identity);
        let (had_provider_id, was_ready) = (has_provider_id(last), ready_since(last).is_some());
        self.facts.deleted.push(DeletedNode { identity, had_provider_id, was_ready });
        let excess = self.facts.deleted.len().saturating_sub(REMEMBERED);
        self.facts.deleted.drain(..excess);
    }
}

/// The history of all nodes, as one replica observed it.
#[derive(Debug, Default)]
pub struct Nodes {
    by_name: HashMap<String, NodeWatch>,
    /// The names without a Node object, the oldest first.
    gone: VecDeque<String>,
    /// The name of the first node that reported these IDs.
    first_names: HashMap<Machine, String>,
    /// The IDs that several nodes report: machines from one image, or several kubelets on one machine.
    shared: HashSet<Machine>,
}

impl Nodes {
    /// Takes an observed Node object, and returns whether it changed.
    pub fn observe(&mut self, node: &Node, now: Monotonic) -> bool {
        let name = node.name_any();
        let mut news = false;
        if let Some(machine) = identity(node).machine {
            let first = self.first_names.entry(machine.clone()).or_insert_with(|| name.clone());
            news = *first != name && self.shared.insert(machine);
        }
        self.change(name, |watch| watch.observe(node, now)) || news
    }

    /// Takes an observed deletion of a Node object, and returns whether it changed.
    pub fn deleted(&mut self, last: &Node) -> bool {
        self.change_gone(last.name_any(), |watch| watch.deleted(last))
    }

    /// Removes a Node object that was deleted while this replica did not watch.
    ///
    /// Its last state was not observed, so it is no evidence.
    pub fn vanished(&mut self, last: &Node) -> bool {
        self.change_gone(last.name_any(), |watch| watch.drop_present(&identity(last)))
    }

    fn change_gone(&mut self, name: String, change: impl FnOnce(&mut NodeWatch)) -> bool {
        self.gone.retain(|gone| *gone != name);
        self.gone.push_back(name.clone());
        let changed = self.change(name, change);
        // The nodes whose objects ended first are forgotten.
        let excess = self.gone.len().saturating_sub(NAMES_REMEMBERED);
        for name in self.gone.drain(..excess) {
            let is_gone = |watch: &NodeWatch| watch.facts.present.is_none();
            if self.by_name.get(&name).is_some_and(is_gone) {
                self.by_name.remove(&name);
                self.first_names.retain(|_, first| *first != name);
            }
        }
        changed
    }

    fn change(&mut self, name: String, change: impl FnOnce(&mut NodeWatch)) -> bool {
        let watch = self.by_name.entry(name).or_default();
        let before = watch.facts.clone();
        change(watch);
        watch.facts != before
    }

    /// The observed nodes of this name.
    pub fn facts(&self, name: &str) -> NodeFacts {
        self.by_name.get(name).map(|watch| watch.facts.clone()).unwrap_or_default()
    }

    /// The machine of the node with this name, without IDs that other nodes also report.
    pub fn identity(&self, name: &str) -> Option<NodeIdentity> {
        let present = self.by_name.get(name)?.facts.present.clone()?;
        Some(self.with_unique_ids(present.identity))
    }

    /// The identity without IDs that several nodes report, because they identify nothing.
    pub fn with_unique_ids(&self, node: NodeIdentity) -> NodeIdentity {
        NodeIdentity { machine: node.machine.filter(|machine| !self.shared.contains(machine)), ..node }
    }

    /// The transition since which the Ready time of a node counts.
    pub fn transition(&self, name: &str) -> Option<&str> {
        self.by_name.get(name)?.ready.as_ref().map(|(transition, _)| transition.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::monotonic as at;

    fn node(name: &str, uid: &str, (ready, since): (&str, &str), id: &str, spec: Value) -> Node {
        let since = format!("2026-01-01T00:{since}:00Z");
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
        let info = json!({"systemUUID": id, "machineID": id, "architecture": "", "bootID": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "operatingSystem": "", "osImage": ""});
        let status = json!({"conditions": [condition], "nodeInfo": info});
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid}, "spec": spec, "status": status})).unwrap()
    }

    fn ready(name: &str, uid: &str, id: &str) -> Node {
        node(name, uid, ("True", "00"), id, json!({}))
    }

    fn ready_since(nodes: &Nodes) -> Option<Monotonic> {
        nodes.facts("n").present.unwrap().ready_since
    }

    #[test]
    fn a_node_is_ready_since_the_first_unbroken_observation() {
        let mut nodes = Nodes::default();
        assert_eq!(nodes.facts("n"), NodeFacts::default());
        assert!(nodes.observe(&ready("n", "n1", "A"), at(10)));
        assert!(!nodes.observe(&ready("n", "n1", "A"), at(20)), "nothing new");
        assert_eq!(ready_since(&nodes), Some(at(10)));
        // A missed break changes the transition time.
        nodes.observe(&node("n", "n1", ("True", "05"), "A", json!({})), at(30));
        assert_eq!(ready_since(&nodes), Some(at(30)));
        nodes.observe(&node("n", "n1", ("Unknown", "06"), "A", json!({})), at(40));
        assert_eq!(ready_since(&nodes), None);
        nodes.observe(&ready("n", "n2", "A"), at(50));
        assert_eq!(ready_since(&nodes), Some(at(50)));
        // Another machine continues with the same object.
        nodes.observe(&ready("n", "n2", "B"), at(60));
        assert_eq!(ready_since(&nodes), Some(at(60)));
        assert_eq!(nodes.transition("n"), ready_transition(&ready("n", "n2", "B")).as_deref());
    }

    #[test]
    fn the_ends_of_a_node() {
        let mut nodes = Nodes::default();
        let taint = json!({"taints": [{"key": OUT_OF_SERVICE_TAINT, "value": "nodeshutdown", "effect": "NoExecute"}]});
        nodes.observe(&node("n", "n1", ("Unknown", "00"), "A", taint), at(10));
        assert!(nodes.facts("n").present.unwrap().out_of_service);
        let provided = json!({"providerID": "aws:///i-1"});
        nodes.deleted(&node("n", "n1", ("Unknown", "00"), "A", provided.clone()));
        let facts = nodes.facts("n");
        assert_eq!((facts.present, facts.deleted.len()), (None, 1));
        assert!(facts.deleted[0].had_provider_id && !facts.deleted[0].was_ready);
        // Another machine with this name does not cancel the deletion. The same machine does.
        nodes.observe(&ready("n", "n2", "B"), at(20));
        assert_eq!(nodes.facts("n").deleted.len(), 1);
        nodes.observe(&ready("n", "n3", "A"), at(20));
        assert_eq!(nodes.facts("n").deleted.len(), 0);
        nodes.deleted(&node("n", "n3", ("True", "00"), "A", provided));
        assert!(nodes.facts("n").deleted[0].was_ready);
        nodes.deleted(&ready("n", "n0", "C"));
        assert!(!nodes.facts("n").deleted[1].had_provider_id);
        // The end of this node was not observed.
        nodes.observe(&ready("n", "n4", "D"), at(30));
        nodes.vanished(&ready("n", "n0", "C"));
        assert!(nodes.facts("n").present.is_some(), "an object before this one");
        nodes.vanished(&ready("n", "n4", "D"));
        assert_eq!((nodes.facts("n").present, nodes.facts("n").deleted.len()), (None, 2));
    }

    #[test]
    fn the_nodes_that_ended_first_are_forgotten() {
        let mut nodes = Nodes::default();
        let observe = |nodes: &mut Nodes, name: &str| nodes.observe(&ready(name, name, name), at(1));
        for name in ["first", "back"] {
            observe(&mut nodes, name);
            nodes.deleted(&ready(name, name, name));
        }
        observe(&mut nodes, "back");
        for number in 0..NAMES_REMEMBERED {
            let name = number.to_string();
            observe(&mut nodes, &name);
            nodes.deleted(&ready(&name, &name, &name));
        }
        assert_eq!(nodes.facts("first"), NodeFacts::default());
        assert!(nodes.facts("back").present.is_some(), "a node that has an object is kept");
        let kept = NAMES_REMEMBERED + 1;
        assert_eq!((nodes.by_name.len(), nodes.first_names.len(), nodes.gone.len()), (kept, kept, NAMES_REMEMBERED));
    }

    #[test]
    fn ids_of_several_nodes_identify_no_machine() {
        let mut nodes = Nodes::default();
        nodes.observe(&ready("n", "n1", "A"), at(1));
        nodes.observe(&ready("n", "n2", "A"), at(1));
        let recorded = nodes.identity("n").unwrap();
        assert!(recorded.machine.is_some(), "it has only registered again");
        assert!(nodes.observe(&ready("m", "m1", "A"), at(2)), "a member was possibly recorded with them");
        assert_eq!(nodes.with_unique_ids(recorded.clone()).machine, None);
        for (name, uid) in [("n", "n2"), ("m", "m1")] {
            assert_eq!(nodes.identity(name), Some(NodeIdentity { uid: uid.into(), machine: None }));
        }
        // The IDs stay shared after the deletion of one node.
        nodes.deleted(&ready("m", "m1", "A"));
        assert_eq!(nodes.with_unique_ids(recorded).machine, None);
        // A node without IDs has no machine.
        nodes.observe(&ready("k", "k1", ""), at(3));
        assert_eq!(nodes.identity("k"), Some(NodeIdentity { uid: "k1".into(), machine: None }));
        assert_eq!(nodes.identity("unknown"), None);
    }
}
