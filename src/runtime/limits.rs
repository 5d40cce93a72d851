//! Pure: how many locks and quorums of one namespace are served. Each costs memory in every replica, and each quorum connections.

use kube::ResourceExt;

use crate::api::{MemberState, RedisQuorum};

/// Maximum numbers for one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Locks.
    pub locks: usize,
    /// Quorums.
    pub quorums: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { locks: usize::MAX, quorums: usize::MAX }
    }
}

impl Limits {
    /// Limits from two numbers. Zero means no limit.
    pub fn new(locks: usize, quorums: usize) -> Self {
        let limit = |number: usize| if number == 0 { usize::MAX } else { number };
        Self { locks: limit(locks), quorums: limit(quorums) }
    }

    /// Whether a quorum exceeds the limit of its namespace. The oldest quorums have priority.
    ///
    /// A quorum with started members is always served, even above the limit, because promises of its members can still be valid. A deleted
    /// one with copies of Secrets is served, too, because only its deletion removes them.
    pub fn has_no_room(&self, quorum: &RedisQuorum, namespace: &[impl AsRef<RedisQuorum>]) -> bool {
        let age =
            |quorum: &RedisQuorum| (quorum.metadata.creation_timestamp.as_ref().map(|it| it.0), quorum.name_any());
        let is_deleting = quorum.metadata.deletion_timestamp.is_some();
        let has_begun = quorum.status.as_ref().is_some_and(|status| {
            let mut members = status.members.iter();
            let has_started = members.any(|member| member.state != MemberState::Pending || member.run_id.is_some());
            has_started || status.token_floor.is_some() || is_deleting && !status.client_copies.is_empty()
        });
        let older = || namespace.iter().filter(|other| age(other.as_ref()) < age(quorum)).count();
        !has_begun && namespace.len() > self.quorums && older() >= self.quorums
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;

    fn quorum(name: &str, created: u8, members: serde_json::Value) -> Arc<RedisQuorum> {
        let created = format!("2026-01-01T00:00:{created:02}Z");
        Arc::new(parsed(json!({"metadata": {"name": name, "namespace": "ns", "creationTimestamp": created},
            "spec": {}, "status": {"members": members}})))
    }

    #[test]
    fn the_oldest_and_all_begun_quorums_are_served() {
        let limits = Limits::new(0, 2);
        let pending = || json!([{"name": "q-0", "state": "Pending"}]);
        let (a, b, c) = (quorum("a", 1, json!([])), quorum("b", 2, pending()), quorum("c", 3, pending()));
        let begun = quorum("d", 4, json!([{"name": "d-0", "state": "Fenced", "runID": "r"}]));
        let all = [c.clone(), b.clone(), a.clone(), begun.clone()];
        let no_room = |quorum: &RedisQuorum| limits.has_no_room(quorum, &all);
        assert_eq!([&a, &b, &c, &begun].map(|quorum| no_room(quorum)), [false, false, true, false]);
        assert!(!limits.has_no_room(&c, &[c.clone(), a.clone()]), "only two quorums are left");
        assert!(!Limits::default().has_no_room(&c, &all));
        let mut copied = quorum("e", 5, pending());
        let copies = serde_json::from_value(json!([{"client": "billing", "namespace": "shop"}])).unwrap();
        Arc::make_mut(&mut copied).status.as_mut().unwrap().client_copies = copies;
        assert!(no_room(&copied));
        Arc::make_mut(&mut copied).metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(!no_room(&copied), "its deletion has to remove the copies");
        let mut emptied = quorum("f", 6, json!([]));
        Arc::make_mut(&mut emptied).status.as_mut().unwrap().token_floor = Some(7);
        assert!(!no_room(&emptied), "a user emptied the status of its members");
    }
}
