//! Hints between clients, so that those who wait in different processes need not find out by asking when a key is free.
//!
//! A client that waits for a key listens on its channel at each member, and says there that it waits. A release is announced there, with
//! the one who has waited longest. What is heard begins or ends a pause; then comes an attempt like any other. A hint that is lost, late or
//! forged costs time and never safety, and nobody is refused for want of one.
//!
//! A client that has just released a key for which others wait lets them go first. Its own callers, whose request follows the release on
//! the same connections, would win each time.

mod waiters;

use self::waiters::{LINGER, Message, Waiters};
use super::members::Members;
use crate::redlock::{LockKey, Redlock};
use crate::time::{Clock, timers_now};
use crate::voting::{Heard, Wanted};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

pub(super) use self::waiters::{ANNOUNCE_AGAIN, Cue};

/// More keys than this that nobody waits for are not kept.
const KEPT: usize = 1024;

#[derive(Default)]
struct Keys {
    waiters: HashMap<LockKey, Waiters>,
    /// Who waits for word of a key.
    woken: HashMap<LockKey, Arc<Notify>>,
    /// Which members pass on what is told of a key.
    listening: BTreeMap<LockKey, BTreeSet<usize>>,
}

pub(super) struct Hints {
    keys: Mutex<Keys>,
    wanted: watch::Sender<Wanted>,
    redlock: Redlock<dyn Clock>,
    members: Arc<Members>,
    /// Guards may be dropped outside of the runtime.
    runtime: Handle,
}

impl Hints {
    pub(super) fn new(redlock: Redlock<dyn Clock>, members: Arc<Members>, runtime: Handle) -> Self {
        Self { keys: Mutex::default(), wanted: watch::Sender::default(), redlock, members, runtime }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that are to be listened for.
    pub(super) fn wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// A member passes on what a client tells, or begins or ends to do so.
    pub(super) fn take(&self, member: usize, heard: Heard<'_>) {
        match heard {
            Heard::Number(key, number) => self.hear(key, number),
            Heard::Begins(key) => {
                self.keys().listening.entry(key.clone()).or_default().insert(member);
            }
            Heard::Ends(key) => self.unlisten(|known| known == key, member),
            Heard::EndsAll => self.unlisten(|_| true, member),
        }
    }

    fn unlisten(&self, is_meant: impl Fn(&LockKey) -> bool, member: usize) {
        self.keys().listening.retain(|key, members| {
            if is_meant(key) {
                members.remove(&member);
            }
            !members.is_empty()
        });
    }

    /// Whether a majority of the members passes on what is told of the key, so that a release is heard of.
    pub(super) fn is_heard(&self, key: &LockKey) -> bool {
        self.keys().listening.get(key).is_some_and(|members| members.len() >= self.members.quorum())
    }

    fn hear(&self, key: &LockKey, number: i64) {
        let mut keys = self.keys();
        let message = Message::of(number);
        let is_news =
            keys.waiters.get_mut(key).is_some_and(|known| known.hear(message, self.members.quorum(), timers_now()));
        if is_news && let Some(woken) = keys.woken.get(key) {
            woken.notify_one();
        }
    }

    /// Whether others wait for a key that this client was the last to hold.
    pub(super) fn yields(&self, key: &LockKey) -> bool {
        self.keys().waiters.get_mut(key).is_some_and(Waiters::yields)
    }

    /// Begins to listen, for the caller whose turn it is among those of this client.
    pub(super) fn listen(self: &Arc<Self>, key: &LockKey) -> Ear {
        let woken = Arc::default();
        let mut keys = self.keys();
        let known = keys.waiters.entry(key.clone()).or_insert_with(|| Waiters::new(timers_now()));
        known.listen(Message::fresh());
        keys.woken.insert(key.clone(), Arc::clone(&woken));
        drop(keys);
        self.wanted.send_if_modified(|wanted| {
            let is_new = !wanted.contains(key);
            if is_new {
                Arc::make_mut(wanted).insert(key.clone());
            }
            is_new
        });
        Ear { hints: Arc::clone(self), key: key.clone(), woken }
    }

    /// Announces a release that was enqueued, if others were seen to want the key, or if that was not looked at for a while.
    pub(super) fn released(self: &Arc<Self>, key: &LockKey, held_for: Duration) {
        let Some(message) = self.release(key, held_for, timers_now()) else { return };
        let listeners = self.announce(key, message);
        let (hints, key) = (Arc::clone(self), key.clone());
        self.runtime.spawn(async move {
            if let Some(listeners) = listeners.await {
                hints.count(&key, listeners);
            }
        });
    }

    /// Enqueued before it returns. The future gives how many connections listen.
    fn announce(&self, key: &LockKey, message: Message) -> impl Future<Output = Option<u64>> + Send + use<> {
        self.redlock.announce(&self.members.electorate(), key, message.number())
    }

    fn release(&self, key: &LockKey, held_for: Duration, now: Instant) -> Option<Message> {
        let mut keys = self.keys();
        if keys.waiters.len() >= KEPT && !keys.waiters.contains_key(key) {
            keys.waiters.retain(|_, known| known.is_needed());
        }
        // The first release of a key that is new here counts as announced: many keys are used once.
        let known = keys.waiters.entry(key.clone()).or_insert_with(|| Waiters::new(now));
        known.release(held_for, Message::fresh(), now)
    }

    /// So many connections listened for the key when its release was announced, this client's own among them.
    fn count(&self, key: &LockKey, listeners: u64) {
        let own = u64::from(self.wanted.borrow().contains(key));
        if let Some(known) = self.keys().waiters.get_mut(key) {
            known.count(listeners.saturating_sub(own));
        }
    }

    /// Ends what is listened for in vain, as long as the client lives.
    pub(super) async fn tidy(self: Arc<Self>) {
        let mut wanted = self.wanted();
        while wanted.wait_for(|keys| !keys.is_empty()).await.is_ok() {
            sleep(LINGER).await;
            self.forget(timers_now());
        }
    }

    fn forget(&self, now: Instant) {
        let mut keys = self.keys();
        let has_room = keys.waiters.len() <= KEPT;
        let mut used = BTreeSet::new();
        keys.waiters.retain(|key, known| {
            let is_used = known.is_used(now);
            if is_used {
                used.insert(key.clone());
            }
            is_used || has_room
        });
        drop(keys);
        self.wanted.send_if_modified(|wanted| {
            let has_unused = wanted.iter().any(|key| !used.contains(key));
            if has_unused {
                Arc::make_mut(wanted).retain(|key| used.contains(key));
            }
            has_unused
        });
    }
}

/// A caller that listens for one key, until it is dropped.
pub(super) struct Ear {
    hints: Arc<Hints>,
    key: LockKey,
    woken: Arc<Notify>,
}

impl Ear {
    /// Resolves when the key was released since this was called last.
    ///
    /// # Cancel safety
    /// What is heard meanwhile is kept for the next call.
    pub(super) async fn cue(&self) -> Cue {
        loop {
            self.woken.notified().await;
            if let Some(word) = self.hints.keys().waiters.get_mut(&self.key).and_then(Waiters::take_cue) {
                return word;
            }
        }
    }

    /// Tells the others that this caller waits. Does so again from time to time, or it is taken for gone.
    pub(super) fn announce_wait(&self) {
        self.announce(|known| known.waits(Message::fresh(), timers_now()));
    }

    /// The others were let go first, and none of them was heard.
    pub(super) fn yielded_in_vain(&self) {
        if let Some(known) = self.hints.keys().waiters.get_mut(&self.key) {
            known.yielded_in_vain();
        }
    }

    fn announce(&self, message: impl FnOnce(&mut Waiters) -> Option<Message>) {
        let message = self.hints.keys().waiters.get_mut(&self.key).and_then(message);
        if let Some(message) = message {
            drop(self.hints.announce(&self.key, message));
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.hints.keys().woken.remove(&self.key);
        self.announce(|known| known.unlisten(timers_now()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::admission::Admission;
    use super::*;
    use crate::redlock::Settings;
    use crate::time::TokioClock;

    const MOMENT: Duration = Duration::from_millis(1);

    /// Of a client without members: the first to tell of a release is a majority.
    fn hints() -> Arc<Hints> {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let members = Members::new(Vec::new(), Arc::clone(&clock), Admission::AtOnce, false);
        Arc::new(Hints::new(Redlock::new(clock, Settings::default()), Arc::new(members), Handle::current()))
    }

    #[tokio::test(start_paused = true)]
    async fn who_listens_is_woken_by_a_release_of_its_key() {
        let hints = hints();
        let ear = hints.listen(&"k".into());
        let mut word = std::pin::pin!(ear.cue());
        for (key, number) in [("other", 7), ("k", -8)] {
            hints.hear(&key.into(), number);
            assert!(tokio::time::timeout(MOMENT, word.as_mut()).await.is_err(), "{key} {number}");
        }
        hints.hear(&"k".into(), 7);
        assert_eq!(word.await, Cue::Go);
    }

    #[tokio::test(start_paused = true)]
    async fn its_own_ear_makes_no_key_contended() {
        let (hints, key) = (hints(), LockKey::from("k"));
        let ear = hints.listen(&key);
        for (listeners, is_contended) in [(1, false), (2, true), (0, false)] {
            hints.count(&key, listeners);
            assert_eq!(hints.release(&key, MOMENT, timers_now()).is_some(), is_contended);
        }
        drop(ear);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_nobody_waits_for_is_not_listened_for() {
        let (hints, key) = (hints(), LockKey::from("k"));
        let tidy = tokio::spawn(Arc::clone(&hints).tidy());
        let mut wanted = hints.wanted();
        let ear = hints.listen(&key);
        sleep(10 * LINGER).await;
        assert!(wanted.borrow_and_update().contains(&key));
        drop(ear);
        let begun = timers_now();
        wanted.wait_for(|keys| keys.is_empty()).await.unwrap();
        assert!((LINGER..=3 * LINGER).contains(&begun.elapsed()));
        assert!(hints.release(&key, MOMENT, timers_now()).is_some(), "none was announced for long");
        assert!(hints.release(&key, MOMENT, timers_now()).is_none(), "and nobody is known to want it");
        tidy.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_were_waited_for_in_vain_are_not_kept() {
        let hints = hints();
        for number in 0..3 * KEPT {
            drop(hints.listen(&format!("k{number}").into()));
        }
        hints.forget(timers_now() + 2 * LINGER);
        assert!(hints.keys().waiters.len() <= KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_used_once_are_not_kept() {
        let hints = hints();
        let ear = hints.listen(&"waited for".into());
        for number in 0..3 * KEPT {
            assert_eq!(hints.release(&format!("k{number}").into(), MOMENT, timers_now()), None);
        }
        let keys = hints.keys();
        assert!(keys.waiters.len() <= KEPT + 1 && keys.waiters.contains_key(&ear.key));
        drop(keys);
    }
}
