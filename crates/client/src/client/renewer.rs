//! Renews the holds of guards: one task for all holds of a client.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::error::{LossCause, Lost};
use super::event::{Event, Observer};
use super::local_queue::Turn;
use super::locked;
use super::member_set::MemberSet;
use crate::redlock::{Extend, ExtendRequest, FencingToken, Grant, LockKey, LockValue, Redlock};
use crate::time::{Boottime, Clock};

/// A hold is renewed after this part of its time to live.
const RENEW_AFTER: u32 = 3;
/// A renewal that failed is tried again after this part of the time to live.
const RETRY_AFTER: u32 = 12;
/// Maximum duration of one sleep.
///
/// Tokio's clock stands still while the machine is suspended. A renewal or the report of a loss must follow soon after.
const MAX_SLEEP: Duration = Duration::from_millis(250);

/// One hold.
///
/// Its guard and the renewer share it.
pub(super) struct Hold {
    pub(super) number: u64,
    pub(super) key: LockKey,
    pub(super) value: LockValue,
    pub(super) token: FencingToken,
    pub(super) ttl: Duration,
    pub(super) since: Boottime,
    /// Nanoseconds of boot time.
    valid_until: AtomicU64,
    lost: OnceLock<Lost>,
    lost_notify: Notify,
    /// The turn at this key in the client's queue.
    turn: Mutex<Option<Turn>>,
}

impl Hold {
    pub(super) fn valid_until(&self) -> Boottime {
        Boottime::new(Duration::from_nanos(self.valid_until.load(Ordering::Acquire)))
    }

    fn set_valid_until(&self, at: Boottime) {
        let nanos = u64::try_from(at.since_boot().as_nanos()).unwrap_or(u64::MAX);
        self.valid_until.fetch_max(nanos, Ordering::AcqRel);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.ended().is_some()
    }

    /// The cause, if the hold has ended.
    pub(super) fn ended(&self) -> Option<Lost> {
        self.lost.get().copied()
    }

    /// Keeps the turn until the hold ends.
    pub(super) fn keep_turn(&self, turn: Turn) {
        let mut kept = locked(&self.turn);
        // The end of the hold sets `lost` first and takes the turn then, so an ended hold keeps none.
        if !self.is_lost() {
            *kept = Some(turn);
        }
    }

    /// Ends the hold: wakes waiting tasks, and gives the turn to the next caller.
    ///
    /// Returns whether this is its first end, which alone is reported.
    pub(super) fn lose(&self, cause: LossCause) -> bool {
        let is_first = self.lost.set(Lost { cause }).is_ok();
        if is_first {
            self.lost_notify.notify_waiters();
        }
        drop(locked(&self.turn).take());
        is_first
    }

    /// Resolves when the hold is lost, or `margin` before the end of its validity.
    pub(super) async fn lost(&self, clock: &dyn Clock, margin: Duration) -> Lost {
        loop {
            let notified = self.lost_notify.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            let left = self.valid_until().since(clock.boottime() + margin);
            if let Some(lost) = self.lost.get() {
                return *lost;
            }
            if left.is_zero() {
                return Lost { cause: LossCause::Unreachable };
            }
            tokio::select! {
                biased;
                () = notified => {}
                () = sleep(left.min(MAX_SLEEP)) => {}
            }
        }
    }
}

#[derive(Default)]
struct Table {
    next: u64,
    /// Holds by number, with the time of the next renewal.
    holds: HashMap<u64, (Arc<Hold>, Boottime)>,
    due: BTreeSet<(Boottime, u64)>,
    /// The next wake of the renewer.
    wakes_at: Option<Boottime>,
}

pub(super) struct Renewer {
    table: Mutex<Table>,
    earlier: Notify,
    clock: Arc<dyn Clock>,
    observer: Observer,
}

impl Renewer {
    pub(super) fn new(clock: Arc<dyn Clock>, observer: Observer) -> Self {
        Self { table: Mutex::default(), earlier: Notify::new(), clock, observer }
    }

    /// Registers a hold for renewal.
    pub(super) fn keep(&self, (key, value, ttl): (LockKey, LockValue, Duration), grant: &Grant) -> Arc<Hold> {
        let mut table = locked(&self.table);
        table.next += 1;
        let number = table.next;
        let hold = Arc::new(Hold {
            number,
            key,
            value,
            token: grant.token,
            ttl,
            since: grant.started,
            valid_until: AtomicU64::new(0),
            lost: OnceLock::new(),
            lost_notify: Notify::new(),
            turn: Mutex::new(None),
        });
        hold.set_valid_until(grant.valid_until);
        let due = grant.started + ttl / RENEW_AFTER;
        table.holds.insert(number, (Arc::clone(&hold), due));
        table.due.insert((due, number));
        let is_earlier = table.wakes_at.is_none_or(|at| due < at);
        drop(table);
        if is_earlier {
            self.earlier.notify_one();
        }
        hold
    }

    /// Removes a hold.
    pub(super) fn forget(&self, hold: &Hold) {
        let mut table = locked(&self.table);
        if let Some((_, due)) = table.holds.remove(&hold.number) {
            table.due.remove(&(due, hold.number));
        }
    }

    fn lose(&self, hold: &Hold, cause: LossCause) {
        self.forget(hold);
        if hold.lose(cause) {
            self.observer.notify(|| Event::Lost { key: &hold.key, cause });
        }
    }

    /// Removes all holds and returns them.
    pub(super) fn take_all(&self) -> Vec<Arc<Hold>> {
        let mut table = locked(&self.table);
        table.due.clear();
        let holds = std::mem::take(&mut table.holds);
        holds.into_values().map(|(hold, _)| hold).collect()
    }

    /// Holds to renew now.
    fn due(&self, now: Boottime) -> Vec<Arc<Hold>> {
        let mut table = locked(&self.table);
        let mut due = Vec::new();
        while let Some((at, number)) = table.due.first().copied()
            && at <= now
        {
            table.due.remove(&(at, number));
            due.extend(table.holds.get(&number).map(|(hold, _)| Arc::clone(hold)));
        }
        due
    }

    /// The time of the next renewal.
    fn next(&self) -> Option<Boottime> {
        let mut table = locked(&self.table);
        table.wakes_at = table.due.first().map(|(at, _)| *at);
        table.wakes_at
    }

    fn schedule(&self, hold: &Hold, at: Boottime) {
        let mut table = locked(&self.table);
        if let Some((_, due)) = table.holds.get_mut(&hold.number) {
            *due = at;
            table.due.insert((at, hold.number));
        }
    }

    /// Renews holds when they are due, while the client lives.
    pub(super) async fn run(self: Arc<Self>, redlock: Redlock<dyn Clock>, members: Arc<MemberSet>) {
        loop {
            let now = self.clock.boottime();
            let due = self.due(now);
            if !due.is_empty() {
                self.renew(&redlock, &members, due).await;
                continue;
            }
            let pause = self.next().map_or(Duration::from_secs(3600), |at| at.since(now).min(MAX_SLEEP));
            tokio::select! {
                biased;
                () = self.earlier.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    async fn renew(&self, redlock: &Redlock<dyn Clock>, members: &MemberSet, due: Vec<Arc<Hold>>) {
        let now = self.clock.boottime();
        let (due, ended): (Vec<_>, Vec<_>) = due.into_iter().partition(|hold| hold.valid_until() > now);
        for hold in ended {
            self.lose(&hold, LossCause::Unreachable);
        }
        if due.is_empty() {
            return;
        }
        let request = |hold: &Arc<Hold>| ExtendRequest {
            key: hold.key.clone(),
            value: hold.value.clone(),
            ttl: hold.ttl,
            valid_until: Some(hold.valid_until()),
        };
        let outcomes = redlock.extend(&members.electorate(), due.iter().map(request).collect()).await;
        for (hold, outcome) in due.iter().zip(outcomes) {
            match outcome {
                Extend::Renewed { started, valid_until, .. } => {
                    hold.set_valid_until(valid_until);
                    self.observer.notify(|| Event::Renewed { key: &hold.key });
                    self.schedule(hold, started + hold.ttl / RENEW_AFTER);
                }
                Extend::NoQuorum { .. } => {
                    let retry = self.clock.boottime() + hold.ttl / RETRY_AFTER;
                    self.schedule(hold, retry.min(hold.valid_until()));
                }
                Extend::Refused { .. } => {
                    tracing::warn!(token = %hold.token, "a lock was lost: a majority does not have it");
                    self.lose(hold, LossCause::Taken);
                }
                Extend::TooLate => {
                    tracing::warn!(token = %hold.token, "a lock was lost: it was not renewed in time");
                    self.lose(hold, LossCause::Unreachable);
                }
            }
        }
    }
}
