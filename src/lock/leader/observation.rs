//! The input of a decision: the state of one lock by the caches and the memory of this term.

use std::sync::Arc;

use kube::ResourceExt;

use super::contender::contender;
use super::leader_context::LeaderContext;
use crate::api::DistributedLock;
use crate::lock::model::decide::{HoldInput, LockInput};
use crate::lock::model::held_message::HeldMessage;
use crate::lock::model::hold_record::HoldRecord;
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::queue::Place;
use crate::lock::model::refusal::Refusal;
use crate::lock::model::verdict::Verdict;
use crate::lock::replica::access::{self, Access};
use crate::lock::replica::{holder, location};
use crate::time::Boottime;

/// The quorum and the key of a lock, if the limit of its namespace admits the lock.
///
/// The limit does not apply to a held lock.
pub(super) fn access(leader: &LeaderContext, lock: &DistributedLock) -> Result<Access, Refusal> {
    let limits = &leader.context.replica.settings.limits;
    // This comes first, because the policy reads a reason of it in the status of a second lock with the same Lease.
    let access = access::of(&leader.context, lock)?;
    if lock.holder().is_none()
        && leader.peers.index.has_older(lock, limits.locks, |older| leader.store.get(older).is_some())
    {
        let namespace = lock.namespace().unwrap_or_default();
        return Err(Refusal::TooManyLocks { namespace, limit: limits.locks });
    }
    Ok(access)
}

/// The input of a decision about a lock that has this access.
pub(super) fn observe<'a>(
    leader: &LeaderContext,
    lock: &'a Arc<DistributedLock>,
    access: &Result<Access, Refusal>,
) -> LockInput<'a> {
    let LeaderContext { context, reachability, members, memory, .. } = leader;
    let now = members.now();
    let held = hold_input(leader, lock, now);
    let (contender, place) = match &held {
        Some(_) => (Err(HeldMessage::NoCandidate { why: "already held".to_owned() }.into()), Ok(Place::First)),
        None => {
            let place = access.as_ref().map_err(Clone::clone).and_then(|access| leader.peers.place(lock, access));
            (contender(context, lock), place)
        }
    };
    let quorum = held.as_ref().and_then(|held| Some(held.record.as_ref()?.quorum.reference()));
    LockInput {
        lock,
        held,
        refusal: access.as_ref().err().or(place.as_ref().err()).cloned(),
        contender,
        trouble: memory.refusal(&lock.uid().unwrap_or_default()).or_else(|| leader.leases.misfit(lock)),
        place: place.unwrap_or(Place::First),
        pause: memory.pause(&lock.uid().unwrap_or_default(), now),
        can_hand_over: quorum.is_none_or(|quorum| reachability.can_hand_over(&quorum, now)),
        now,
        api_now: context.api_now(),
    }
}

/// The hold that the status names, located by its own record.
fn hold_input(leader: &LeaderContext, lock: &Arc<DistributedLock>, now: Boottime) -> Option<HoldInput> {
    let LeaderContext { context, reachability, members, memory, .. } = leader;
    let observed = members.holds.observation_times.record(lock, now)?;
    let hold = members.adopt(lock);
    let record = HoldRecord::of(lock);
    let session = record.as_ref().and_then(|record| location::session(&members.sessions, &record.quorum));
    let unhealthy = hold.as_ref().and_then(|hold| hold.unhealthy_since(reachability.began).cloned());
    let idle = || leader.leases.idle(lock).filter(|_| holder::has_another_candidate(context, lock));
    let verdict = holder::verdict(context, lock, unhealthy.or_else(idle).as_ref());
    let mut can_delete = true;
    if let (Verdict::Release(_), Some(session), Some(record)) = (&verdict, &session, &record) {
        can_delete = session.is_reached();
        if !can_delete {
            let why = "no majority answers, so no key there can be deleted";
            reachability.unanswered(&record.quorum.reference(), why, now);
        }
    }
    Some(HoldInput {
        can_delete,
        verdict,
        quorum_exists: record.as_ref().is_some_and(|record| location::exists(context, &record.quorum)),
        rejoin_delay: match record {
            Some(_) => session.and_then(|session| session.rejoin_delay()),
            None => Some(members.longest_rejoin_delay()),
        },
        sealed_until: memory.sealed_until(&lock.uid().unwrap_or_default(), holder_nonce(lock)),
        hold,
        record,
        clock: context.api_clock(),
        observed,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::runtime::reflector::ObjectRef;
    use serde_json::json;

    use super::*;
    use crate::api::test_util;
    use crate::lock::leader::tests::leader;
    use crate::runtime::fake_api;

    /// A replica has no hold of its own for a lock that ends.
    #[tokio::test]
    async fn an_ending_lock_waits_for_another_leader_only_for_a_while() {
        let leader = leader(fake_api::context(|_request| (404, json!({}))));
        let holder = json!({"identity": "a", "key": "ns/k", "rejoinDelay": "31s", "nonce": "0123456789abcdef0123",
            "quorum": {"namespace": "ns", "name": "q", "uid": "q"}});
        let ending = json!({"since": "2026-01-01T00:00:00.000Z", "reason": "Released"});
        let lock = Arc::new(test_util::lock(
            json!({"claim": {"identity": "a"}}),
            json!({"transitions": 1, "holder": holder, "ending": ending}),
        ));
        let can_hand_over = || observe(&leader, &lock, &access(&leader, &lock)).can_hand_over;
        assert!(can_hand_over());
        let before = leader.members.now().saturating_sub(Duration::from_secs(60));
        leader.reachability.hand_over(&ObjectRef::new("q").within("ns"), "no member answers", before);
        assert!(!can_hand_over());
    }
}
