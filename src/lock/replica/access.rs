//! Pure but for the caches it reads: may a lock's spec be served, by which quorum and under which Redis key?

use std::time::Duration;

use kube::{ResourceExt, runtime::reflector::ObjectRef};

use crate::{
    api::{DistributedLock, HeldQuorum, KeyLayout, RedisQuorum, conditions::AcceptedReason},
    lock::model::{decide::Refusal, record::slot_key},
    quorum::model::lookup::{self, LookupError},
    redlock::LockKey,
    runtime::context::Context,
};

/// A lock whose TTL is shorter than so many command deadlines could not survive a single slow member.
const MIN_TTL_IN_NODE_TIMEOUTS: u32 = 10;
/// Renewals per TTL, if the spec does not say otherwise.
const DEFAULT_RENEWALS_PER_TTL: u32 = 3;

/// Where a lock lives, and its timing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The quorum.
    pub quorum: HeldQuorum,
    /// The key in Redis.
    pub key: LockKey,
    /// Time to live.
    pub ttl: Duration,
    /// Between the starts of two renewals.
    pub renew_interval: Duration,
    /// The quorum's keys belong to no namespace, so that locks of others may be on this one.
    pub spans_namespaces: bool,
}

impl Access {
    /// The key of one of the lock's slots.
    pub fn slot_key(&self, slot: Option<i32>) -> LockKey {
        slot_key(&self.key, slot)
    }
}

/// Time between the starts of two renewals.
pub fn renew_interval(lock: &DistributedLock, ttl: Duration) -> Duration {
    let wanted = lock.spec.renew_interval.map_or(ttl / DEFAULT_RENEWALS_PER_TTL, |interval| interval.get());
    wanted.min(ttl / 2)
}

/// Finds the quorum and checks the lock against it.
pub fn of(context: &Context, lock: &DistributedLock) -> Result<Access, Refusal> {
    let namespace = lock.namespace().unwrap_or_default();
    let namespace = context.namespaces.cluster_named(&namespace);
    let default = context.replica.settings.default_quorum.as_ref();
    let quorum = lookup::quorum_of(lock, |quorum| context.quorums.get(quorum), default, namespace.as_deref())
        .map_err(|error| unreadable(context, &error).unwrap_or_else(|| error.into()))?;
    check(lock, &quorum)?;
    let ttl = lock.spec.ttl.get();
    Ok(Access {
        quorum: HeldQuorum::of(&quorum),
        key: lookup::redis_key(&quorum, lock),
        ttl,
        renew_interval: renew_interval(lock, ttl),
        spans_namespaces: quorum.spec.keys == KeyLayout::Verbatim,
    })
}

/// Says so of a quorum that exists and cannot be read.
fn unreadable(context: &Context, error: &LookupError) -> Option<Refusal> {
    let (LookupError::NotFound { namespace, name } | LookupError::DefaultNotFound { namespace, name }) = error else {
        return None;
    };
    let message = format!(
        "this version of the operator cannot read RedisQuorum {namespace}/{name}: its condition Ready says what to change there"
    );
    let is_unreadable = context.quorums.is_unreadable(&ObjectRef::new(name).within(namespace));
    is_unreadable.then_some(Refusal { reason: AcceptedReason::QuorumNotFound, message })
}

/// What the schema cannot check: the lock's times against its quorum's.
fn check(lock: &DistributedLock, quorum: &RedisQuorum) -> Result<(), Refusal> {
    let ttl = lock.spec.ttl;
    let name = quorum.name_any();
    let in_force = quorum.status.as_ref().and_then(|status| status.max_ttl_in_force);
    let refuse = |reason, message| Err(Refusal { reason, message });
    if ttl > quorum.spec.max_ttl {
        return refuse(
            AcceptedReason::TTLTooLong,
            format!(
                "ttl {ttl} is longer than maxTTL {} of RedisQuorum {name}: write a shorter ttl",
                quorum.spec.max_ttl
            ),
        );
    }
    // A longer TTL than the fence waits for must not be used before the fence waits for it.
    if in_force.is_none_or(|in_force| ttl > in_force) {
        return refuse(AcceptedReason::QuorumNotReady, not_ready(lock, quorum));
    }
    // The seal that carries the delay must not outlive what a fence waits for, or a restarted member would forget it.
    let delay = lock.spec.lock_delay.unwrap_or_default();
    if in_force.is_some_and(|in_force| ttl.get() + delay.get() > in_force.get()) {
        return refuse(
            AcceptedReason::TTLTooLong,
            format!(
                "ttl {ttl} and lockDelay {delay} together are longer than maxTTL {} of RedisQuorum {name}: write a shorter lockDelay",
                quorum.spec.max_ttl
            ),
        );
    }
    let shortest = quorum.spec.node_timeout.get() * MIN_TTL_IN_NODE_TIMEOUTS;
    if ttl.get() < shortest {
        return refuse(
            AcceptedReason::TTLTooShort,
            format!(
                "ttl {ttl} is shorter than ten times the nodeTimeout {} of RedisQuorum {name}: write at least {}",
                quorum.spec.node_timeout,
                crate::api::GoDuration::from(shortest)
            ),
        );
    }
    Ok(())
}

/// What a lock waits for whose ttl the quorum's fence does not cover yet.
fn not_ready(lock: &DistributedLock, quorum: &RedisQuorum) -> String {
    let (name, max_ttl) = (lookup::full_name(quorum), quorum.spec.max_ttl);
    match quorum.status.as_ref().and_then(|status| status.max_ttl_in_force) {
        Some(in_force) => format!(
            "ttl {} is longer than maxTTL {in_force}, which RedisQuorum {name} still uses: the operator serves this lock when maxTTL {max_ttl} is in force",
            lock.spec.ttl
        ),
        None => format!(
            "RedisQuorum {name} is starting: the operator serves this lock when its members may vote, a little more than maxTTL {max_ttl} after they have started"
        ),
    }
}

impl From<LookupError> for Refusal {
    fn from(error: LookupError) -> Self {
        let reason = match error {
            LookupError::NotFound { .. } | LookupError::NoDefault | LookupError::DefaultNotFound { .. } => {
                AcceptedReason::QuorumNotFound
            }
            LookupError::NamespaceNotAllowed { .. } => AcceptedReason::NamespaceNotAllowed,
        };
        Self { reason, message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(spec: Value, status: Value) -> Option<(AcceptedReason, String)> {
        let lock = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "reindex", "namespace": "shop"}, "spec": spec});
        let quorum = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum",
            "metadata": {"name": "main", "namespace": "redlock-system"}, "spec": {"maxTTL": "30s"}, "status": status});
        let checked = check(&serde_json::from_value(lock).unwrap(), &serde_json::from_value(quorum).unwrap());
        checked.err().map(|refusal| (refusal.reason, refusal.message))
    }

    fn claim(ttl: &str) -> Value {
        json!({"ttl": ttl, "claim": {"identity": "a"}})
    }

    #[test]
    fn a_lock_that_comes_before_its_quorum_is_ready_is_told_so_and_what_happens_next() {
        let (reason, message) = refusal(claim("10s"), json!({})).unwrap();
        assert_eq!(reason, AcceptedReason::QuorumNotReady);
        assert!(message.contains("redlock-system/main is starting"), "{message}");
        let (reason, message) = refusal(claim("10s"), json!({"maxTTLInForce": "5s"})).unwrap();
        assert_eq!(reason, AcceptedReason::QuorumNotReady);
        assert!(message.contains("maxTTL 5s") && message.contains("maxTTL 30s is in force"), "{message}");
        assert_eq!(refusal(claim("10s"), json!({"maxTTLInForce": "30s"})), None);
    }

    #[test]
    fn a_ttl_that_the_quorum_never_serves_is_refused_whatever_is_in_force() {
        for status in [json!({}), json!({"maxTTLInForce": "60s"})] {
            assert_eq!(refusal(claim("31s"), status).unwrap().0, AcceptedReason::TTLTooLong);
        }
    }
}
