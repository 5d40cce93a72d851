//! What the schema has and this version does not do yet. The API server refuses it, so that nobody believes in it.
//!
//! To support a feature, remove its one rule here (and its row in README.md).

use kube::core::Rule;

/// Refused in a RedisQuorum's `spec`.
pub(super) fn quorum() -> Vec<Rule> {
    Vec::new()
}
