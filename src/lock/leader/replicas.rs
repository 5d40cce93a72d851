//! Noticing that another replica of the operator has started: it knows of no validity until one is published, and is not ready before then.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::runtime::context::{Context, Replica};

/// Labels that the replicas of one operator share.
const SHARED_LABELS: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];

/// The container instances of other replicas that were seen to run, and to be ready. One that has just started waits for validities; one
/// that needed long to fill its caches, so that those had run out, is told once more.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    seen: Mutex<HashSet<(String, bool)>>,
}

impl Replicas {
    /// Whether this pod shows a replica's container in a state that it was not seen in before.
    pub(super) fn is_new(&self, context: &Context, pod: &Pod) -> bool {
        let Replica { namespace, pod_name, .. } = &context.replica;
        if pod.namespace().as_deref() != Some(namespace) || pod.name_any() == *pod_name {
            return false;
        }
        let own = context.pods.named(namespace, pod_name);
        own.is_some_and(|own| is_sibling(&own, pod)) && self.note(pod)
    }

    /// Takes note of the pod's containers; whether one of them is new, or newly ready.
    fn note(&self, pod: &Pod) -> bool {
        let mut seen = self.seen.lock();
        // Not `any`: all of them are to be noted.
        containers(pod).into_iter().filter(|container| seen.insert(container.clone())).count() > 0
    }
}

fn is_sibling(own: &Pod, other: &Pod) -> bool {
    SHARED_LABELS
        .iter()
        .all(|label| own.labels().contains_key(*label) && own.labels().get(*label) == other.labels().get(*label))
}

/// The containers that run, and whether they are ready.
fn containers(pod: &Pod) -> Vec<(String, bool)> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let running = |status: &&ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    let running = statuses.into_iter().flatten().filter(running);
    running.filter_map(|container| Some((container.container_id.clone()?, container.ready))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, instance: &str, container: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "labels":
                {"app.kubernetes.io/name": "redlock-operator", "app.kubernetes.io/instance": instance}},
            "status": {"containerStatuses": [{"name": "operator", "containerID": container, "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": {"running": {}}}]}
        }))
        .unwrap()
    }

    #[test]
    fn replicas_share_their_labels_and_others_do_not() {
        assert!(is_sibling(&pod("a", "one", "1"), &pod("b", "one", "2")));
        assert!(!is_sibling(&pod("a", "one", "1"), &pod("b", "two", "2")));
        assert!(!is_sibling(&Pod::default(), &Pod::default()), "no labels, no kinship");
    }

    #[test]
    fn a_container_is_new_once_and_its_restart_is_new_again() {
        let replicas = Replicas::default();
        assert!(replicas.note(&pod("b", "one", "1")));
        assert!(!replicas.note(&pod("b", "one", "1")));
        assert!(replicas.note(&pod("b", "one", "2")));
        let mut starting = pod("b", "one", "3");
        starting.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].ready = false;
        assert!(replicas.note(&starting), "it waits for validities");
        assert!(replicas.note(&pod("b", "one", "3")), "and may have waited for longer than they last");
    }
}
