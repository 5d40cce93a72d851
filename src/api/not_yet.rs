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
            "!has(self.external) || size(self.external) == 0",
            "external members are not supported by this version yet: leave external out",
        ),
        rule(
            ".members",
            "self.members == oldSelf.members",
            "changing members is not supported by this version yet: create another RedisQuorum",
        ),
    ]
}
