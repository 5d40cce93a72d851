//! Lost nodes: nodes that were silent or deleted long enough to put the processes there in doubt.
//!
//! The node controller sets a node's condition `Ready` to `Unknown` when its kubelet has been silent. An outage of the API server
//! has the same effect on all nodes until the kubelets report again. So a silent node is lost after a short time only if most nodes report.
//! Otherwise it is lost after a long time, because half of the nodes can be gone permanently.
//!
//! Durations use this replica's boot-time clock, and begin with its own first observation. A replica that did not reach the API server, or was
//! frozen, ignores that time. It starts again with its next observation.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::evidence::is_silent;
use crate::time::Boottime;

/// Time between two observations of all nodes.
pub(super) const PERIOD: Duration = Duration::from_secs(1);
/// How long a node is silent, while most others report, before it is lost.
const SILENT: Duration = Duration::from_secs(15);
/// How long a node whose object vanished has to register again, because its kubelet can be healthy.
const VANISHED: Duration = Duration::from_secs(60);
/// How long a node is silent, while most others are silent, before it is lost.
const WHATEVER_THE_OTHERS: Duration = Duration::from_secs(300);
/// How long the API server can be silent before this replica treats it as not reached.
///
/// A longer gap between two observations restarts all durations.
const BLIND: Duration = Duration::from_secs(5);
/// How long the state of a vanished node is kept. After that the node has no holds.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The silent and vanished nodes that this replica has observed.
#[derive(Debug, Default)]
pub struct NodeWatch {
    history: Mutex<NodeHistory>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct NodeHistory {
    nodes: HashMap<String, NodeState>,
    last_observation: Option<Boottime>,
    most_report: Option<Boottime>,
}

/// The state of one node, with the start of each condition.
#[derive(Debug, Default)]
struct NodeState {
    silent: Option<Boottime>,
    vanished: Option<Boottime>,
    lost: bool,
}

impl NodeWatch {
    /// Whether the node is lost. A node without an observation is not lost.
    pub fn is_lost(&self, name: &str) -> bool {
        self.history.lock().nodes.get(name).is_some_and(|state| state.lost)
    }

    /// Notifies when a node is lost, or reports again.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Updates the state of all nodes.
    ///
    /// An unreadable node has only a name here, and is treated as reporting. `last_answer` is the time of the API server's last answer.
    pub fn observe(
        &self,
        nodes: &[Arc<Node>],
        unreadable: &HashSet<String>,
        last_answer: Option<Boottime>,
        now: Boottime,
    ) {
        if last_answer.is_none_or(|answer| now.since(answer) > BLIND) {
            return;
        }
        if self.history.lock().observe(nodes, unreadable, now) {
            self.changed.send_replace(());
        }
    }
}

impl NodeHistory {
    /// Returns whether a node became lost, or is no longer lost.
    fn observe(&mut self, nodes: &[Arc<Node>], unreadable: &HashSet<String>, now: Boottime) -> bool {
        if self.last_observation.replace(now).is_none_or(|last| now.since(last) > BLIND) {
            self.restart(now);
        }
        let present: HashMap<_, _> = nodes.iter().map(|node| (node.name_any(), is_silent(node))).collect();
        let reporting = present.values().filter(|silent| !**silent).count();
        let most_report = reporting * 2 > present.len();
        self.most_report = most_report.then(|| self.most_report.unwrap_or(now));
        for name in present.keys() {
            self.nodes.entry(name.clone()).or_default();
        }
        let mut changed = false;
        for (name, state) in &mut self.nodes {
            match present.get(name).or_else(|| unreadable.contains(name).then_some(&false)) {
                Some(true) => (state.silent, state.vanished) = (Some(state.silent.unwrap_or(now)), None),
                Some(false) => (state.silent, state.vanished) = (None, None),
                None => state.vanished = Some(state.vanished.unwrap_or(now)),
            }
            let lost = state.is_lost(self.most_report, now);
            if lost != state.lost {
                tracing::info!(node = name, lost, "a node does not report, or reports again");
                (state.lost, changed) = (lost, true);
            }
        }
        self.nodes.retain(|_, state| state.vanished.is_none_or(|since| now.since(since) < MEMORY));
        changed
    }

    /// Restarts the durations after a gap. A lost node stays lost until it reports.
    fn restart(&mut self, now: Boottime) {
        self.most_report = None;
        for state in self.nodes.values_mut().filter(|state| !state.lost) {
            state.silent = state.silent.map(|_| now);
            state.vanished = state.vanished.map(|_| now);
        }
    }
}

impl NodeState {
    /// A lost node stays lost until it reports.
    fn is_lost(&self, most_report: Option<Boottime>, now: Boottime) -> bool {
        let is_over = |since: Boottime, grace: Duration| {
            // After an outage the kubelets report one after the other. The grace begins when most of them report.
            let among_others = most_report.is_some_and(|most| now.since(since.max(most)) >= grace);
            self.lost || among_others || now.since(since) >= WHATEVER_THE_OTHERS
        };
        self.silent.is_some_and(|since| is_over(since, SILENT))
            || self.vanished.is_some_and(|since| is_over(since, VANISHED))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(1_000 + seconds))
    }

    const ALL: &str = "a=True b=True c=True";
    const ALL_ARE_SILENT: &str = "a=Unknown b=Unknown c=Unknown";
    const A_IS_SILENT: &str = "a=Unknown b=True c=True";
    const A_IS_GONE: &str = "b=True c=True";

    /// Nodes with these names and these states of the condition Ready.
    fn nodes(states: &str) -> Vec<Arc<Node>> {
        let node = |state: &str| {
            let (name, ready) = state.split_once('=').unwrap();
            let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
            Arc::new(parsed(json!({"metadata": {"name": name}, "status": {"conditions": conditions}})))
        };
        states.split_whitespace().map(node).collect()
    }

    /// Observes once a second, and returns after how many seconds the node is lost.
    fn lost_after(watch: &NodeWatch, name: &str, seconds: std::ops::Range<u64>, states: &str) -> Option<u64> {
        let (nodes, from) = (nodes(states), seconds.start);
        seconds.into_iter().find_map(|second| {
            watch.observe(&nodes, &HashSet::new(), Some(at(second)), at(second));
            watch.is_lost(name).then_some(second - from)
        })
    }

    #[test]
    fn a_single_silent_node_is_lost_after_15_seconds() {
        let watch = NodeWatch::default();
        let lost = lost_after(&watch, "a", 0..100, "a=Unknown b=True c=False");
        assert_eq!(lost, Some(15), "however old its condition is");
        assert!(!watch.is_lost("b") && !watch.is_lost("c"), "not ready is not silent");
        assert_eq!(lost_after(&watch, "b", 100..200, "a=Unknown b=True c=False"), None);
        watch.observe(&nodes(ALL), &HashSet::new(), Some(at(200)), at(200));
        assert!(!watch.is_lost("a"), "it reports again");
    }

    #[test]
    fn the_time_until_a_node_is_lost_depends_on_the_others() {
        for (case, name, steps) in [
            ("half of the nodes are silent", "a", &[(0..400, "a=Unknown b=True", Some(300))][..]),
            ("most nodes are silent", "a", &[(0..400, "a=Unknown b=Unknown c=True", Some(300))]),
            ("most report again", "a", &[(0..60, ALL_ARE_SILENT, None), (60..100, A_IS_SILENT, Some(15))]),
            (
                "it vanishes, and is back in time",
                "a",
                &[(0..10, ALL, None), (10..50, A_IS_GONE, None), (50..60, ALL, None), (60..200, A_IS_GONE, Some(60))],
            ),
            ("it was never observed", "gone", &[(0..400, "a=True", None), (400..800, "", None)]),
            ("this replica was frozen", "a", &[(0..5, A_IS_SILENT, None), (600..700, A_IS_SILENT, Some(15))]),
        ] {
            let watch = NodeWatch::default();
            for (seconds, states, lost) in steps {
                assert_eq!(lost_after(&watch, name, seconds.clone(), states), *lost, "{case}: {seconds:?}");
            }
        }
    }

    #[test]
    fn a_silent_node_that_is_then_deleted_stays_lost() {
        let watch = NodeWatch::default();
        assert_eq!(lost_after(&watch, "a", 0..16, A_IS_SILENT), Some(15));
        for second in 16..100 {
            watch.observe(&nodes(A_IS_GONE), &HashSet::new(), Some(at(second)), at(second));
            assert!(watch.is_lost("a"));
        }
    }

    #[test]
    fn no_node_becomes_lost_while_the_api_server_is_away() {
        let watch = NodeWatch::default();
        assert_eq!(lost_after(&watch, "a", 0..10, A_IS_SILENT), None);
        for second in 10..1_000 {
            watch.observe(&nodes(A_IS_SILENT), &HashSet::new(), Some(at(9)), at(second));
            assert!(!watch.is_lost("a"), "{second}: only an old state shows that it is silent");
        }
        assert_eq!(lost_after(&watch, "a", 1_000..1_100, A_IS_SILENT), Some(15), "counted from the next observation");
        watch.observe(&nodes(A_IS_SILENT), &HashSet::new(), None, at(1_100));
        assert!(watch.is_lost("a"), "a lost node stays lost");
    }

    #[test]
    fn a_node_that_cannot_be_read_is_not_lost() {
        let (watch, unreadable) = (NodeWatch::default(), HashSet::from(["a".to_owned()]));
        watch.observe(&nodes(ALL), &HashSet::new(), Some(at(0)), at(0));
        for second in 1..400 {
            watch.observe(&nodes(A_IS_GONE), &unreadable, Some(at(second)), at(second));
        }
        assert!(!watch.is_lost("a"));
    }

    #[test]
    fn a_lost_node_causes_one_notification() {
        let watch = NodeWatch::default();
        let mut changes = watch.changes();
        lost_after(&watch, "a", 0..15, A_IS_SILENT);
        assert!(!changes.has_changed().unwrap());
        lost_after(&watch, "a", 15..16, A_IS_SILENT);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        lost_after(&watch, "b", 16..30, A_IS_SILENT);
        assert!(!changes.has_changed().unwrap());
    }
}
