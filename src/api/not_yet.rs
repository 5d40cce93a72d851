//! What the schema has and this version does not do yet. The API server refuses it, so that nobody believes in it.
//!
//! To support a feature, remove its one rule here (and its row in README.md).

use kube::core::Rule;

use super::schema::rule;

/// Refused in a RedisQuorum's `spec`.
pub(super) fn quorum() -> Vec<Rule> {
    vec![
        rule(
            ".external",
            "has(self.external) == has(oldSelf.external) && (!has(self.external) || self.external == oldSelf.external)",
            "changing external members is not supported by this version yet: create another RedisQuorum",
        ),
        rule(
            ".members",
            "self.members == oldSelf.members || !has(self.external) || size(self.external) == 0",
            "changing members beside external ones is not supported by this version yet: create another RedisQuorum",
        ),
    ]
}
