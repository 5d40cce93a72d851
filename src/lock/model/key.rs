//! Pure: the key of a lock in Redis, and the keys of its slots.

use kube::ResourceExt;

use crate::api::{DistributedLock, KeyLayout, RedisQuorum};
use crate::redlock::LockKey;

/// The key of a lock on this quorum.
pub fn redis_key(quorum: &RedisQuorum, lock: &DistributedLock) -> LockKey {
    let key = lock.key();
    match quorum.spec.keys {
        KeyLayout::Namespaced => LockKey::new(format!("{}/{key}", lock.namespace().unwrap_or_default())),
        KeyLayout::Verbatim => LockKey::new(key),
    }
}

/// The key to which a slot belongs. No key of a lock contains `#`.
pub fn without_slot(key: &LockKey) -> &str {
    key.as_str().split('#').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::redlock::slot_key;

    #[test]
    fn keys_follow_the_layout_and_slots_belong_to_their_key() {
        let key = |layout: &str, spec| {
            let quorum = RedisQuorum::new("main", serde_json::from_value(json!({"keys": layout})).unwrap());
            let mut lock = DistributedLock::new("nightly", serde_json::from_value(spec).unwrap());
            lock.metadata.namespace = Some("shop".into());
            redis_key(&quorum, &lock)
        };
        assert_eq!(key("Namespaced", json!({"key": "reindex"})).as_str(), "shop/reindex");
        assert_eq!(key("Verbatim", json!({"key": "reindex"})).as_str(), "reindex");
        assert_eq!(key("Namespaced", json!({})).as_str(), "shop/nightly");
        let reindex = key("Verbatim", json!({"key": "reindex"}));
        assert_eq!(without_slot(&slot_key(&reindex, 1)), "reindex");
    }
}
