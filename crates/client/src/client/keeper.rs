//! Holds that are renewed by themselves: one task for all of a client.

use super::error::{LossCause, Lost};
use super::event::{Event, Observer};
use super::lines::Turn;
use super::members::Members;
use crate::redlock::{Extend, ExtendRequest, FencingToken, Grant, LockKey, LockValue, Redlock};
use crate::time::{Boottime, Clock};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// A hold is renewed when so much of its time to live has passed.
const RENEW_AFTER: u32 = 3;
/// A renewal that failed is tried again after this part of the time to live.
const RETRY_AFTER: u32 = 12;
/// The longest sleep in one piece: tokio's clock stands still while the machine is suspended, and a loss must be told soon after.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// One hold, as its guard and the keeper know it.
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
    told: Notify,
    /// The turn at this key among those who share the client.
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
        self.lost.get().is_some()
    }

    /// The hold has ended: those who wait for that are told, and the next in line may try.
    pub(super) fn lose(&self, cause: LossCause) {
        if self.lost.set(Lost { cause }).is_ok() {
            self.told.notify_waiters();
        }
        drop(locked(&self.turn).take());
    }

    /// Resolves once the hold is lost, or `margin` before its validity ends, whichever comes first.
    pub(super) async fn lost(&self, clock: &dyn Clock, margin: Duration) -> Lost {
        loop {
            let told = self.told.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            let left = self.valid_until().since(clock.boottime() + margin);
            if let Some(lost) = self.lost.get() {
                return *lost;
            }
            if left.is_zero() {
                return Lost { cause: LossCause::Unreachable };
            }
            tokio::select! {
                biased;
                () = told => {}
                () = sleep(left.min(LONGEST_SLEEP)) => {}
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Table {
    next: u64,
    /// Each with the time at which it is looked at next.
    holds: HashMap<u64, (Arc<Hold>, Boottime)>,
    due: BTreeSet<(Boottime, u64)>,
    /// When the keeper looks again.
    wakes_at: Option<Boottime>,
}

pub(super) struct Keeper {
    table: Mutex<Table>,
    earlier: Notify,
    clock: Arc<dyn Clock>,
    observer: Observer,
}

impl Keeper {
    pub(super) fn new(clock: Arc<dyn Clock>, observer: Observer) -> Self {
        Self { table: Mutex::default(), earlier: Notify::new(), clock, observer }
    }

    /// Takes up a hold.
    pub(super) fn keep(
        &self,
        (key, value, ttl): (LockKey, LockValue, Duration),
        grant: &Grant,
        turn: Option<Turn>,
    ) -> Arc<Hold> {
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
            told: Notify::new(),
            turn: Mutex::new(turn),
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

    /// The hold ends here.
    pub(super) fn drop_hold(&self, hold: &Hold) {
        let mut table = locked(&self.table);
        if let Some((_, due)) = table.holds.remove(&hold.number) {
            table.due.remove(&(due, hold.number));
        }
    }

    fn lose(&self, hold: &Hold, cause: LossCause) {
        hold.lose(cause);
        self.drop_hold(hold);
        self.observer.notify(|| Event::Lost { key: &hold.key, cause });
    }

    /// Takes all holds.
    pub(super) fn take_all(&self) -> Vec<Arc<Hold>> {
        let mut table = locked(&self.table);
        table.due.clear();
        let holds = std::mem::take(&mut table.holds);
        holds.into_values().map(|(hold, _)| hold).collect()
    }

    /// Those that are due now.
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

    /// When the next is due.
    fn next(&self) -> Option<Boottime> {
        let mut table = locked(&self.table);
        table.wakes_at = table.due.first().map(|(at, _)| *at);
        table.wakes_at
    }

    fn again(&self, hold: &Hold, at: Boottime) {
        let mut table = locked(&self.table);
        if let Some((_, due)) = table.holds.get_mut(&hold.number) {
            *due = at;
            table.due.insert((at, hold.number));
        }
    }

    /// Renews what is due, as long as the client lives.
    pub(super) async fn run(self: Arc<Self>, redlock: Redlock<dyn Clock>, members: Arc<Members>) {
        loop {
            let now = self.clock.boottime();
            let due = self.due(now);
            if !due.is_empty() {
                self.renew(&redlock, &members, due).await;
                continue;
            }
            let pause = self.next().map_or(Duration::from_secs(3600), |at| at.since(now));
            tokio::select! {
                biased;
                () = self.earlier.notified() => {}
                () = sleep(pause.min(Duration::from_secs(3600))) => {}
            }
        }
    }

    async fn renew(&self, redlock: &Redlock<dyn Clock>, members: &Members, due: Vec<Arc<Hold>>) {
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
                    self.again(hold, started + hold.ttl / RENEW_AFTER);
                }
                Extend::NoQuorum { .. } => {
                    let retry = self.clock.boottime() + hold.ttl / RETRY_AFTER;
                    self.again(hold, retry.min(hold.valid_until()));
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
