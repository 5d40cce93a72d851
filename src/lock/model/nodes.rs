//! Pure: what a node that stopped reporting says about the candidates on it. What it says about holders takes longer, see
//! [`crate::runtime::node_watch`].

use k8s_openapi::api::core::v1::Node;

/// Whether nobody hears of the node, while most others report: nothing should be started there.
pub fn is_unreachable<N: AsRef<Node>>(name: &str, nodes: &[N]) -> bool {
    let silent = nodes.iter().map(AsRef::as_ref).filter(|node| is_silent(node));
    let (mut count, mut is_it) = (0, false);
    for node in silent {
        count += 1;
        is_it |= node.metadata.name.as_deref() == Some(name);
    }
    // When most are silent it is the node controller, or the API server, that was away.
    is_it && (nodes.len() - count) * 2 > nodes.len()
}

fn is_silent(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

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
    fn nothing_is_started_on_a_silent_node_among_others_that_report() {
        let nodes = nodes(&[("a", "Unknown"), ("b", "True"), ("c", "False")]);
        assert!(is_unreachable("a", &nodes));
        assert!(!is_unreachable("b", &nodes) && !is_unreachable("c", &nodes), "not ready is not silent");
        assert!(!is_unreachable("gone", &nodes));
    }

    #[test]
    fn when_most_nodes_are_silent_it_is_the_observer_that_was_away() {
        let nodes = nodes(&[("a", "Unknown"), ("b", "Unknown"), ("c", "True")]);
        assert!(!is_unreachable("a", &nodes));
    }
}
