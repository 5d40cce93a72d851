//! Checks the choice of a leader, its step-down, and the effect of liveness checks.

use std::collections::BTreeMap;

use redlock_api::{DistributedLock, PRIORITY_ANNOTATION, Preference};
use serde_json::Value;

use crate::time::At;
use crate::world::World;
use redlock_simulation::kube::api::{Entry, Kind, Shared, millis};

use super::times::{PROMPT, WELL, length};

/// How long a pod must have been ready to be a certain candidate, in milliseconds.
const SETTLED: i64 = 5_000;
/// Maximum duration of a probe.
const PROBE: u64 = 400_000;

/// The oracle's history of nodes and pods.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// Since when nodes are cordoned.
    cordoned: BTreeMap<String, At>,
    /// Pods whose application did not answer, by UID, with begin and end.
    pub(super) sick: BTreeMap<String, (At, Option<At>)>,
}

/// The order of candidates by a preference: the least is the best.
///
/// Returns `None` where other properties decide ties.
fn rank(pod: &Shared, preference: Preference) -> i64 {
    let created = pod.value["metadata"]["creationTimestamp"].as_str().and_then(millis).unwrap_or_default();
    let ordinal = pod.name().rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
    match preference {
        Preference::Oldest => created,
        Preference::Newest => -created,
        Preference::LowestOrdinal => ordinal.unwrap_or(i64::MAX),
        Preference::Priority => {
            -pod.annotation(PRIORITY_ANNOTATION).and_then(|text| text.parse::<i64>().ok()).unwrap_or_default()
        }
    }
}

impl World {
    pub(super) fn observe_node(&mut self, entry: &Entry) {
        let name = entry.object.name().to_owned();
        if entry.object.value["spec"]["unschedulable"] == Value::Bool(true) {
            self.oracle.choices.cordoned.entry(name).or_insert(self.now);
        } else {
            self.oracle.choices.cordoned.remove(&name);
        }
    }

    /// Records that the application of a pod does not answer, or answers again.
    pub(crate) fn sicken(&mut self, pod_uid: &str, sick: bool) {
        let now = self.now;
        let known = self.oracle.choices.sick.entry(pod_uid.to_owned()).or_insert((now, None));
        *known = if sick { (now, None) } else { (known.0, Some(now)) };
    }

    pub(crate) fn is_sick(&self, pod_uid: &str) -> bool {
        self.oracle.choices.sick.get(pod_uid).is_some_and(|(_, until)| until.is_none())
    }

    /// Candidates that have been ready for a while, on nodes that are healthy and not cordoned.
    fn settled_candidates(&self, lock: &DistributedLock) -> Vec<Shared> {
        let Some(election) = &lock.spec.election else { return Vec::new() };
        let labels = election.selector.match_labels.clone().unwrap_or_default();
        let now = self.api.clock(self.now);
        let since_start = |pod: &Shared, at: i64| self.on_cluster_clock(pod.uid(), at);
        let good = |pod: &&Shared| {
            let mut conditions = pod.value["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.find(|found| found["type"] == "Ready" && found["status"] == "True");
            let since = ready.and_then(|ready| ready["lastTransitionTime"].as_str()).and_then(millis);
            let created = pod.value["metadata"]["creationTimestamp"].as_str().and_then(millis);
            let created = created.map(|at| since_start(pod, at));
            let old = |at: Option<i64>| at.is_some_and(|at| at + SETTLED <= now);
            Some(pod.namespace()) == lock.metadata.namespace.as_deref()
                && labels.iter().all(|(name, value)| pod.label(name) == Some(value))
                && !pod.is_deleting()
                && pod.value["status"]["phase"] == "Running"
                && self.cluster.cluster.truth().pod_runs(pod.uid())
                && old(since)
                && old(created)
                && pod.value["spec"]["nodeName"].as_str().is_some_and(|node| self.is_good_node(node))
        };
        self.api.server.objects(Kind::Pod).filter(good).cloned().collect()
    }

    fn is_good_node(&self, name: &str) -> bool {
        let Some(node) = self.api.server.get(Kind::Node, "", name) else { return false };
        let mut conditions = node.value["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.any(|found| found["type"] == "Ready" && found["status"] == "True");
        ready && node.value["spec"]["unschedulable"] != Value::Bool(true)
    }

    /// Checks the choice of a leader.
    ///
    /// No candidate is better, except one whose hold has just ended.
    pub(super) fn judge_choice(&mut self, entry: &Entry, lock: &DistributedLock) {
        let Some(election) = lock.spec.election.as_ref().filter(|_| lock.spec.liveness.is_none()) else { return };
        let edited = self.oracle.times.edited(entry.object.uid());
        if !self.leader_is_well(None, WELL) || edited.is_none_or(|at| at + PROMPT > self.now) {
            return;
        }
        let status = &entry.object.value["status"];
        let candidates = self.settled_candidates(lock);
        let chosen = candidates.iter().find(|pod| status["holder"]["podUID"] == pod.uid());
        let Some(chosen) = chosen else { return };
        let last = status["history"][0]["identity"].as_str().unwrap_or_default();
        let better = candidates.iter().find(|pod| {
            rank(pod, election.preference) < rank(chosen, election.preference) && !last.contains(pod.name())
        });
        if let Some(better) = better {
            let what = format!(
                "{} chose {} at {}, though {:?} prefers {}",
                entry.object.name(),
                chosen.name(),
                self.now,
                election.preference,
                better.name()
            );
            self.oracle.violated(what);
        }
    }

    /// Checks that the specification of a granted lock names the holder, and does not suspend the lock.
    pub(super) fn judge_named(&mut self, entry: &Entry, lock: &DistributedLock) {
        let holder = &entry.object.value["status"]["holder"];
        let edited = self.oracle.times.edited(entry.object.uid());
        let old = edited.is_some_and(|at| at + 2 * PROMPT < self.now) && self.leader_is_well(None, WELL);
        let container = holder["containerID"].as_str().and_then(|id| self.cluster.cluster.truth().get(id));
        let asked = |name: Option<&String>| name.zip(container).is_some_and(|(asked, running)| *asked != running.name);
        let claim = lock.spec.claim.as_ref();
        let other_pod =
            claim.and_then(|claim| claim.pod_uid.as_ref()).is_some_and(|uid| holder["podUID"] != uid.as_str());
        let other_job =
            claim.and_then(|claim| claim.job_uid.as_ref()).is_some_and(|uid| holder["jobUID"] != uid.as_str());
        let wrong = match () {
            () if lock.spec.suspend && old => "though it is suspended",
            () if other_pod => "to another pod than it names",
            () if other_job => "to another Job than it names",
            () if asked(claim.and_then(|claim| claim.container.as_ref())) => "to another container than it names",
            () if asked(lock.spec.election.as_ref().and_then(|election| election.container.as_ref())) => {
                "to another container than its election names"
            }
            () => return,
        };
        self.oracle.violated(format!("{} was granted at {} {wrong}", entry.object.name(), self.now));
    }

    /// Checks that a leader on a cordoned node steps down when another candidate is ready elsewhere.
    pub(super) fn late_step_down(&self, lock: &DistributedLock, status: &Value, acquired: At) -> Option<&'static str> {
        lock.spec.election.as_ref()?;
        let node = status["holder"]["nodeName"].as_str()?;
        let cordoned = *self.oracle.choices.cordoned.get(node)?;
        // The taint's time has whole seconds.
        let due = cordoned > acquired + PROMPT && cordoned + 2 * PROMPT < self.now;
        (due && !self.settled_candidates(lock).is_empty())
            .then_some("its leader's node is cordoned, another candidate is ready, and it has not stepped down")
    }

    /// Checks that a holder that does not answer loses the lock.
    pub(super) fn late_for_sick(&self, lock: &DistributedLock, status: &Value, from: At) -> Option<&'static str> {
        let liveness = lock.spec.liveness.as_ref()?;
        let uid = status["holder"]["podUID"].as_str()?;
        let (since, _) = self.oracle.choices.sick.get(uid).filter(|(_, until)| until.is_none())?;
        let interval = lock.spec.renew_interval.map_or(length(lock.spec.ttl) / 3, length) + PROBE;
        let due = (*since).max(from).max(self.oracle.leads_since) + interval * (liveness.failure_threshold as u64 + 1);
        (due + PROMPT < self.now).then_some("its holder does not answer, and its hold has not begun to end")
    }

    /// Whether a holder did not answer its check lately.
    pub(super) fn is_unwell(&self, lock: &DistributedLock, holder: &Value) -> bool {
        let ttl = length(lock.spec.ttl);
        let uid = holder["podUID"].as_str().unwrap_or_default();
        let lately = |until: Option<At>| until.is_none_or(|until| until + ttl + PROMPT >= self.now);
        let sick = self.oracle.choices.sick.get(uid).is_some_and(|(_, until)| lately(*until));
        let truth = self.cluster.cluster.truth();
        let mut running = truth.running().filter(|running| running.pod_uid == uid);
        let reached = running.any(|running| !truth.is_cut(running.machine));
        lock.spec.liveness.is_some() && (sick || !reached)
    }
}
