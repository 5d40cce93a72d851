//! Is the process that could vote before known to be dead? (Rule 4.)
//!
//! A force-deleted pod may still run, open, on a node that is cut off: its clients and the successor's would form two
//! majorities. Time proves nothing about such a process; the facts below do.

use std::time::Duration;

use super::RunId;
use crate::time::Monotonic;

/// How long a node must have been Ready, without the pod object, to prove that its kubelet killed the pod: longer than the
/// control plane believes a silent kubelet, a kubelet's sync and a grace period together.
pub const NODE_READY_FOR: Duration = Duration::from_secs(120);

/// Where a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which process.
    pub run_id: RunId,
    /// Its pod.
    pub pod_uid: String,
    /// Its container; unknown while the pod status lags.
    pub container_id: Option<String>,
    /// The node of its pod.
    pub node_name: Option<String>,
}

/// The redis container in a pod object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// UID of the pod.
    pub uid: String,
    /// The container instance that the status names.
    pub container_id: Option<String>,
    /// It has terminated, and the pod will not start another one before this is recorded.
    pub terminated: bool,
    /// The instance before, which the kubelet saw end.
    pub last_terminated: Option<String>,
}

/// The node of the process before, as this replica knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeFacts {
    /// This replica never saw the object.
    #[default]
    Unknown,
    /// The object exists.
    Present {
        /// Since when this replica has seen it Ready, without a break.
        ready_since: Option<Monotonic>,
        /// It carries the taint `node.kubernetes.io/out-of-service`: someone vouches that it is shut down.
        out_of_service: bool,
    },
    /// This replica saw the object vanish.
    Deleted {
        /// It had a providerID: the cloud controller deletes such a node only after the provider said that it is gone. A
        /// bare-metal node object that vanished says nothing.
        had_provider_id: bool,
    },
}

/// What is known about a process that may be open.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Now.
    pub now: Monotonic,
    /// The pod that has the member's name now.
    pub current: Option<&'a PodFacts>,
    /// The last object of the process's pod, from its delete event.
    pub tombstone: Option<&'a PodFacts>,
    /// Since when this replica has known that the pod object is gone.
    pub gone_since: Option<Monotonic>,
    /// Its node.
    pub node: &'a NodeFacts,
    /// The pod UID that a person declared dead by annotation.
    pub declared_dead: Option<&'a str>,
}

/// Why a process is known to be dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// Its pod shows the container terminated.
    Terminated,
    /// Its pod runs a later container: a kubelet starts one only after the earlier one has ended.
    LaterContainer,
    /// Its node has been Ready for [`NODE_READY_FOR`] without the pod object.
    NodeReady,
    /// Its node is out of service, a person says.
    OutOfService,
    /// Its node was deleted by the cloud provider.
    NodeDeleted,
    /// A person says so.
    Declared,
    /// It is a master that others run: whether or not it lives, its votes count for nobody here.
    Discounted,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No process of this member could vote before.
    None,
    /// It is dead.
    Dead(Evidence),
    /// It may run and be open.
    Unconfirmed {
        /// Where it was last.
        node: Option<String>,
        /// When its node will have been Ready for long enough, if it stays so.
        until: Option<Monotonic>,
    },
}

/// Judges the process that could vote before.
#[must_use]
pub fn judge(process: Option<&Process>, facts: &Facts<'_>) -> Verdict {
    let Some(process) = process else { return Verdict::None };
    let known = [facts.current, facts.tombstone].into_iter().flatten().find_map(|pod| from_pod(process, pod));
    if let Some(evidence) = known.or_else(|| from_node(facts)) {
        return Verdict::Dead(evidence);
    }
    if facts.declared_dead == Some(process.pod_uid.as_str()) {
        return Verdict::Dead(Evidence::Declared);
    }
    match node_ready_at(facts) {
        Some(at) if at <= facts.now => Verdict::Dead(Evidence::NodeReady),
        until => Verdict::Unconfirmed { node: process.node_name.clone(), until },
    }
}

fn from_pod(process: &Process, pod: &PodFacts) -> Option<Evidence> {
    // Without the container's id nothing can be told from the pod: the object may show the process itself.
    let container = process.container_id.as_ref().filter(|_| pod.uid == process.pod_uid)?;
    if pod.last_terminated.as_ref() == Some(container) {
        return Some(Evidence::Terminated);
    }
    match &pod.container_id {
        Some(id) if id == container => pod.terminated.then_some(Evidence::Terminated),
        Some(_) => Some(Evidence::LaterContainer),
        None => None,
    }
}

fn from_node(facts: &Facts<'_>) -> Option<Evidence> {
    match facts.node {
        NodeFacts::Present { out_of_service: true, .. } => Some(Evidence::OutOfService),
        NodeFacts::Deleted { had_provider_id: true } => Some(Evidence::NodeDeleted),
        _ => None,
    }
}

/// Both must have lasted: the kubelet kills a pod because the API has it no more, so Ready before that says nothing.
fn node_ready_at(facts: &Facts<'_>) -> Option<Monotonic> {
    match (facts.node, facts.gone_since) {
        (NodeFacts::Present { ready_since: Some(ready), .. }, Some(gone)) => Some((*ready).max(gone) + NODE_READY_FOR),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    fn before() -> Process {
        Process {
            run_id: RunId::new("a"),
            pod_uid: "pod-1".into(),
            container_id: Some("c1".into()),
            node_name: Some("node-c".into()),
        }
    }

    fn pod(uid: &str, container: Option<&str>, terminated: bool, last: Option<&str>) -> PodFacts {
        PodFacts {
            uid: uid.into(),
            container_id: container.map(Into::into),
            terminated,
            last_terminated: last.map(Into::into),
        }
    }

    const NOBODY: Facts<'static> = Facts {
        now: Monotonic::new(Duration::from_secs(1_000)),
        current: None,
        tombstone: None,
        gone_since: None,
        node: &NodeFacts::Unknown,
        declared_dead: None,
    };

    fn doubt(until: Option<u64>) -> Verdict {
        Verdict::Unconfirmed { node: Some("node-c".into()), until: until.map(at) }
    }

    #[test]
    fn without_a_process_there_is_nothing_to_confirm() {
        assert_eq!(judge(None, &NOBODY), Verdict::None);
        assert_eq!(judge(Some(&before()), &NOBODY), doubt(None));
    }

    #[test]
    fn pods_speak_for_their_own_containers_only() {
        use Evidence::{LaterContainer, Terminated};
        for (pod, evidence) in [
            (pod("pod-1", Some("c1"), false, None), None),
            (pod("pod-1", Some("c1"), true, None), Some(Terminated)),
            (pod("pod-1", Some("c2"), false, Some("c1")), Some(Terminated)),
            (pod("pod-1", Some("c3"), false, Some("c2")), Some(LaterContainer)),
            (pod("pod-1", None, false, None), None),
            // Another pod of the same name says nothing, even when its own container has ended.
            (pod("pod-2", Some("c9"), false, None), None),
            (pod("pod-2", Some("c9"), true, Some("c1")), None),
        ] {
            let expected = evidence.map_or_else(|| doubt(None), Verdict::Dead);
            assert_eq!(judge(Some(&before()), &Facts { current: Some(&pod), ..NOBODY }), expected, "{pod:?}");
            assert_eq!(judge(Some(&before()), &Facts { tombstone: Some(&pod), ..NOBODY }), expected, "{pod:?}");
        }
    }

    #[test]
    fn a_node_must_have_been_ready_for_long_enough_without_the_pod() {
        let ready = |since| NodeFacts::Present { ready_since: Some(at(since)), out_of_service: false };
        for (node, gone, verdict) in [
            (ready(0), None, doubt(None)),
            (ready(0), Some(990), doubt(Some(1_110))),
            (ready(995), Some(10), doubt(Some(1_115))),
            (ready(10), Some(880), Verdict::Dead(Evidence::NodeReady)),
            (NodeFacts::Present { ready_since: None, out_of_service: false }, Some(1), doubt(None)),
            (
                NodeFacts::Present { ready_since: None, out_of_service: true },
                None,
                Verdict::Dead(Evidence::OutOfService),
            ),
            (NodeFacts::Deleted { had_provider_id: true }, None, Verdict::Dead(Evidence::NodeDeleted)),
            (NodeFacts::Deleted { had_provider_id: false }, Some(1), doubt(None)),
        ] {
            let facts = Facts { node: &node, gone_since: gone.map(at), ..NOBODY };
            assert_eq!(judge(Some(&before()), &facts), verdict, "{node:?}");
        }
    }

    #[test]
    fn a_person_declares_one_pod_dead() {
        let declared = |uid| judge(Some(&before()), &Facts { declared_dead: Some(uid), ..NOBODY });
        assert_eq!(declared("pod-1"), Verdict::Dead(Evidence::Declared));
        assert_eq!(declared("pod-2"), doubt(None));
    }
}
