//! The description of a lock: key, slots and times.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::error::NotAcquired;
use super::guard::Guard;
use super::{Client, whole_millis};
use crate::redlock::{LockKey, slot_key};
use crate::time::Boottime;

/// Maximum number of slots, as in an operator.
const MAX_SLOTS: u32 = 100;

/// A lock to acquire.
///
/// A clone of it is another acquisition.
#[derive(Clone, Debug)]
#[must_use = "nothing is locked before `acquire` or `try_acquire`"]
pub struct Lock {
    client: Client,
    target: Target,
    ttl: Duration,
    wait: Duration,
    refuses_other_slots: bool,
}

/// The keys of a lock on the members: its own key, or the keys of its slots.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) key: LockKey,
    slots: u32,
}

impl Target {
    /// Refuses keys outside the client's prefix.
    ///
    /// Keys of the members themselves, and of slots, contain a '#'.
    pub(super) fn check(&self, prefix: &str) -> Result<(), NotAcquired> {
        let key = self.key.as_str();
        if !key.starts_with(prefix) || key.contains('#') || key.is_empty() {
            return Err(NotAcquired::Key);
        }
        if (1..=MAX_SLOTS).contains(&self.slots) { Ok(()) } else { Err(NotAcquired::Slots { most: MAX_SLOTS }) }
    }

    /// The keys of the lock, beginning with the slot `first`, which wraps.
    ///
    /// One of them must be acquired.
    pub(super) fn keys(&self, first: u32) -> impl Iterator<Item = LockKey> {
        let (key, slots) = (self.key.clone(), self.slots.clamp(1, MAX_SLOTS));
        (0..slots).map(move |next| match slots {
            1 => key.clone(),
            _ => slot_key(&key, (first % slots + next) % slots),
        })
    }

    /// The keys that the lock has only with other numbers of slots.
    fn other_keys(&self) -> Vec<LockKey> {
        let own: Vec<_> = self.keys(0).collect();
        let slots = (0..MAX_SLOTS).map(|slot| slot_key(&self.key, slot));
        [self.key.clone()].into_iter().chain(slots).filter(|key| !own.contains(key)).collect()
    }

    /// The key of a lock from the key of one of its slots.
    ///
    /// Releases of all slots are announced on it.
    pub(super) fn of(key: &LockKey) -> LockKey {
        key.as_str().split_once('#').map_or_else(|| key.clone(), |(key, _)| LockKey::from(key))
    }
}

impl Lock {
    pub(super) const fn new(client: Client, key: LockKey, ttl: Duration, wait: Duration) -> Self {
        Self { client, target: Target { key, slots: 1 }, ttl, wait, refuses_other_slots: false }
    }

    /// The time to live without renewal.
    ///
    /// The default is [`super::Builder::ttl`]. A guard renews the lock.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The maximum wait of [`Lock::acquire`].
    ///
    /// The default is [`super::Builder::wait`].
    pub const fn wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    /// Makes the lock a semaphore for this number of holders, from 1 to 100.
    ///
    /// Each slot is a lock of its own under the key `<key>#<slot>`, counted from 0, with tokens that rise within the
    /// slot. An operator uses the same keys for the `slots` of a DistributedLock, so its claims and clients of this
    /// library share them. All of them have to use the same number: a holder of the key without slots, or of a slot
    /// beyond the smaller number, excludes no client here.
    pub const fn slots(mut self, slots: u32) -> Self {
        self.target.slots = slots;
        self
    }

    /// Refuses the lock while a holder has it with another number of slots.
    ///
    /// Redis has no relation between a key and its slots. Each attempt that has taken its key reads the keys of the
    /// other numbers on a majority of the members, which costs one more round trip. Of two clients that start at the
    /// same moment, at least one finds the other's key and releases its own, if both call this.
    pub const fn refuse_other_slots(mut self) -> Self {
        self.refuses_other_slots = true;
        self
    }

    /// Checks before the first attempt whether a holder has the lock with another number of slots.
    ///
    /// An attempt sets a key, which would block other clients until its release.
    async fn find_other_slots(&self) -> Result<(), NotAcquired> {
        match self.check_other_slots().await {
            Err(NotAcquired::OtherSlots) => Err(NotAcquired::OtherSlots),
            // The attempt waits for the members, or reports the reason.
            _ => Ok(()),
        }
    }

    async fn check_other_slots(&self) -> Result<(), NotAcquired> {
        if !self.refuses_other_slots {
            return Ok(());
        }
        let inner = &self.client.0;
        self.target.check(&inner.settings.key_prefix)?;
        inner.check_free(&self.target.other_keys()).await
    }

    /// Checks after the attempt that no holder has another number of slots.
    ///
    /// A majority has the key now, and the check reads a majority. So of two clients with different numbers, the one that reads later finds the
    /// key of the other.
    async fn checked(&self, guard: Guard) -> Result<Guard, NotAcquired> {
        let Err(error) = self.check_other_slots().await else { return Ok(guard) };
        let _ = guard.release().await;
        Err(error)
    }

    /// Tries once, in one round trip to a majority.
    ///
    /// A lock with slots takes at most one round trip for each slot.
    ///
    /// # Errors
    /// The reason why the lock is not held. The attempt leaves no key on the members.
    ///
    /// # Cancel safety
    /// Dropping the future releases its keys.
    pub async fn try_acquire(self) -> Result<Guard, NotAcquired> {
        self.find_other_slots().await?;
        let taken = self.client.0.attempt_any(&self.target, whole_millis(self.ttl), Duration::ZERO).await?;
        let guard = self.client.guard(taken.lock, &taken.grant)?;
        self.checked(guard).await
    }

    /// Tries until the lock is held or the wait has passed.
    ///
    /// Callers that wait for a key with the same client are served in order, and only the first of them sends requests.
    /// Clients exchange messages about waiters over the members, and a client that has released a key lets other
    /// clients go first. The order between clients is not guaranteed.
    ///
    /// # Errors
    /// The reason of the last attempt when the wait has passed, or at once for a permanent error.
    ///
    /// # Cancel safety
    /// Dropping the future releases its keys, and leaves the queue.
    pub async fn acquire(self) -> Result<Guard, NotAcquired> {
        let inner = &self.client.0;
        let begun = inner.clock.boottime();
        self.find_other_slots().await?;
        let turn = tokio::select! {
            biased;
            () = inner.closing.closed() => return Err(NotAcquired::Closed),
            turn = timeout(self.wait, inner.local_queue.wait(&self.target.key)) => turn,
        };
        let Ok(turn) = turn else { return Err(NotAcquired::HeldByOther { refusals: 0, longest: None }) };
        let guard = self.granted(begun, begun + self.wait).await?;
        // The next caller of a lock with slots need not wait for this holder.
        if self.target.slots == 1 {
            guard.keep_turn(turn);
        }
        Ok(guard)
    }

    /// Repeats attempts until one is granted and checked, or the deadline has passed.
    async fn granted(&self, begun: Boottime, deadline: Boottime) -> Result<Guard, NotAcquired> {
        let (ttl, inner) = (whole_millis(self.ttl), &self.client.0);
        loop {
            let taken = inner.attempts(&self.target, ttl, (begun, deadline)).await?;
            let guard = self.client.guard(taken.lock, &taken.grant)?;
            let error = match self.checked(guard).await {
                Err(error) if error.is_transient() && error != NotAcquired::OtherSlots => error,
                checked => return checked,
            };
            let left = deadline.since(inner.clock.boottime());
            if left.is_zero() {
                return Err(error);
            }
            tokio::select! {
                biased;
                () = inner.closing.closed() => return Err(NotAcquired::Closed),
                () = sleep(inner.settings.retry.min(left)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_slots_are_those_of_the_operator() {
        let keys =
            |slots, first| Target { key: "k".into(), slots }.keys(first).map(|key| key.to_string()).collect::<Vec<_>>();
        assert_eq!(keys(1, 7), ["k"]);
        assert_eq!(keys(3, 0), ["k#0", "k#1", "k#2"]);
        assert_eq!(keys(3, u32::MAX), ["k#0", "k#1", "k#2"]);
        assert_eq!(keys(3, 1), ["k#1", "k#2", "k#0"]);
        let others = |slots| Target { key: "k".into(), slots }.other_keys().len();
        assert_eq!((others(1), others(2), others(100)), (100, 99, 1));
        assert_eq!(Target::of(&"k#12".into()), "k".into());
        assert_eq!(Target::of(&"k".into()), "k".into());
    }

    #[test]
    fn other_numbers_of_slots_are_refused() {
        let checked = |slots| Target { key: "k".into(), slots }.check("");
        assert_eq!((checked(1), checked(100)), (Ok(()), Ok(())));
        for slots in [0, 101] {
            assert_eq!(checked(slots), Err(NotAcquired::Slots { most: 100 }));
        }
    }
}
