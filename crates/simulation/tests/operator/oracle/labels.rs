//! Checks the order of the leader label. It moves from the earlier pod to the status, and then to the new leader.

use redlock_api::{DistributedLock, LEADER_LABEL_PREFIX, leader_label};

use crate::world::World;
use redlock_simulation::kube::api::{Change, Entry, Kind, Shared};

/// The locks whose leader label a pod has.
fn worn(pod: &Shared) -> Vec<String> {
    let labels = pod.value["metadata"]["labels"].as_object();
    let names = labels.into_iter().flatten().map(|(name, _)| name);
    names.filter_map(|name| name.strip_prefix(LEADER_LABEL_PREFIX)).map(str::to_owned).collect()
}

impl World {
    /// Observes the write of a pod.
    pub(super) fn observe_labels(&mut self, entry: &Entry) {
        let pod = &entry.object;
        let before = entry.before.as_ref().map(worn).unwrap_or_default();
        if entry.change == Change::Deleted {
            return;
        }
        for lock in worn(pod).into_iter().filter(|lock| !before.contains(lock)) {
            if self.oracle.by_hand {
                self.oracle.planted.insert(format!("{} {lock}", pod.uid()));
                continue;
            }
            self.oracle.planted.remove(&format!("{} {lock}", pod.uid()));
            // One of two leaders can be frozen, or its request can be late, so this order is not guaranteed.
            if self.plan.has_late_requests() {
                continue;
            }
            let others = self.wearers(pod.namespace(), &lock).into_iter().filter(|other| other.uid() != pod.uid());
            if let Some(other) = others.into_iter().next() {
                let what =
                    format!("the leader label of {lock} is put on {} while {} wears it", pod.name(), other.name());
                self.oracle.violated(what);
            }
            let object = self.api.server.get(Kind::DistributedLock, pod.namespace(), &lock);
            let holder = object.as_ref().and_then(|object| object.value["status"]["holder"]["podUID"].as_str());
            if holder != Some(pod.uid()) {
                let what =
                    format!("the leader label of {lock} is put on {}, which its status does not name", pod.name());
                self.oracle.violated(what);
            }
        }
    }

    /// Checks that the pod of the earlier holder has no leader label when a status names another holder.
    pub(super) fn judge_labels(&mut self, entry: &Entry) {
        let holder = |object: &Shared| object.value["status"]["holder"]["podUID"].as_str().map(str::to_owned);
        let before = entry.before.as_ref().and_then(holder);
        if before.is_none() || before == holder(&entry.object) || self.plan.has_late_requests() {
            return;
        }
        let wearers = self.wearers(entry.object.namespace(), entry.object.name());
        for pod in wearers.iter().filter(|pod| Some(pod.uid()) == before.as_deref()) {
            let what = format!("{} no longer holds {} and wears its label", pod.name(), entry.object.name());
            self.oracle.violated(what);
        }
    }

    /// Pods with the leader label of a lock, except labels that users have added.
    fn wearers(&self, namespace: &str, lock: &str) -> Vec<Shared> {
        let label = leader_label(lock);
        let pods = self.api.server.objects(Kind::Pod).filter(|pod| pod.namespace() == namespace);
        let wearing = pods.filter(|pod| pod.label(&label).is_some());
        wearing.filter(|pod| !self.oracle.planted.contains(&format!("{} {lock}", pod.uid()))).cloned().collect()
    }

    /// Labels of locks that are gone or have another holder.
    pub(crate) fn stray_labels(&self) -> Vec<String> {
        let mut stray = Vec::new();
        for pod in self.api.server.objects(Kind::Pod) {
            for name in worn(pod) {
                let lock = self.api.server.get(Kind::DistributedLock, pod.namespace(), &name);
                let lock: Option<DistributedLock> =
                    lock.and_then(|lock| serde_json::from_value(lock.value.clone()).ok());
                let wanted = lock.as_ref().and_then(|lock| {
                    lock.spec.election.as_ref().filter(|election| election.leader_label)?;
                    lock.holder().filter(|_| lock.is_held())?.pod_uid.clone()
                });
                if wanted.as_deref() != Some(pod.uid()) {
                    stray.push(format!("pod {} wears the leader label of {name}", pod.name()));
                }
            }
        }
        stray
    }
}
