//! The quorums that this replica reaches, for the election of the leader.

use std::sync::Arc;

use kube::ResourceExt;

use crate::api::{MemberState, RedisQuorum};
use crate::quorum::session::{QuorumSession, Sessions};
use crate::runtime::context::Context;
use crate::runtime::keys;
use crate::runtime::leader::{QuorumReachability, ReplicaState, quorum_name};
use crate::time::UnixMillis;

/// The reachability of the quorums from this replica, and its estimate of the API server's time.
pub struct ReplicaReachability {
    /// Caches, and the API server's time.
    pub context: Context,
    /// Connections to the quorums.
    pub sessions: Sessions,
}

/// Whether a majority of the members has a running process.
///
/// The leader must admit these members, even if locks only wait for them.
fn runs(quorum: &RedisQuorum) -> bool {
    let members = quorum.members();
    let running = members.iter().filter(|member| member.state != MemberState::Pending).count();
    running > members.len() / 2
}

impl ReplicaState for ReplicaReachability {
    /// Omits quorums that are being deleted, because their members stop answering every replica.
    fn reachability(&self) -> Vec<QuorumReachability> {
        let is_ending = |quorum: &RedisQuorum| {
            let namespace = self.context.namespaces.cluster_named(&quorum.namespace().unwrap_or_default());
            let namespace_ends = namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some());
            namespace_ends || quorum.metadata.deletion_timestamp.is_some()
        };
        let sessions = self.sessions.all().into_iter().filter(|session| !is_ending(&session.quorum()));
        let reachability_of = |session: Arc<QuorumSession>| {
            let is_reached = session.is_reached();
            let is_held = || !self.context.locks.under(&keys::held_on(Some(session.uid()))).is_empty();
            let is_wanted = !is_reached && (runs(&session.quorum()) || is_held());
            QuorumReachability { quorum: quorum_name(session.reference()), is_reached, is_wanted }
        };
        sessions.map(reachability_of).collect()
    }

    fn api_now(&self) -> UnixMillis {
        self.context.api_now()
    }

    fn refuses_to_lead(&self, refuses: bool) {
        self.context.metrics.refuses_to_lead(refuses);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::test_util::quorum;

    #[test]
    fn a_quorum_runs_with_a_majority_of_its_members() {
        let runs = |states: &[&str]| {
            let members: Vec<_> = states.iter().map(|state| json!({"name": "q-0", "state": state})).collect();
            runs(&quorum(json!({}), json!({"members": members})))
        };
        assert!(runs(&["Fenced", "Starting", "Pending"]));
        assert!(!runs(&["Fenced", "Pending", "Pending"]));
        assert!(!runs(&[]));
    }
}
