//! Hints between clients about released keys, so that waiters in other processes need not poll.
//!
//! A waiting client subscribes to the channel of its key at each member, and publishes there that it waits. A release
//! is published there with the ticket of the client that has waited longest. A hint begins or ends a pause, and a
//! normal attempt follows. A hint that is lost, late or forged costs time but never safety, and no attempt fails
//! without one.
//!
//! A client that has just released a key lets other waiting clients go first. Otherwise its own callers would win each
//! time, because their request follows the release on the same connections.

mod channel_message;
mod waiters;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use self::channel_message::Message;
use self::waiters::{LINGER, Waiters};
use super::locked;
use super::member_set::MemberSet;
use crate::redlock::{LockKey, Redlock};
use crate::time::{Clock, timers_now};
use crate::voting::{Notification, Wanted};

pub(super) use self::waiters::{ANNOUNCE_AGAIN, Hint};

/// Maximum number of keys without a waiter that are kept.
const MAX_UNUSED_KEYS: usize = 1024;

#[derive(Default)]
struct Keys {
    waiters: HashMap<LockKey, Waiters>,
    /// The wake of the waiting caller of each key.
    wakes: HashMap<LockKey, Arc<Notify>>,
    /// Members with a confirmed subscription, by key.
    subscribed: BTreeMap<LockKey, BTreeSet<usize>>,
}

pub(super) struct Hints {
    keys: Mutex<Keys>,
    wanted: watch::Sender<Wanted>,
    redlock: Redlock<dyn Clock>,
    members: Arc<MemberSet>,
    /// Guards can be dropped outside of the runtime.
    runtime: Handle,
}

impl Hints {
    pub(super) fn new(redlock: Redlock<dyn Clock>, members: Arc<MemberSet>, runtime: Handle) -> Self {
        Self { keys: Mutex::default(), wanted: watch::Sender::default(), redlock, members, runtime }
    }

    /// The keys that need a subscription.
    pub(super) fn wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// Handles an event of a member's listener.
    pub(super) fn on_notification(&self, member: usize, notification: Notification<'_>) {
        match notification {
            Notification::Published(key, number) => self.on_message(key, number),
            Notification::Subscribed(key) => {
                locked(&self.keys).subscribed.entry(key.clone()).or_default().insert(member);
            }
            Notification::Unsubscribed(key) => self.remove_member(|other| other == key, member),
            Notification::Disconnected => self.remove_member(|_| true, member),
        }
    }

    fn remove_member(&self, matches: impl Fn(&LockKey) -> bool, member: usize) {
        locked(&self.keys).subscribed.retain(|key, members| {
            if matches(key) {
                members.remove(&member);
            }
            !members.is_empty()
        });
    }

    /// Returns true if a majority of the members has subscribed to the key.
    ///
    /// Then a release reaches this client.
    pub(super) fn has_majority(&self, key: &LockKey) -> bool {
        locked(&self.keys).subscribed.get(key).is_some_and(|members| members.len() >= self.members.quorum())
    }

    fn on_message(&self, key: &LockKey, number: i64) {
        let mut keys = locked(&self.keys);
        let message = Message::of(number);
        let has_hint = keys
            .waiters
            .get_mut(key)
            .is_some_and(|waiters| waiters.on_message(message, self.members.quorum(), timers_now()));
        if has_hint && let Some(wakes) = keys.wakes.get(key) {
            wakes.notify_one();
        }
    }

    /// Returns true if other clients wait for a key that this client was the last to hold.
    pub(super) fn yields(&self, key: &LockKey) -> bool {
        locked(&self.keys).waiters.get_mut(key).is_some_and(Waiters::yields)
    }

    /// Subscribes to a key, for the first caller in the client's queue.
    pub(super) fn subscribe(self: &Arc<Self>, key: &LockKey) -> ReleaseSubscription {
        let wakes = Arc::default();
        let mut keys = locked(&self.keys);
        let waiters = keys.waiters.entry(key.clone()).or_insert_with(|| Waiters::new(timers_now()));
        waiters.subscribe(Message::fresh());
        keys.wakes.insert(key.clone(), Arc::clone(&wakes));
        // The keys stay locked, so that a cleanup cannot remove this key from an older state.
        self.wanted.send_if_modified(|wanted| {
            let is_new = !wanted.contains(key);
            if is_new {
                Arc::make_mut(wanted).insert(key.clone());
            }
            is_new
        });
        drop(keys);
        ReleaseSubscription { hints: Arc::clone(self), key: key.clone(), wakes }
    }

    /// Announces an enqueued release if other clients want the key, or if the last check of that is old.
    pub(super) fn released(self: &Arc<Self>, key: &LockKey, held_for: Duration) {
        let Some(message) = self.release(key, held_for, timers_now()) else { return };
        let listeners = self.announce(key, message);
        let (hints, key) = (Arc::clone(self), key.clone());
        self.runtime.spawn(async move {
            if let Some(listeners) = listeners.await {
                hints.set_listeners(&key, listeners);
            }
        });
    }

    /// Publishes a message, which is enqueued before this returns.
    ///
    /// The future returns the number of listening connections.
    fn announce(&self, key: &LockKey, message: Message) -> impl Future<Output = Option<u64>> + Send + use<> {
        self.redlock.announce(&self.members.electorate(), key, message.number())
    }

    fn release(&self, key: &LockKey, held_for: Duration, now: Instant) -> Option<Message> {
        let mut keys = locked(&self.keys);
        if keys.waiters.len() >= MAX_UNUSED_KEYS && !keys.waiters.contains_key(key) {
            keys.waiters.retain(|_, waiters| waiters.has_subscriber);
        }
        // The first release of a new key needs no announcement, because many keys are used once.
        let waiters = keys.waiters.entry(key.clone()).or_insert_with(|| Waiters::new(now));
        let message = waiters.release(held_for, Message::fresh(), now);
        if let Some(wakes) = keys.wakes.get(key) {
            wakes.notify_one();
        }
        message
    }

    /// Records the number of connections that got an announcement, with this client's own.
    fn set_listeners(&self, key: &LockKey, listeners: u64) {
        let own = u64::from(self.wanted.borrow().contains(key));
        if let Some(waiters) = locked(&self.keys).waiters.get_mut(key) {
            waiters.set_listeners(listeners.saturating_sub(own));
        }
    }

    /// Removes unused subscriptions, while the client lives.
    pub(super) async fn run_cleanup(self: Arc<Self>) {
        let mut wanted = self.wanted();
        while wanted.wait_for(|keys| !keys.is_empty()).await.is_ok() {
            sleep(LINGER).await;
            self.remove_unused(timers_now());
        }
    }

    fn remove_unused(&self, now: Instant) {
        let mut keys = locked(&self.keys);
        let has_room = keys.waiters.len() <= MAX_UNUSED_KEYS;
        let mut used = BTreeSet::new();
        keys.waiters.retain(|key, waiters| {
            let is_used = waiters.is_used(now);
            if is_used {
                used.insert(key.clone());
            }
            is_used || has_room
        });
        self.wanted.send_if_modified(|wanted| {
            let has_unused = wanted.iter().any(|key| !used.contains(key));
            if has_unused {
                Arc::make_mut(wanted).retain(|key| used.contains(key));
            }
            has_unused
        });
        drop(keys);
    }
}

/// The subscription of a caller to one key.
///
/// Dropping it announces to other clients that the caller has left.
pub(super) struct ReleaseSubscription {
    hints: Arc<Hints>,
    key: LockKey,
    wakes: Arc<Notify>,
}

impl ReleaseSubscription {
    /// Resolves when the key was released since the last call.
    ///
    /// # Cancel safety
    /// A hint that arrives between calls is kept for the next call.
    pub(super) async fn next_hint(&self) -> Hint {
        loop {
            self.wakes.notified().await;
            if let Some(hint) = locked(&self.hints.keys).waiters.get_mut(&self.key).and_then(Waiters::take_hint) {
                return hint;
            }
        }
    }

    /// Announces that this caller waits.
    ///
    /// Without a repetition other clients assume that the caller has left.
    pub(super) fn announce_wait(&self) {
        self.announce(|waiters| waiters.announce_wait(Message::fresh(), timers_now()));
    }

    /// Records that no other client acquired the key first.
    pub(super) fn on_unused_yield(&self) {
        if let Some(waiters) = locked(&self.hints.keys).waiters.get_mut(&self.key) {
            waiters.on_unused_yield();
        }
    }

    fn announce(&self, message: impl FnOnce(&mut Waiters) -> Option<Message>) {
        let message = locked(&self.hints.keys).waiters.get_mut(&self.key).and_then(message);
        if let Some(message) = message {
            drop(self.hints.announce(&self.key, message));
        }
    }
}

impl Drop for ReleaseSubscription {
    fn drop(&mut self) {
        locked(&self.hints.keys).wakes.remove(&self.key);
        self.announce(|waiters| waiters.unsubscribe(timers_now()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Observer;
    use super::*;
    use crate::redlock::Settings;
    use crate::time::TokioClock;

    const MOMENT: Duration = Duration::from_millis(1);

    /// Hints of a client without members, where the first confirmation is a majority.
    fn hints() -> Arc<Hints> {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let members = MemberSet::new(Vec::new(), Arc::clone(&clock), Duration::ZERO, false, Observer::default());
        Arc::new(Hints::new(Redlock::new(clock, Settings::default()), Arc::new(members), Handle::current()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscriber_wakes_at_a_release_of_its_key() {
        let hints = hints();
        let subscription = hints.subscribe(&"k".into());
        let mut hint = std::pin::pin!(subscription.next_hint());
        for (key, number) in [("other", 7), ("k", -8)] {
            hints.on_message(&key.into(), number);
            assert!(tokio::time::timeout(MOMENT, hint.as_mut()).await.is_err(), "{key} {number}");
        }
        hints.on_message(&"k".into(), 7);
        assert_eq!(hint.await, Hint::Retry);
    }

    #[tokio::test(start_paused = true)]
    async fn an_own_release_wakes_the_subscriber_and_reaches_others() {
        let (hints, key) = (hints(), LockKey::from("k"));
        let subscription = hints.subscribe(&key);
        // Its own subscription is one of the listeners.
        for (listeners, is_announced) in [(1, false), (2, true), (1, false), (0, false)] {
            hints.set_listeners(&key, listeners);
            assert_eq!(hints.release(&key, MOMENT, timers_now()).is_some(), is_announced, "{listeners}");
            let hint = tokio::time::timeout(MOMENT, subscription.next_hint()).await;
            assert_eq!(hint.ok(), Some(Hint::Retry), "{listeners}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_without_a_waiter_loses_its_subscription() {
        let (hints, key) = (hints(), LockKey::from("k"));
        let cleanup = tokio::spawn(Arc::clone(&hints).run_cleanup());
        let mut wanted = hints.wanted();
        let subscription = hints.subscribe(&key);
        sleep(10 * LINGER).await;
        assert!(wanted.borrow_and_update().contains(&key));
        drop(subscription);
        let begun = timers_now();
        wanted.wait_for(|keys| keys.is_empty()).await.unwrap();
        assert!((LINGER..=3 * LINGER).contains(&begun.elapsed()));
        assert!(hints.release(&key, MOMENT, timers_now()).is_some(), "no announcement for a long time");
        assert!(hints.release(&key, MOMENT, timers_now()).is_none(), "no client waits for it");
        cleanup.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn keys_without_a_waiter_are_bounded() {
        let hints = hints();
        for number in 0..3 * MAX_UNUSED_KEYS {
            drop(hints.subscribe(&format!("k{number}").into()));
        }
        hints.remove_unused(timers_now() + 2 * LINGER);
        assert!(locked(&hints.keys).waiters.len() <= MAX_UNUSED_KEYS);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_used_once_are_not_kept() {
        let hints = hints();
        let subscription = hints.subscribe(&"waited for".into());
        for number in 0..3 * MAX_UNUSED_KEYS {
            let key = format!("k{number}").into();
            assert_eq!(hints.release(&key, MOMENT, timers_now()), None);
            hints.set_listeners(&key, 1);
        }
        let keys = locked(&hints.keys);
        assert!(keys.waiters.len() <= MAX_UNUSED_KEYS + 1 && keys.waiters.contains_key(&subscription.key));
        drop(keys);
    }
}
