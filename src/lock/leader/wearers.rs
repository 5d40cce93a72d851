//! Which pods wear leader labels, as the watch has shown.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::api::{LEADER_LABEL_PREFIX, leader_label};

/// Namespace and name of a lock, of which there may be none.
pub(super) type Name = (String, String);

/// Pods that were seen with leader labels, so that the leader need not look at all pods. Some may have lost them since: the cache of pods
/// says so.
#[derive(Debug, Default)]
pub(super) struct Wearers(Mutex<HashMap<Name, BTreeSet<String>>>);

impl Wearers {
    /// Takes notice of the labels of a pod.
    pub(super) fn see(&self, pod: &Pod) {
        for label in pod.labels().keys() {
            if let Some(lock) = label.strip_prefix(LEADER_LABEL_PREFIX) {
                let name = (pod.namespace().unwrap_or_default(), lock.to_owned());
                self.0.lock().entry(name).or_default().insert(pod.name_any());
            }
        }
    }

    /// The pods with the label of this lock, by what `pod` says of each.
    pub(super) fn of(&self, name: &Name, pod: impl Fn(&str) -> Option<Arc<Pod>>) -> Vec<Arc<Pod>> {
        let mut table = self.0.lock();
        let Some(names) = table.get_mut(name) else { return Vec::new() };
        let label = leader_label(&name.1);
        let mut wearing = Vec::new();
        names.retain(|name| match pod(name).filter(|pod| pod.labels().contains_key(&label)) {
            Some(pod) => {
                wearing.push(pod);
                true
            }
            None => false,
        });
        if names.is_empty() {
            table.remove(name);
        }
        wearing
    }

    /// The locks whose labels were seen.
    pub(super) fn names(&self) -> Vec<Name> {
        self.0.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, labels: Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn pods_with_a_leader_label_are_found_without_a_look_at_all_pods_and_forgotten_without_it() {
        let wearers = Wearers::default();
        let worn = pod("a-0", json!({"leader.redlock-operator.io/app": "true", "app": "a"}));
        wearers.see(&worn);
        wearers.see(&pod("a-1", json!({"app": "a"})));
        let name: Name = ("ns".into(), "app".into());
        assert_eq!(wearers.names().as_slice(), std::slice::from_ref(&name));
        let found = wearers.of(&name, |asked| (asked == "a-0").then(|| worn.clone()));
        assert_eq!(found.len(), 1);
        assert!(wearers.of(&("other".into(), "app".into()), |_| Some(worn.clone())).is_empty());
        assert!(wearers.of(&name, |asked| Some(pod(asked, json!({"app": "a"})))).is_empty());
        assert!(wearers.names().is_empty());
    }
}
