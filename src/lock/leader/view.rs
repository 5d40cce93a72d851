//! What the caches and the memory of this term say about one lock: the input of a decision.

use kube::ResourceExt;

use super::contender::contender;
use super::members::Members;
use super::memory::Memory;
use super::peers::Peers;
use crate::api::DistributedLock;
use crate::lock::model::decide::{Contender, Held, WaitReason};
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::queue::Place;
use crate::lock::model::refusal::Refusal;
use crate::lock::replica::access::Access;
use crate::lock::replica::holder;
use crate::runtime::context::Context;
use crate::time::Boottime;

/// What is known of the hold that the status names, located by its own record. `began` is when this replica came to lead.
pub(super) fn held(
    context: &Context,
    members: &Members,
    memory: &Memory,
    began: Boottime,
    lock: &DistributedLock,
) -> Option<Held> {
    let now = members.now();
    let sighting = members.holds.sightings.see(lock, now)?;
    let hold = members.adopt(lock);
    let record = members.record(lock);
    let session = record.as_ref().and_then(|record| members.session(&record.quorum));
    let unwell = hold.as_ref().and_then(|hold| hold.unwell_since(began));
    Some(Held {
        verdict: holder::verdict(context, lock, unwell),
        quorum_exists: record.as_ref().is_some_and(|record| members.exists(&record.quorum)),
        rejoin_delay: match record {
            Some(_) => session.and_then(|session| session.rejoin_delay()),
            None => Some(members.longest_rejoin_delay()),
        },
        sealing: memory.sealing_of(&lock.uid().unwrap_or_default(), holder_nonce(lock)),
        hold,
        record,
        clock: context.api_clock(),
        sighting,
    })
}

/// What decides whether a lock without a holder can get its key.
///
/// It tells who could hold a lock that may use this quorum and key, and whose turn it is.
/// That matters only while the lock has no holder.
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

/// Whether an attempt of a lock could be made now. One that could not blocks no other.
pub(super) fn is_eligible(memory: &Memory, now: Boottime, lock: &DistributedLock) -> bool {
    !memory.is_unable(&lock.uid().unwrap_or_default(), now)
}
