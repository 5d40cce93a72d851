//! What to lock, and for how long.

use super::error::NotAcquired;
use super::guard::Guard;
use super::{Client, whole_millis};
use crate::redlock::{LockKey, slot_key};
use std::time::Duration;
use tokio::time::timeout;

/// As many slots as an operator serves on one key.
const MOST_SLOTS: u32 = 100;

/// A lock that is to be taken. A clone of it is taken later.
#[derive(Clone, Debug)]
#[must_use = "nothing is locked before `acquire` or `try_acquire`"]
pub struct Lock {
    client: Client,
    place: Place,
    ttl: Duration,
    wait: Duration,
    refuses_other_slots: bool,
}

/// Where a lock is on the members: its key, or any of the keys of its slots.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) key: LockKey,
    slots: u32,
}

impl Place {
    /// Refuses keys that are not the client's. The members' own keys, and those of slots, have a '#'.
    pub(super) fn check(&self, prefix: &str) -> Result<(), NotAcquired> {
        let key = self.key.as_str();
        if !key.starts_with(prefix) || key.contains('#') || key.is_empty() {
            return Err(NotAcquired::Key);
        }
        if (1..=MOST_SLOTS).contains(&self.slots) { Ok(()) } else { Err(NotAcquired::Slots { most: MOST_SLOTS }) }
    }

    /// The keys of which one is to be had, beginning with that of the slot `first`, which wraps.
    pub(super) fn keys(&self, first: u32) -> impl Iterator<Item = LockKey> {
        let (key, slots) = (self.key.clone(), self.slots.clamp(1, MOST_SLOTS));
        (0..slots).map(move |next| match slots {
            1 => key.clone(),
            _ => slot_key(&key, (first % slots + next) % slots),
        })
    }

    /// The keys that the lock has with other numbers of slots only.
    fn other_keys(&self) -> Vec<LockKey> {
        let own: Vec<_> = self.keys(0).collect();
        let slots = (0..MOST_SLOTS).map(|slot| slot_key(&self.key, slot));
        [self.key.clone()].into_iter().chain(slots).filter(|key| !own.contains(key)).collect()
    }

    /// Whether one holder excludes all others.
    pub(super) const fn is_exclusive(&self) -> bool {
        self.slots == 1
    }

    /// The key of a lock by that of one of its slots. Those who wait for any of them hear of releases by it.
    pub(super) fn of(key: &LockKey) -> LockKey {
        key.as_str().split_once('#').map_or_else(|| key.clone(), |(key, _)| LockKey::from(key))
    }
}

impl Lock {
    pub(super) const fn new(client: Client, key: LockKey, ttl: Duration, wait: Duration) -> Self {
        Self { client, place: Place { key, slots: 1 }, ttl, wait, refuses_other_slots: false }
    }

    /// How long the lock lives on when its holder is gone: what [`super::Builder::ttl`] says, unless this is called. A guard renews it.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`Lock::acquire`] waits at most: what [`super::Builder::wait`] says, unless this is called.
    pub const fn wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    /// Makes the lock a semaphore for this number of holders, from 1 to 100.
    ///
    /// Each slot is a lock of its own under the key `<key>#<slot>`, counted from 0, with tokens that rise within the slot. An operator
    /// lays out the `slots` of a DistributedLock in the same way, so its claims and clients of this library share them. All of them have
    /// to give the same number: a holder of the key without slots, or of a slot beyond the smaller number, excludes nobody here.
    pub const fn slots(mut self, slots: u32) -> Self {
        self.place.slots = slots;
        self
    }

    /// Refuses the lock while a holder has it with another number of slots.
    ///
    /// Redis does not know that a key and its slots belong together. Each attempt that has taken its key asks a majority of the
    /// members for the keys of the other numbers, one round trip more. Of two clients that start at the same moment at least one finds the
    /// other's key, and gives up its own, provided that both call this.
    pub const fn refuse_other_slots(mut self) -> Self {
        self.refuses_other_slots = true;
        self
    }

    /// Before the first attempt: a holder is found without a key that disturbs others.
    async fn find_other_slots(&self) -> Result<(), NotAcquired> {
        match self.check_other_slots().await {
            Err(NotAcquired::OtherSlots) => Err(NotAcquired::OtherSlots),
            // The attempt waits for the members, or gives the reason.
            _ => Ok(()),
        }
    }

    async fn check_other_slots(&self) -> Result<(), NotAcquired> {
        if !self.refuses_other_slots {
            return Ok(());
        }
        let inner = &self.client.0;
        self.place.check(&inner.key_prefix)?;
        inner.check_free(&self.place.other_keys()).await
    }

    /// After the attempt. The key is on a majority by now, and a majority is asked: of two clients with different numbers, the one that
    /// asks later finds the key of the other.
    async fn checked(&self, guard: Guard) -> Result<Guard, NotAcquired> {
        let Err(error) = self.check_other_slots().await else { return Ok(guard) };
        let _ = guard.release().await;
        Err(error)
    }

    /// Tries once: one round trip to a majority, with slots at most one for each.
    ///
    /// # Errors
    /// Why the lock is not held. Nothing of the attempt is left on the members.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it had taken.
    pub async fn try_acquire(self) -> Result<Guard, NotAcquired> {
        self.find_other_slots().await?;
        let taken = self.client.0.attempt_any(&self.place, whole_millis(self.ttl), Duration::ZERO).await?;
        let guard = self.client.guard(taken.lock, &taken.grant, None)?;
        self.checked(guard).await
    }

    /// Tries until the lock is held or the wait has passed. Those who wait for a key with the same client are served in order, and only
    /// the first of them asks the members. Clients tell each other by way of the members who waits, and the client that has released lets
    /// the others go first; the order between clients is not promised.
    ///
    /// # Errors
    /// Why the last attempt failed, when the wait has passed; at once for what waiting does not change.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it had taken, and gives up the place in the line.
    pub async fn acquire(self) -> Result<Guard, NotAcquired> {
        let (ttl, inner) = (whole_millis(self.ttl), &self.client.0);
        let begun = inner.clock.boottime();
        self.find_other_slots().await?;
        let turn = tokio::select! {
            biased;
            () = inner.closing.closed() => return Err(NotAcquired::Closed),
            turn = timeout(self.wait, inner.lines.wait(&self.place.key)) => turn,
        };
        let Ok(turn) = turn else { return Err(NotAcquired::HeldByOther { refusals: 0, longest: None }) };
        let taken = inner.attempts(&self.place, ttl, (begun, begun + self.wait)).await?;
        // With slots the next in line need not wait for this holder.
        let guard = self.client.guard(taken.lock, &taken.grant, self.place.is_exclusive().then_some(turn))?;
        self.checked(guard).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_slots_are_those_of_the_operator() {
        let keys =
            |slots, first| Place { key: "k".into(), slots }.keys(first).map(|key| key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys(1, 7), ["k"]);
        assert_eq!(keys(3, 0), ["k#0", "k#1", "k#2"]);
        assert_eq!(keys(3, u32::MAX), ["k#0", "k#1", "k#2"]);
        assert_eq!(keys(3, 1), ["k#1", "k#2", "k#0"]);
        let others = |slots| Place { key: "k".into(), slots }.other_keys().len();
        assert_eq!((others(1), others(2), others(100)), (100, 99, 1));
        assert_eq!(Place::of(&"k#12".into()), "k".into());
        assert_eq!(Place::of(&"k".into()), "k".into());
    }

    #[test]
    fn other_numbers_of_slots_are_refused() {
        let checked = |slots| Place { key: "k".into(), slots }.check("");
        assert_eq!((checked(1), checked(100)), (Ok(()), Ok(())));
        for slots in [0, 101] {
            assert_eq!(checked(slots), Err(NotAcquired::Slots { most: 100 }));
        }
    }
}
