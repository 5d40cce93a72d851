//! What the caches and the tables of this term say about one lock: the input of a decision.

use kube::ResourceExt;

use super::locks::Locks;
use crate::{
    api::DistributedLock,
    lock::{
        model::{
            decide::{Held, LetGoView, View},
            orphans::holder_nonce,
            queue::Place,
            refusal::Refusal,
        },
        replica::{access::Access, adopt, holder, location},
    },
};

impl Locks {
    pub(super) fn view<'a>(&self, lock: &'a DistributedLock, access: &Result<Access, Refusal>) -> View<'a> {
        let uid = lock.uid().unwrap_or_default();
        let held = self.held(lock);
        let quorum = held.as_ref().and_then(|held| Some(held.hold.as_ref()?.terms.quorum.reference()));
        let may_hand_over =
            quorum.map(|quorum| self.reachability.may_hand_over(&quorum, self.context.clock.boottime()));
        // Who could hold it and whose turn it is matter only while nobody holds it.
        let (contender, place, elsewhere) = if held.is_some() {
            (Err("already held".to_owned()), Ok(Place::First), None)
        } else {
            let access = access.as_ref().map_err(Clone::clone);
            let elsewhere = access.as_ref().ok().and_then(|access| self.held_elsewhere(lock, access));
            (self.contender(lock), access.and_then(|access| self.place(lock, access)), elsewhere)
        };
        View {
            lock,
            held,
            let_go: self.let_go_view(lock),
            refusal: access.as_ref().err().or(place.as_ref().err()).cloned(),
            contender,
            elsewhere,
            place: place.unwrap_or(Place::First),
            pause: self.last_pause(&uid),
            may_hand_over: may_hand_over.unwrap_or(true),
            now: self.context.clock.boottime(),
            api_now: self.context.api_now(),
        }
    }

    /// What is known of the hold that the status names, located by its own record.
    fn held(&self, lock: &DistributedLock) -> Option<Held> {
        let now = self.context.clock.boottime();
        let sighting = self.holds.sightings.see(lock, now)?;
        adopt::adopt(&self.context, &self.sessions, &self.holds, lock);
        let hold = self.holds.get(&lock.uid().unwrap_or_default());
        let record = location::of(&self.context, lock);
        let session = record.as_ref().and_then(|record| location::session(&self.sessions, &record.quorum));
        let quorum_now = session.as_ref().and_then(|session| session.quorum_time(now));
        let unwell = hold.as_ref().and_then(|hold| hold.unwell_since(self.reachability.began()));
        Some(Held {
            verdict: holder::verdict(&self.context, lock, quorum_now, unwell),
            quorum_exists: record.as_ref().is_some_and(|record| location::exists(&self.context, &record.quorum)),
            rejoin_delay: session.and_then(|session| session.rejoin_delay()),
            sealing: self.sealing_of(&lock.uid().unwrap_or_default(), holder_nonce(lock)),
            hold,
            record,
            quorum_now,
            sighting,
        })
    }

    fn let_go_view(&self, lock: &DistributedLock) -> Option<LetGoView> {
        let let_go = lock.status.as_ref()?.let_go.as_ref()?;
        let sealing = self.sealing_of(&lock.uid().unwrap_or_default(), let_go.nonce.parse().ok());
        Some(LetGoView { quorum_exists: location::exists(&self.context, &let_go.quorum), sealing })
    }
}
