//! From pods and nodes to the facts that the fence judges by.

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::ResourceExt;

use super::build::{ACL_FILE, CONFIG_VOLUME, REDIS_CONTAINER, TLS_VOLUME};
use crate::fence::predecessor::{NodeFacts, PodFacts};
use crate::fence::{Process, Record, RunId};
use crate::time::Monotonic;

const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

fn redis_status(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == REDIS_CONTAINER)
}

/// What a pod object says about its redis container.
#[must_use]
pub fn pod_facts(pod: &Pod) -> PodFacts {
    let status = redis_status(pod);
    let state = status.and_then(|status| status.state.as_ref());
    let last = status.and_then(|status| status.last_state.as_ref()).and_then(|state| state.terminated.as_ref());
    PodFacts {
        uid: pod.uid().unwrap_or_default(),
        container_id: status.and_then(|status| status.container_id.clone()).filter(|id| !id.is_empty()),
        terminated: state.is_some_and(|state| state.terminated.is_some()),
        last_terminated: last.and_then(|last| last.container_id.clone()),
    }
}

/// Whether the redis container runs, as far as the kubelet has said.
#[must_use]
pub fn runs(pod: &Pod) -> bool {
    redis_status(pod).and_then(|status| status.state.as_ref()).is_some_and(|state| state.running.is_some())
}

/// Whether a member's pod speaks TLS; the other kind does not.
#[must_use]
pub fn speaks_tls(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    volumes.is_some_and(|volumes| volumes.iter().any(|volume| volume.name == TLS_VOLUME))
}

/// The key of the ACL file that a member's pod mounts, which tells the secrets that its first process was started with. Nobody can
/// change the volumes of a pod.
#[must_use]
pub fn acl_key(pod: &Pod) -> Option<&str> {
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    let config = volumes.iter().find(|volume| volume.name == CONFIG_VOLUME)?.secret.as_ref()?;
    config.items.as_ref()?.iter().find(|item| item.path == ACL_FILE).map(|item| item.key.as_str())
}

/// The address of a pod.
#[must_use]
pub fn pod_ip(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())
}

/// A process that answers, as far as it is known where it runs. Its pod may be gone already, deleted by force: what the record says of
/// the same process stays, or nobody could tell later on which node it may still run.
#[must_use]
pub fn process(run_id: &RunId, pod_uid: String, pod: Option<&Pod>, gone: Option<&Pod>, record: &Record) -> Process {
    let its = |pod: &&Pod| pod.uid().as_ref() == Some(&pod_uid);
    let recorded = record.process.as_ref().filter(|known| known.run_id == *run_id && known.pod_uid == pod_uid);
    // Not that of a pod that is gone: its last state may name the container before this one.
    let container_id = pod.filter(its).and_then(|pod| pod_facts(pod).container_id);
    let node = pod.filter(its).or(gone.filter(its)).and_then(node_name);
    Process {
        run_id: run_id.clone(),
        container_id: container_id.or_else(|| recorded?.container_id.clone()),
        node_name: node.or_else(|| recorded?.node_name.clone()),
        pod_uid,
    }
}

/// The node of a pod.
#[must_use]
pub fn node_name(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

/// Since when the API server has called a node Ready, in its own words: it changes with every transition.
#[must_use]
pub fn ready_transition(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    let since = ready.last_transition_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    Some(format!("{} {since}", node.uid().unwrap_or_default()))
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT))
}

fn has_provider_id(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).is_some_and(|id| !id.is_empty())
}

/// What one replica has seen of one node over time.
#[derive(Clone, Debug, Default)]
pub struct NodeWatch {
    ready: Option<(String, Monotonic)>,
    facts: NodeFacts,
}

impl NodeWatch {
    /// The node object was seen.
    pub fn saw(&mut self, node: &Node, now: Monotonic) {
        self.ready = match (ready_transition(node), self.ready.take()) {
            (Some(transition), Some((known, since))) if known == transition => Some((known, since)),
            // Ready since longer ago, perhaps, but this replica has not seen it.
            (Some(transition), _) => Some((transition, now)),
            (None, _) => None,
        };
        let ready_since = self.ready.as_ref().map(|(_, since)| *since);
        self.facts = NodeFacts::Present { ready_since, out_of_service: is_out_of_service(node) };
    }

    /// The node object was seen to be deleted.
    pub fn deleted(&mut self, last: &Node) {
        self.ready = None;
        self.facts = NodeFacts::Deleted { had_provider_id: has_provider_id(last) };
    }

    /// What is known now.
    #[must_use]
    pub fn facts(&self) -> &NodeFacts {
        &self.facts
    }

    /// The transition that the count of a Ready node rests on.
    #[must_use]
    pub fn transition(&self) -> Option<&str> {
        self.ready.as_ref().map(|(transition, _)| transition.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn pod(status: Value) -> Pod {
        let status = json!({"podIP": "10.0.0.7", "containerStatuses": [
            {"name": "proxy", "containerID": "containerd://proxy", "image": "", "imageID": "", "ready": true, "restartCount": 0,
             "state": {"terminated": {"exitCode": 0}}},
            status,
        ]});
        let spec = json!({"containers": [], "nodeName": "node-c"});
        serde_json::from_value(json!({"metadata": {"uid": "pod-1"}, "spec": spec, "status": status})).unwrap()
    }

    fn redis(id: &str, state: Value, last: Value) -> Value {
        json!({"name": "redis", "containerID": id, "image": "", "imageID": "", "ready": true, "restartCount": 1,
               "state": state, "lastState": last})
    }

    #[test]
    fn a_process_whose_pod_is_gone_is_still_known_by_its_node() {
        let run_id = RunId::new("r");
        let running = pod(redis("containerd://a", json!({"running": {}}), json!({})));
        let of = |uid: &str, pod, gone, record: &Record| process(&run_id, uid.to_owned(), pod, gone, record);
        let whole = of("pod-1", Some(&running), None, &Record::default());
        assert_eq!(
            (whole.container_id.as_deref(), whole.node_name.as_deref()),
            (Some("containerd://a"), Some("node-c"))
        );
        let record = Record { process: Some(whole.clone()), ..Record::default() };
        assert_eq!(of("pod-1", None, None, &record), whole);
        let gone = of("pod-1", None, Some(&running), &Record::default());
        assert_eq!((gone.container_id, gone.node_name.as_deref()), (None, Some("node-c")));
        // Of another pod, and of another process, nothing is taken.
        let other = of("pod-2", Some(&running), Some(&running), &record);
        assert_eq!((other.container_id, other.node_name), (None, None));
        assert_eq!(process(&RunId::new("s"), "pod-1".to_owned(), None, None, &record).node_name, None);
    }

    fn node(uid: &str, ready: &str, since: &str, spec: Value) -> Node {
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
        serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec, "status": {"conditions": [condition]}}))
            .unwrap()
    }

    #[test]
    fn only_the_redis_container_counts() {
        let running = pod(redis(
            "containerd://b",
            json!({"running": {}}),
            json!({"terminated": {"exitCode": 1, "containerID": "containerd://a"}}),
        ));
        assert!(runs(&running));
        assert_eq!(
            pod_facts(&running),
            PodFacts {
                uid: "pod-1".into(),
                container_id: Some("containerd://b".into()),
                terminated: false,
                last_terminated: Some("containerd://a".into()),
            }
        );
        let ended = pod(redis("containerd://b", json!({"terminated": {"exitCode": 0}}), json!({})));
        assert!(pod_facts(&ended).terminated && !runs(&ended));
        assert_eq!((pod_ip(&ended).as_deref(), node_name(&ended).as_deref()), (Some("10.0.0.7"), Some("node-c")));
        assert_eq!(pod_facts(&Pod::default()), PodFacts::default());
    }

    #[test]
    fn a_node_is_ready_since_this_replica_saw_it_without_a_break() {
        let mut watch = NodeWatch::default();
        assert_eq!(watch.facts(), &NodeFacts::Unknown);
        let since = |watch: &NodeWatch| match watch.facts() {
            NodeFacts::Present { ready_since, .. } => *ready_since,
            other => panic!("{other:?}"),
        };
        watch.saw(&node("n1", "True", "2026-01-01T00:00:00Z", json!({})), at(10));
        watch.saw(&node("n1", "True", "2026-01-01T00:00:00Z", json!({})), at(20));
        assert_eq!(since(&watch), Some(at(10)));
        // A break that was missed shows in the transition time.
        watch.saw(&node("n1", "True", "2026-01-01T00:05:00Z", json!({})), at(30));
        assert_eq!(since(&watch), Some(at(30)));
        watch.saw(&node("n1", "Unknown", "2026-01-01T00:06:00Z", json!({})), at(40));
        assert_eq!(since(&watch), None);
        watch.saw(&node("n2", "True", "2026-01-01T00:05:00Z", json!({})), at(50));
        assert_eq!(since(&watch), Some(at(50)));
    }

    #[test]
    fn the_ends_of_a_node() {
        let mut watch = NodeWatch::default();
        let taint = json!({"taints": [{"key": OUT_OF_SERVICE_TAINT, "value": "nodeshutdown", "effect": "NoExecute"}]});
        watch.saw(&node("n1", "Unknown", "2026-01-01T00:00:00Z", taint), at(10));
        assert_eq!(watch.facts(), &NodeFacts::Present { ready_since: None, out_of_service: true });
        watch.deleted(&node("n1", "Unknown", "2026-01-01T00:00:00Z", json!({"providerID": "aws:///i-1"})));
        assert_eq!(watch.facts(), &NodeFacts::Deleted { had_provider_id: true });
        watch.deleted(&node("n1", "Unknown", "2026-01-01T00:00:00Z", json!({})));
        assert_eq!(watch.facts(), &NodeFacts::Deleted { had_provider_id: false });
    }
}
