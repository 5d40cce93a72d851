//! Where the hold of a lock lives that cannot be read.

use std::sync::Arc;

use kube::ResourceExt;

use super::Raw;
use crate::api::{DistributedLock, GoDuration, HeldQuorum, RedisQuorum};
use crate::lock::model::record::slot_key;
use crate::quorum::model::lookup;
use crate::redlock::{LockKey, Nonce};

/// More slots than this the schema does not allow.
const MOST_SLOTS: i64 = 100;

/// Where a hold lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its quorum.
    pub quorum: HeldQuorum,
    /// The keys that it may have; none if the quorum is gone and the status does not say.
    pub keys: Vec<LockKey>,
    /// Which attempt took it. Unknown: every value of the lock may be it.
    pub nonce: Option<Nonce>,
    /// The status itself says all of this.
    pub exact: bool,
    /// The longest that the members may owe the hold something, if the status says so.
    pub recorded: Option<GoDuration>,
}

/// By the status; a key that cannot be read there, by the specification. `None`: it names no quorum.
#[must_use]
pub fn locate(raw: &Raw, quorums: &[Arc<RedisQuorum>]) -> Option<Place> {
    let holder = raw.field("/status/holder")?;
    let quorum = holder.get("quorum").and_then(|quorum| serde_json::from_value::<HeldQuorum>(quorum.clone()).ok())?;
    let key = holder.get("key").and_then(|key| key.as_str()).map(|key| LockKey::new(key.to_owned()));
    let nonce: Option<Nonce> = holder.get("nonce").and_then(|nonce| nonce.as_str()?.parse().ok());
    let delay = holder.get("rejoinDelay").and_then(|delay| delay.as_str()?.parse().ok());
    let exact = key.is_some() && nonce.is_some();
    let named = named(raw);
    let keys = match key {
        Some(key) => vec![key],
        None => quorums
            .iter()
            .find(|known| known.uid().as_deref() == Some(quorum.uid.as_str()))
            .map(|known| keys(raw, &lookup::redis_key(known, &named)))
            .unwrap_or_default(),
    };
    Some(Place { quorum, keys, nonce, exact, recorded: delay })
}

/// What of the specification says where the lock lives.
fn named(raw: &Raw) -> DistributedLock {
    let mut named = DistributedLock::new(raw.metadata.name.as_deref().unwrap_or_default(), Default::default());
    named.metadata.namespace.clone_from(&raw.metadata.namespace);
    named.spec.key = raw.text("/spec/key").map(str::to_owned);
    named
}

/// Of a lock with several slots all of them, unless its status says which one it is.
fn keys(raw: &Raw, key: &LockKey) -> Vec<LockKey> {
    let slots = raw.field("/spec/slots").and_then(|slots| slots.as_i64()).unwrap_or(1);
    let slot = raw.field("/status/holder/slot").and_then(|slot| i32::try_from(slot.as_i64()?).ok());
    match (slots, slot) {
        (..=1, _) => vec![key.clone()],
        (_, Some(slot)) => vec![slot_key(key, Some(slot))],
        (slots, None) => {
            let slots = i32::try_from(slots.min(MOST_SLOTS)).unwrap_or(1);
            (0..slots).map(|slot| slot_key(key, Some(slot))).collect()
        }
    }
}
