//! One period of leadership, for all tasks that run during it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce, watch};
use tokio_util::sync::CancellationToken;

use crate::time::{Boottime, Clock};

/// How long a hold waits for a hand-over. The leader releases the Lease much earlier, if it can.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);

/// One period of leadership.
#[derive(Clone, Debug)]
pub struct Term {
    /// A number that rises with every term, even if the Lease was deleted in between.
    ///
    /// A Redis member refuses to open or close users for an epoch below the highest that it received.
    pub epoch: i64,
    /// Cancelled when the term ends.
    pub over: CancellationToken,
    /// The end of the leadership.
    until: Arc<Mutex<Boottime>>,
    outdated: Arc<SetOnce<i64>>,
    wishes: Arc<Wishes>,
    /// The default quorum to record in the Lease for the next leader. `None` leaves the Lease as it is.
    wanted_default: watch::Sender<Option<String>>,
    /// The default quorum that the Lease records.
    written_default: watch::Sender<Option<String>>,
}

/// Wishes that another replica leads, because this replica does not reach a quorum.
#[derive(Debug, Default)]
struct Wishes {
    /// The time of each wish, by quorum.
    by_quorum: Mutex<BTreeMap<String, Boottime>>,
    made: Notify,
    /// The leader cannot hand over yet, because the last hand-over was too recent.
    refused: AtomicBool,
}

impl Term {
    /// A term with this epoch. It has no end until one is set.
    pub fn new(epoch: i64) -> Self {
        Self {
            epoch,
            over: CancellationToken::new(),
            until: Arc::new(Mutex::new(Boottime::new(Duration::from_nanos(u64::MAX)))),
            outdated: Arc::default(),
            wishes: Arc::default(),
            wanted_default: watch::Sender::default(),
            written_default: watch::Sender::default(),
        }
    }

    /// The default quorum that the Lease records. It is empty if there was no default, and `None` without a record.
    pub fn recorded_default(&self) -> Option<String> {
        self.written_default.borrow().clone()
    }

    /// Records the default quorum in the Lease. Resolves when the Lease has the record.
    pub async fn record_default(&self, default: String) {
        self.wanted_default.send_replace(Some(default.clone()));
        // The sender lives as long as this term.
        let mut written = self.written_default.subscribe();
        let _ = written.wait_for(|written| written.as_ref() == Some(&default)).await;
    }

    /// The record to write with the next renewal.
    pub(super) fn wanted_default(&self) -> Option<String> {
        self.wanted_default.borrow().clone()
    }

    /// Records the default quorum that the Lease has.
    pub(super) fn default_is(&self, written: Option<String>) {
        self.written_default.send_replace(written);
    }

    /// The end of the leadership.
    pub(super) fn until(&self) -> Boottime {
        *self.until.lock()
    }

    pub(super) fn last_until(&self, until: Boottime) {
        *self.until.lock() = until;
    }

    /// Runs a future while the term lasts, and returns `None` if the term ended first.
    ///
    /// It checks the clock before every step. So a process that was stopped or suspended does nothing for an ended term.
    pub async fn bound<T>(&self, clock: &(impl Clock + ?Sized), future: impl Future<Output = T>) -> Option<T> {
        let (mut over, mut future) = (pin!(self.over.cancelled()), pin!(future));
        poll_fn(|context| {
            if clock.boottime() >= self.until() {
                self.over.cancel();
            }
            if over.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Records that a member obeys this epoch.
    ///
    /// Returns whether it is the first recorded epoch above the term's. A member with a higher epoch refuses commands of this term.
    pub fn outdated(&self, by: i64) -> bool {
        by > self.epoch && self.outdated.set(by).is_ok()
    }

    /// Waits for a member that obeys a higher epoch, and returns that epoch.
    pub async fn outdated_by(&self) -> i64 {
        *self.outdated.wait().await
    }

    /// Requests that another replica leads, which perhaps reaches `quorum` (`<namespace>/<name>`).
    ///
    /// Returns whether the wish is new.
    pub fn request_hand_over(&self, quorum: &str, now: Boottime) -> bool {
        let mut table = self.wishes.by_quorum.lock();
        if table.contains_key(quorum) {
            return false;
        }
        table.insert(quorum.to_owned(), now);
        self.wishes.made.notify_one();
        true
    }

    /// Whether this replica can still release the Lease because of `quorum`.
    pub fn can_hand_over(&self, quorum: &str, now: Boottime) -> bool {
        let since = self.wishes.by_quorum.lock().get(quorum).copied();
        !self.wishes.refused.load(Ordering::Acquire) && since.is_none_or(|since| now.since(since) < HAND_OVER_TIMEOUT)
    }

    /// Resolves when there is a new wish.
    pub(super) async fn wished(&self) {
        self.wishes.made.notified().await;
    }

    /// The quorums with a wish, and the time of each wish.
    pub(super) fn wishes(&self) -> Vec<(String, Boottime)> {
        self.wishes.by_quorum.lock().iter().map(|(quorum, since)| (quorum.clone(), *since)).collect()
    }

    /// Sets whether the Lease cannot be released yet.
    pub(super) fn refuse(&self, refuses: bool) {
        self.wishes.refused.store(refuses, Ordering::Release);
    }

    /// Removes the wish for a quorum that is reached again.
    pub fn reaches(&self, quorum: &str) {
        self.wishes.by_quorum.lock().remove(quorum);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::tests::boottime as at;
    use crate::time::TokioClock;

    #[test]
    fn a_term_ends_at_a_higher_epoch_and_names_it() {
        let term = Term::new(7);
        assert!(!term.outdated(7) && !term.outdated(3), "these epochs are not higher");
        assert!(term.outdated(9) && !term.outdated(12), "the first one ends the term");
        assert_eq!(term.outdated_by().now_or_never(), Some(9));
        assert_eq!(Term::new(7).outdated_by().now_or_never(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_work_runs_after_the_end_of_its_term() {
        let clock = TokioClock::new();
        let term = Term::new(1);
        term.last_until(clock.boottime() + Duration::from_secs(3));
        let (mut steps, wake) = (0, Notify::new());
        let work = async {
            loop {
                wake.notified().await;
                steps += 1;
            }
        };
        {
            let mut work = pin!(term.bound(&clock, work));
            wake.notify_one();
            assert_eq!((&mut work).now_or_never(), None);
            // Simulate SIGSTOP or a suspend. Much time passes, then the awaited event happens. Only the clock ends the term.
            advance(Duration::from_secs(60)).await;
            wake.notify_one();
            assert_eq!(work.now_or_never(), Some(None::<()>));
        }
        assert_eq!(steps, 1);
        assert!(term.over.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ends_in_time_gives_its_result() {
        let (clock, term) = (TokioClock::new(), Term::new(1));
        let work = async {
            sleep(Duration::from_secs(1)).await;
            5
        };
        assert_eq!(term.bound(&clock, work).await, Some(5));
    }

    #[test]
    fn a_hand_over_request_is_open_until_a_refusal_or_its_timeout() {
        let term = Term::new(1);
        assert!(term.can_hand_over("ns/q", at(10)));
        assert!(term.request_hand_over("ns/q", at(10)) && !term.request_hand_over("ns/q", at(11)));
        assert!(term.can_hand_over("ns/q", at(11)) && !term.can_hand_over("ns/q", at(12)));
        term.reaches("ns/q");
        assert!(term.request_hand_over("ns/q", at(20)) && term.can_hand_over("ns/q", at(20)));
        term.refuse(true);
        assert!(!term.can_hand_over("ns/q", at(20)));
    }
}
