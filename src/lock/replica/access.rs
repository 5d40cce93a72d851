//! Checks a lock's spec, and returns its quorum and its key in Redis. Pure apart from the caches.

use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use crate::api::{
    DistributedLock, FenceReason, GoDuration, HeldQuorum, KeyLayout, MemberState, MemberStatus, RedisQuorum,
};
use crate::lock::model::refusal::Refusal;
use crate::lock::model::status::full_name;
use crate::lock::model::{key, queue};
use crate::quorum::model::lookup::{self, LookupError};
use crate::redlock::{LockKey, slot_key};
use crate::runtime::context::Context;
use crate::runtime::keys;

/// Minimum TTL as a multiple of `nodeTimeout`.
///
/// With a shorter TTL, one slow member could cost the lock.
const MIN_TTL_IN_NODE_TIMEOUTS: u32 = 10;
/// Renewals per TTL, without `spec.renewInterval`.
const DEFAULT_RENEWALS_PER_TTL: u32 = 3;

/// Quorum, key and timing of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The quorum.
    pub quorum: HeldQuorum,
    /// The key in Redis.
    pub key: LockKey,
    /// Time to live.
    pub ttl: Duration,
    /// Time between the starts of two renewals.
    pub renew_interval: Duration,
    /// The quorum's keys belong to no namespace, so locks of other namespaces can be on this one.
    pub spans_namespaces: bool,
}

impl Access {
    /// The key of one of the lock's slots. `None` is a lock without slots.
    pub fn slot_key(&self, slot: Option<i32>) -> LockKey {
        slot.map_or_else(|| self.key.clone(), |slot| slot_key(&self.key, slot))
    }
}

/// Time between the starts of two renewals.
pub fn renew_interval(lock: &DistributedLock, ttl: Duration) -> Duration {
    let wanted = lock.spec.renew_interval.map_or(ttl / DEFAULT_RENEWALS_PER_TTL, |interval| interval.get());
    wanted.min(ttl / 2)
}

/// Finds the quorum and checks the lock against it.
pub fn of(context: &Context, lock: &DistributedLock) -> Result<Access, Refusal> {
    check_lease(context, lock)?;
    Refusal::of_reading(lock).map_or(Ok(()), Err)?;
    let names_job = lock.spec.claim.as_ref().is_some_and(|claim| claim.job_name.is_some());
    if names_job && context.jobs.is_none() {
        return Err(Refusal::NoJobs);
    }
    let namespace = context.namespaces.cluster_named(&lock.namespace().unwrap_or_default());
    let default = context.default_quorum();
    let quorum = lookup::quorum_of(lock, |quorum| context.quorums.get(quorum), default.as_ref(), namespace.as_deref())
        .map_err(|error| unreadable(context, &error).unwrap_or(Refusal::Lookup(error)))?;
    check(lock, &quorum)?;
    let ttl = lock.spec.ttl.get();
    Ok(Access {
        quorum: HeldQuorum::of(&quorum),
        key: key::redis_key(&quorum, lock),
        ttl,
        renew_interval: renew_interval(lock, ttl),
        spans_namespaces: quorum.spec.keys == KeyLayout::Verbatim,
    })
}

/// Checks that the Lease of an election is free for it, and guarded by the policy.
fn check_lease(context: &Context, lock: &DistributedLock) -> Result<(), Refusal> {
    let Some(lease) = lock.lease() else { return Ok(()) };
    let (settings, namespace) = (&context.replica.settings, lock.namespace().unwrap_or_default());
    if !settings.gates_leases(&namespace) {
        return Err(Refusal::NoLeaseGate { namespace });
    }
    let full = format!("{namespace}/{lease}");
    if settings.operator == full {
        return Err(Refusal::OperatorsLease { lease: full });
    }
    let others = context.locks.under(&keys::lease(&namespace, lease));
    // A held lock precedes an older one, because the caches possibly did not have the older one at the grant.
    let order = |lock: &DistributedLock| (lock.holder().is_none(), queue::age(lock));
    let first = others.iter().filter(|other| other.uid() != lock.uid()).min_by_key(|other| order(other));
    match first.filter(|other| order(other) < order(lock)) {
        Some(other) => Err(Refusal::OthersLease { other: full_name(other) }),
        None => Ok(()),
    }
}

/// The refusal of a quorum that exists and cannot be read.
fn unreadable(context: &Context, error: &LookupError) -> Option<Refusal> {
    let (LookupError::NotFound { namespace, name } | LookupError::DefaultNotFound { namespace, name }) = error else {
        return None;
    };
    let is_unreadable = context.quorums.is_unreadable(&ObjectRef::new(name).within(namespace));
    is_unreadable.then(|| Refusal::UnreadableQuorum { namespace: namespace.clone(), name: name.clone() })
}

/// Checks the lock's times against those of its quorum, which the schema cannot do.
fn check(lock: &DistributedLock, redis_quorum: &RedisQuorum) -> Result<(), Refusal> {
    let (ttl, delay) = (lock.spec.ttl, lock.spec.lock_delay.unwrap_or_default());
    let (max_ttl, node_timeout) = (redis_quorum.spec.max_ttl, redis_quorum.spec.node_timeout);
    let quorum = lookup::full_name(redis_quorum);
    let longest = GoDuration::from(ttl.get() + delay.get());
    if ttl > max_ttl {
        return Err(Refusal::Ttl { ttl, max_ttl, quorum });
    }
    if longest > max_ttl {
        return Err(Refusal::LockDelay { ttl, delay, max_ttl, quorum });
    }
    let shortest = node_timeout.get() * MIN_TTL_IN_NODE_TIMEOUTS;
    match redis_quorum.status.as_ref().and_then(|status| status.max_ttl_in_force) {
        None => Err(starting(redis_quorum)),
        Some(_) if starts_first(redis_quorum) => Err(starting(redis_quorum)),
        // A lock can use these times only after fences wait for them. A restarted member would forget a longer key or seal.
        Some(in_force) if longest > in_force => Err(Refusal::LargerMaxTtl { longest, in_force, quorum, max_ttl }),
        Some(_) if ttl.get() < shortest => {
            Err(Refusal::ShortTtl { ttl, node_timeout, quorum, shortest: shortest.into() })
        }
        Some(_) => Ok(()),
    }
}

/// Whether the members of the quorum start for the first time.
///
/// No majority of them was ever admitted, so no lock can be held.
fn starts_first(quorum: &RedisQuorum) -> bool {
    let members = quorum.members();
    let is_first = |member: &MemberStatus| match member.reason {
        Some(reason) => matches!(reason, FenceReason::FirstStart | FenceReason::Joining),
        None => member.run_id.is_none() && member.predecessor.is_none(),
    };
    let (admitted, others): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.state == MemberState::Admitted);
    !members.is_empty() && admitted.len() <= members.len() / 2 && others.into_iter().all(is_first)
}

/// The refusal of a starting quorum, with the time at which a majority of its members can vote.
fn starting(quorum: &RedisQuorum) -> Refusal {
    let members = quorum.members();
    let waiting = || members.iter().filter(|member| member.state != MemberState::Admitted);
    let mut times: Vec<_> = waiting().filter_map(|member| member.rejoin_at).collect();
    times.sort_by_key(|at| at.as_millis());
    let (name, max_ttl) = (lookup::full_name(quorum), quorum.spec.max_ttl);
    let admitted = members.len() - waiting().count();
    match times.get((members.len() / 2).saturating_sub(admitted)) {
        Some(at) => Refusal::StartingUntil { quorum: name, at: *at },
        None => Refusal::Starting { quorum: name, max_ttl },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::conditions::AcceptedReason;
    use crate::api::test_util::{lock, parsed};

    fn refusal(spec: Value, status: Value) -> Option<(AcceptedReason, String)> {
        let quorum = parsed(json!({"metadata": {"name": "main", "namespace": "redlock-system"},
            "spec": {"maxTTL": "30s"}, "status": status}));
        let checked = check(&lock(spec, json!(null)), &quorum);
        checked.err().map(|refusal| (refusal.reason(), refusal.to_string()))
    }

    fn claim(ttl: &str) -> Value {
        json!({"ttl": ttl, "claim": {"identity": "a"}})
    }

    #[test]
    fn a_refusal_by_the_quorum_has_a_reason_and_a_message() {
        use AcceptedReason::{QuorumNotReady, TTLTooLong};
        let delayed = |ttl: &str, delay: &str| json!({"ttl": ttl, "lockDelay": delay, "claim": {"identity": "a"}});
        let in_force = |ttl: &str| json!({"maxTTLInForce": ttl});
        let too_long = ["lockDelay 20s together are longer than maxTTL 30s", ""];
        for (spec, status, reason, texts) in [
            (claim("10s"), json!({}), QuorumNotReady, ["redlock-system/main is starting", ""]),
            (claim("10s"), in_force("5s"), QuorumNotReady, ["maxTTL 5s", "maxTTL 30s is in force"]),
            (delayed("8s", "5s"), in_force("10s"), QuorumNotReady, ["together are 13s", "maxTTL 10s"]),
            (claim("31s"), json!({}), TTLTooLong, ["", ""]),
            (claim("31s"), in_force("60s"), TTLTooLong, ["", ""]),
            (delayed("20s", "20s"), json!({}), TTLTooLong, too_long),
            (delayed("20s", "20s"), in_force("60s"), TTLTooLong, too_long),
        ] {
            let (found, message) = refusal(spec, status).unwrap();
            assert_eq!(found, reason, "{message}");
            assert!(texts.iter().all(|text| message.contains(text)), "{message}");
        }
        for spec in [claim("10s"), delayed("8s", "5s")] {
            assert_eq!(refusal(spec, in_force("30s")), None);
        }
    }

    #[test]
    fn a_quorum_is_starting_until_its_members_have_voted() {
        let member = |name: &str, state: &str, reason: Option<&str>, at: Option<&str>| json!({"name": name, "state": state, "reason": reason, "rejoinAt": at, "runID": "x"});
        let of = |members: [Value; 3]| refusal(claim("10s"), json!({"maxTTLInForce": "30s", "members": members}));
        let fenced = |name, at| member(name, "Fenced", Some("FirstStart"), Some(at));
        let (early, late) = ("2026-01-01T00:00:31.000Z", "2026-01-01T00:00:35.000Z");
        let first = [fenced("a", late), fenced("b", early), json!({"name": "c", "state": "Pending"})];
        let (reason, message) = of(first).unwrap();
        assert_eq!(reason, AcceptedReason::QuorumNotReady);
        assert!(message.contains("is starting") && message.contains("00:00:35"), "a majority is two: {message}");
        let one_votes = [member("a", "Admitted", None, None), fenced("b", early), fenced("c", late)];
        assert!(of(one_votes).unwrap().1.contains("00:00:31"), "one more is a majority");
        let restarted = |name| member(name, "Fenced", Some("Restarted"), Some(late));
        assert_eq!(of([restarted("a"), restarted("b"), restarted("c")]), None, "the condition Held reports this fault");
        let votes = |name| member(name, "Admitted", None, None);
        assert_eq!(of([votes("a"), votes("b"), fenced("c", late)]), None);
    }
}
