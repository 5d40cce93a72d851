//! Pure: candidates on nodes that stopped reporting.
//!
//! The operator excludes these candidates immediately. It waits before it doubts a holder on such a node (see [`crate::runtime::node_watch`]).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::evidence::is_silent;
use crate::time::UnixMillis;

/// The taint that the node controller sets on a cordoned node, with the time.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Whether this node does not report, and most nodes do. No pod on it should become the holder.
pub fn is_unreachable(name: &str, nodes: &[Arc<Node>]) -> bool {
    let (silent, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| is_silent(node));
    // If most nodes are silent, the node controller or the API server was unavailable.
    silent.iter().any(|node| node.metadata.name.as_deref() == Some(name)) && others.len() > silent.len()
}

/// Whether an administrator or `kubectl drain` has cordoned the node.
pub fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// When the node was cordoned, by the clock of the control plane.
///
/// `None` if it is not cordoned, or if its object has no time.
pub fn cordoned_at(node: &Node) -> Option<UnixMillis> {
    let taints = node.spec.as_ref().filter(|_| is_cordoned(node))?.taints.as_ref()?;
    let taint = taints.iter().find(|taint| taint.key == UNSCHEDULABLE_TAINT)?;
    taint.time_added.as_ref().map(|at| UnixMillis(at.0.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;

    fn nodes(states: &[(&str, &str)]) -> Vec<Arc<Node>> {
        let node = |(name, ready): &(&str, &str)| {
            Arc::new(parsed(json!({"metadata": {"name": name}, "status": {"conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:50Z"}]}})))
        };
        states.iter().map(node).collect()
    }

    #[test]
    fn nothing_is_started_on_a_silent_node_among_others_that_report() {
        let nodes = nodes(&[("a", "Unknown"), ("b", "True"), ("c", "False")]);
        assert!(is_unreachable("a", &nodes));
        assert!(!is_unreachable("b", &nodes) && !is_unreachable("c", &nodes), "not ready is not silent");
        assert!(!is_unreachable("gone", &nodes));
    }

    #[test]
    fn a_cordoned_node_has_the_time_of_its_cordon_taint() {
        let node = |spec: serde_json::Value| parsed::<Node>(json!({"spec": spec}));
        let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule", "timeAdded": "1970-01-01T00:00:09Z"}]);
        let cordoned = node(json!({"unschedulable": true, "taints": taint(UNSCHEDULABLE_TAINT)}));
        assert!(is_cordoned(&cordoned));
        assert_eq!(cordoned_at(&cordoned), Some(UnixMillis(9_000)));
        let other = node(json!({"unschedulable": true, "taints": taint("example.com/gpu")}));
        assert_eq!((is_cordoned(&other), cordoned_at(&other)), (true, None));
        let back = node(json!({"taints": taint(UNSCHEDULABLE_TAINT)}));
        assert_eq!((is_cordoned(&back), cordoned_at(&back)), (false, None), "the taint disappears a moment later");
    }

    #[test]
    fn no_node_is_unreachable_when_most_nodes_are_silent() {
        let nodes = nodes(&[("a", "Unknown"), ("b", "Unknown"), ("c", "True")]);
        assert!(!is_unreachable("a", &nodes));
    }
}
