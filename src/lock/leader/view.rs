//! The input of a decision: the state of one lock by the caches and the memory of this term.

use kube::ResourceExt;

use super::contender::contender;
use super::members::Members;
use super::memory::Memory;
use super::peers::Peers;
use crate::api::DistributedLock;
use crate::lock::model::decide::{Contender, HoldView, WaitReason};
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::queue::Place;
use crate::lock::model::refusal::Refusal;
use crate::lock::replica::access::Access;
use crate::lock::replica::holder;
use crate::runtime::context::Context;
use crate::time::Boottime;

/// The hold that the status names, located by its own record. `began` is the start of this term.
pub(super) fn held(
    context: &Context,
    members: &Members,
    memory: &Memory,
    began: Boottime,
    lock: &DistributedLock,
) -> Option<HoldView> {
    let now = members.now();
    let observed = members.holds.observation_times.record(lock, now)?;
    let hold = members.adopt(lock);
    let record = members.record(lock);
    let session = record.as_ref().and_then(|record| members.session(&record.quorum));
    let unhealthy = hold.as_ref().and_then(|hold| hold.unhealthy_since(began));
    Some(HoldView {
        verdict: holder::verdict(context, lock, unhealthy),
        quorum_exists: record.as_ref().is_some_and(|record| members.exists(&record.quorum)),
        rejoin_delay: match record {
            Some(_) => session.and_then(|session| session.rejoin_delay()),
            None => Some(members.longest_rejoin_delay()),
        },
        sealing: memory.sealing_of(&lock.uid().unwrap_or_default(), holder_nonce(lock)),
        hold,
        record,
        clock: context.api_clock(),
        observed,
    })
}

/// The next holder of a free lock, and its place in the queue.
///
/// They matter only while the lock has no holder.
pub(super) fn prospect(
    context: &Context,
    peers: &Peers,
    memory: &Memory,
    now: Boottime,
    lock: &DistributedLock,
    access: &Result<Access, Refusal>,
) -> (Result<Contender, WaitReason>, Result<Place, Refusal>) {
    let eligible = |other: &DistributedLock| is_eligible(memory, now, other);
    let place = access.as_ref().map_err(Clone::clone).and_then(|access| peers.place(lock, access, &eligible));
    (contender(context, lock), place)
}

/// Whether a lock could make an attempt now. A lock that could not blocks no other.
pub(super) fn is_eligible(memory: &Memory, now: Boottime, lock: &DistributedLock) -> bool {
    !memory.is_unable(&lock.uid().unwrap_or_default(), now)
}
