//! Start times of waits. Every replica records them, so a change of the leader does not restart a wait.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use parking_lot::Mutex;

use super::MemberLink;
use crate::api::RedisQuorum;
use crate::quorum::model::facts;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::membership::former_is_closed;
use crate::quorum::model::record::record_named;
use crate::redlock::RunId;
use crate::time::{Boottime, Clock, Monotonic};

/// The start times of one quorum, as this replica observed them.
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    /// Since when the pod with this UID has been gone.
    gone: Mutex<HashMap<String, Monotonic>>,
    /// The container that the pod of a member shows as running, by member.
    containers: Mutex<HashMap<String, RunningContainer>>,
    /// Since when a member can make no promise, by member and process.
    ///
    /// Without a process it holds for the whole member.
    harmless: Mutex<HashMap<(String, Option<String>), Monotonic>>,
    /// Since when the list before this membership epoch can make no promise.
    former_closed: Mutex<Option<(i64, Monotonic)>>,
}

/// The container that a member's pod shows as running.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RunningContainer {
    pod_uid: String,
    container_id: String,
    /// The first observation of it. A process that answers later is in this container or in a later one.
    since: Boottime,
    /// The first process that answered after that. The next process is in a later container.
    of: Option<RunId>,
}

impl Timers {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (gone, containers, harmless) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { clock, gone, containers, harmless, former_closed: Mutex::default() }
    }

    /// Takes the container that a member's pod shows as running.
    ///
    /// The earlier one stays until the pod shows another. A process that answers between them is in no shown container.
    pub(super) fn note_container(&self, member: &str, pod: &Pod) {
        let running = pod.uid().zip(facts::running_container(pod));
        let Some((pod_uid, container_id)) = running else { return };
        let mut containers = self.containers.lock();
        let is_same = |before: &RunningContainer| before.pod_uid == pod_uid && before.container_id == container_id;
        if !containers.get(member).is_some_and(is_same) {
            let since = self.clock.boottime();
            let running = RunningContainer { pod_uid, container_id: container_id.to_owned(), since, of: None };
            containers.insert(member.to_owned(), running);
        }
    }

    /// The container that the member's pod showed as running before the request to this process.
    ///
    /// The process of this pod has answered that request, which was sent at `requested_at`.
    pub(crate) fn container_of(
        &self,
        member: &str,
        pod_uid: &str,
        run_id: &RunId,
        requested_at: Boottime,
    ) -> Option<String> {
        let mut containers = self.containers.lock();
        let is_its = |running: &&mut RunningContainer| running.pod_uid == pod_uid && requested_at >= running.since;
        let running = containers.get_mut(member).filter(is_its)?;
        let of = running.of.get_or_insert_with(|| run_id.clone());
        (of == run_id).then(|| running.container_id.clone())
    }

    /// Since when this replica has known that the pod with this UID is gone.
    ///
    /// It is the current time, if this replica had not observed it yet. Every replica records this for every relevant process, so
    /// that a change of the leader restarts no wait.
    pub(crate) fn gone_since(&self, pod_uid: &str) -> Monotonic {
        let mut gone = self.gone.lock();
        *gone.entry(pod_uid.to_owned()).or_insert_with(|| self.clock.monotonic())
    }

    /// Since when this replica has known that the member can make no promise.
    ///
    /// It is the current time, if this replica had not observed it yet. Without a `process` it holds for every process of the
    /// member. It outlives a term, so that the end of a quorum waits once, even if the leader changes.
    pub(crate) fn harmless_since(&self, member: &str, process: Option<&str>) -> Monotonic {
        let mut harmless = self.harmless.lock();
        if process.is_some() {
            // A time without a process belongs to an earlier process.
            harmless.remove(&(member.to_owned(), None));
        }
        let key = (member.to_owned(), process.map(str::to_owned));
        *harmless.entry(key).or_insert_with(|| self.clock.monotonic())
    }

    /// Records that a process of the member can make promises.
    pub(crate) fn note_threat(&self, member: &str) {
        self.harmless.lock().retain(|(of, _), _| of != member);
    }

    /// Updates the start time of the wait at the end of a joint change of members.
    ///
    /// Every replica records it, so that a change of the leader does not restart the wait. The wait restarts whenever a member of the
    /// old list can be open.
    pub(super) fn note_change(&self, quorum: &RedisQuorum) {
        let epoch = Lists::of(quorum).epoch;
        let now = self.clock.monotonic();
        let mut since = self.former_closed.lock();
        let before = since.filter(|(of, _)| *of == epoch);
        *since = former_is_closed(quorum).then(|| before.unwrap_or((epoch, now)));
    }

    /// Since when this replica has known that the list before `epoch` can make no promise.
    pub(crate) fn former_closed_since(&self, epoch: i64) -> Option<Monotonic> {
        let since = self.former_closed.lock();
        since.filter(|(of, _)| *of == epoch).map(|(_, since)| since)
    }

    /// Records whether the pod with this UID exists.
    ///
    /// An existing pod is not gone, even if this replica's cache lagged behind the status and did not have it
    /// yet.
    pub(super) fn note_pod(&self, pod_uid: &str, is_there: bool) {
        if is_there {
            self.gone.lock().remove(pod_uid);
        } else {
            self.gone_since(pod_uid);
        }
    }
}

/// Records the fencings that restart a wait. Every replica does it, because each can lead later.
pub(super) fn note_fencings(links: &[Arc<MemberLink>], old: &RedisQuorum, new: &RedisQuorum) {
    for link in links {
        let name = link.name.as_str();
        let (before, after) = (record_named(old, name), record_named(new, name));
        let concerned = [before.run_id.as_ref(), after.run_id.as_ref()].into_iter().flatten();
        if let Some(run_id) = concerned.into_iter().find(|run_id| after.restarts_count(&before, run_id)) {
            link.note_fenced(run_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::SystemClock;

    #[test]
    fn a_process_runs_in_the_container_observed_before_its_answer() {
        let at = |millis| Boottime::new(Duration::from_millis(millis));
        let (r, s) = (RunId::new("r"), RunId::new("s"));
        let timers = Timers::new(Arc::new(SystemClock));
        for member in ["m", "n"] {
            let running = RunningContainer { pod_uid: "p".into(), container_id: "c".into(), since: at(100), of: None };
            timers.containers.lock().insert(member.to_owned(), running);
        }
        assert_eq!(timers.container_of("m", "p", &r, at(99)), None, "that was possibly its last answer");
        assert_eq!(timers.container_of("m", "other", &r, at(100)), None);
        assert_eq!(timers.container_of("m", "p", &r, at(100)).as_deref(), Some("c"));
        // The kubelet reports the restart late.
        assert_eq!(timers.container_of("m", "p", &s, at(900)), None);
        assert_eq!(timers.container_of("m", "p", &r, at(901)).as_deref(), Some("c"));
        // No earlier process had answered in it.
        assert_eq!(timers.container_of("n", "p", &s, at(900)).as_deref(), Some("c"));
    }
}
