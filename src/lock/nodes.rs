//! Pure: what a node that stopped reporting says about the pods on it.
//!
//! The node controller sets a node's condition `Ready` to `Unknown` when its kubelet has been silent. That is also what
//! follows an outage of the API server, on all nodes at once, until the kubelets are heard again. So it counts only while most
//! nodes report, and against a holder only after a while.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::ResourceExt;

use crate::time::UnixMillis;

/// A holder's node is given so long to be heard again, after an outage of the API server for one.
const GRACE_MILLIS: i64 = 15_000;

/// Whether nobody hears of the node, while most others report: nothing should be started there.
pub fn is_unreachable<N: AsRef<Node>>(name: &str, nodes: &[N]) -> bool {
    silent_since(name, nodes).is_some()
}

/// Whether that has been so for long enough to doubt what runs there.
pub fn is_lost<N: AsRef<Node>>(name: &str, nodes: &[N], now: UnixMillis) -> bool {
    silent_since(name, nodes).is_some_and(|since| now.0.saturating_sub(since) >= GRACE_MILLIS)
}

/// Since when the node controller has not heard of the node, if it hears of most others.
fn silent_since<N: AsRef<Node>>(name: &str, nodes: &[N]) -> Option<i64> {
    let silent = |node: &Node| ready(node).filter(|ready| ready.status == "Unknown").cloned();
    let node = nodes.iter().map(AsRef::as_ref).find(|node| node.name_any() == name)?;
    let since = silent(node)?.last_transition_time.map_or(0, |time| time.0.as_millisecond());
    let reporting = nodes.iter().filter(|node| silent(node.as_ref()).is_none()).count();
    (reporting * 2 > nodes.len()).then_some(since)
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z

    fn nodes(states: &[(&str, &str)]) -> Vec<Arc<Node>> {
        let node = |(name, ready): &(&str, &str)| {
            let node: Node = serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:50Z"}]}}))
            .unwrap();
            Arc::new(node)
        };
        states.iter().map(node).collect()
    }

    #[test]
    fn a_silent_node_among_others_that_report_is_in_doubt_after_the_grace() {
        let nodes = nodes(&[("a", "Unknown"), ("b", "True"), ("c", "False")]);
        assert!(is_unreachable("a", &nodes));
        assert!(!is_lost("a", &nodes, UnixMillis(NOW.0 + 4_999)));
        assert!(is_lost("a", &nodes, UnixMillis(NOW.0 + 5_000)));
        assert!(!is_unreachable("b", &nodes) && !is_unreachable("c", &nodes), "not ready is not silent");
    }

    #[test]
    fn when_most_nodes_are_silent_it_is_the_observer_that_was_away() {
        let nodes = nodes(&[("a", "Unknown"), ("b", "Unknown"), ("c", "True")]);
        assert!(!is_unreachable("a", &nodes) && !is_lost("a", &nodes, UnixMillis(NOW.0 + 60_000)));
    }

    #[test]
    fn a_node_that_is_not_known_says_nothing() {
        assert!(!is_lost("gone", &nodes(&[("a", "True")]), NOW));
    }
}
