//! The last states of deleted objects.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::kind::Kind;
use super::lookup::Lookup;
use crate::time::Boottime;

/// Maximum number of deleted objects that the cache keeps.
///
/// The last state of a deleted pod proves whether its containers ended. Without a record the operator treats the pod as vanished, not as dead,
/// which is the safe assumption.
const DEPARTED_CAPACITY: usize = 4096;
/// How long the cache keeps a deleted object.
const DEPARTED_TIME: Duration = Duration::from_secs(3600);

/// The newest deleted objects by UID.
#[derive(Debug)]
pub(super) struct Departed<K> {
    by_uid: HashMap<String, Arc<K>>,
    /// UIDs and deletion times of the objects, the oldest first.
    order: VecDeque<(Boottime, String)>,
    /// UIDs by the keys of [`Kind::keys`].
    lookup: Lookup<String, String>,
}

impl<K> Default for Departed<K> {
    fn default() -> Self {
        Self { by_uid: HashMap::new(), order: VecDeque::new(), lookup: Lookup::default() }
    }
}

impl<K: Kind> Departed<K> {
    pub(super) fn remember(&mut self, object: K, now: Boottime) {
        let Some(uid) = object.meta().uid.clone() else { return };
        self.lookup.set(uid.clone(), object.keys());
        if self.by_uid.insert(uid.clone(), Arc::new(object)).is_none() {
            self.order.push_back((now, uid));
        }
        self.forget(now);
    }

    pub(super) fn named(&self, uid: &str) -> Option<Arc<K>> {
        self.by_uid.get(uid).cloned()
    }

    pub(super) fn under(&self, key: &str) -> Vec<Arc<K>> {
        let found = self.lookup.under(&key.to_owned());
        found.iter().filter_map(|uid| self.by_uid.get(uid)).cloned().collect()
    }

    fn forget(&mut self, now: Boottime) {
        let is_due = |at: &Boottime| now.since(*at) >= DEPARTED_TIME;
        while self.order.len() > DEPARTED_CAPACITY || self.order.front().is_some_and(|(at, _)| is_due(at)) {
            if let Some((_, oldest)) = self.order.pop_front() {
                self.by_uid.remove(&oldest);
                self.lookup.set(oldest, Vec::new());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::ResourceExt;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::api::{DistributedLock, JOB_TOKEN_ANNOTATION, PRIORITY_ANNOTATION};
    use crate::evidence::{ContainerEvidence, container_state};
    use crate::runtime::keys;

    #[test]
    fn a_deleted_pod_keeps_the_proof_of_its_end_for_an_hour() {
        let pod = |uid: &str| -> Pod {
            parsed(serde_json::json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": uid, "labels": {"a": "b", keys::JOB_UID_LABEL: "job"},
                    "annotations": {JOB_TOKEN_ANNOTATION: "7", PRIORITY_ANNOTATION: "1"}},
                "spec": {"nodeName": "n", "containers": [{"name": "app"}]},
                "status": {"phase": "Failed", "podIP": "10.0.0.1", "containerStatuses": [{"name": "app", "image": "",
                    "imageID": "", "ready": false, "restartCount": 0, "containerID": "c1",
                    "state": {"terminated": {"exitCode": 1, "containerID": "c1"}}}]}}))
        };
        let (mut departed, begin) = (Departed::default(), Boottime::new(Duration::ZERO));
        departed.remember(pod("first").last_state().unwrap(), begin);
        departed.remember(pod("second").last_state().unwrap(), begin + DEPARTED_TIME / 2);
        let first = departed.by_uid["first"].clone();
        assert_eq!(container_state(&first, "c1"), ContainerEvidence::Dead);
        assert_eq!(first.spec.as_ref().unwrap().node_name.as_deref(), Some("n"));
        assert_eq!(first.annotations().keys().collect::<Vec<_>>(), [JOB_TOKEN_ANNOTATION]);
        assert_eq!(first.labels().keys().collect::<Vec<_>>(), [keys::JOB_UID_LABEL]);
        assert!(first.spec.as_ref().unwrap().containers.is_empty());
        assert_eq!(departed.lookup.under(&keys::owner("job")).len(), 2);
        departed.remember(pod("third").last_state().unwrap(), begin + DEPARTED_TIME);
        assert_eq!(departed.order.iter().map(|(_, uid)| uid.as_str()).collect::<Vec<_>>(), ["second", "third"]);
        assert!(!departed.by_uid.contains_key("first"));
        assert!(
            DistributedLock::new("l", Default::default()).last_state().is_none(),
            "the cache keeps only deleted pods"
        );
    }
}
