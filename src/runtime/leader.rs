//! Which replica leads: a Kubernetes Lease, taken and renewed by compare-and-swap and judged by this replica's own clock.
//!
//! Two replicas never both write the same version of the Lease, because `replace` carries the resourceVersion. A replica takes a
//! Lease only if it was unchanged for its whole duration on the replica's own CLOCK_BOOTTIME. No wall clocks are compared.
//!
//! A leader stops before its Lease expires, by its own CLOCK_BOOTTIME. No attempt to renew and no pause lasts longer than its term. Work for
//! a term checks the clock before every step ([`Term::bound`]). If a frozen leader had begun a write, the API server refuses it by the
//! resourceVersion, and a Redis member refuses it by the epoch (docs/dev/rules.md).
//!
//! A leader that does not reach a quorum with locks or running members releases the Lease, see `hand_over` and docs/dev/algorithm.md.

mod attempt;
mod hand_over;
mod lease;
mod reach;
mod term;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::hand_over::Memory;
use self::lease::{LeaseObservation, plausible_epoch};
use self::reach::Reach;
use crate::api::RedisQuorum;
use crate::time::{Boottime, Clock, UnixMillis};

pub use self::reach::QuorumReachability;
pub use self::term::Term;

/// Another replica can take the Lease when its holder has not changed it for this long.
const LEASE_DURATION: Duration = Duration::from_secs(4);
/// How long a leader leads without a renewal.
///
/// It is one second shorter than the Lease. The second covers slow clocks and requests.
const RENEW_DEADLINE: Duration = Duration::from_secs(3);
/// Time between two renewals.
const RENEW_PERIOD: Duration = Duration::from_secs(1);
/// The pause of a leader after an attempt that failed.
///
/// With a pause of one period the term would end after one attempt without an answer.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
/// Time between two reads of a Lease that another replica holds.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// How long a replica does not take the Lease after a hand-over, so that another replica can take it.
///
/// It waits even if it reaches the quorum again.
const HAND_OVER_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time to read and write the Lease once.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum time between two terms that begin because a member obeys a higher epoch.
const RAISE_PERIOD: Duration = Duration::from_secs(10);

/// The parts of a replica that its candidacy uses.
pub trait ReplicaState: Send + Sync {
    /// Whether this replica reaches each quorum that the operator serves.
    fn reachability(&self) -> Vec<QuorumReachability>;
    /// The API server's time.
    fn api_now(&self) -> UnixMillis;
    /// Records whether this replica cannot lead because no epoch is left for a term.
    fn refuses_to_lead(&self, refuses: bool);
}

/// The name of a quorum in logs and in [`QuorumReachability`].
pub fn quorum_name(quorum: &ObjectRef<RedisQuorum>) -> String {
    format!("{}/{}", quorum.namespace.as_deref().unwrap_or_default(), quorum.name)
}

/// This replica's candidacy for the Lease.
pub struct Candidacy {
    leases: Api<Lease>,
    name: String,
    identity: String,
    clock: Arc<dyn Clock>,
    terms: watch::Sender<Option<Term>>,
    leading: Option<Term>,
    /// The Lease as this leader last wrote it, until a request fails.
    written: Option<Lease>,
    observation: LeaseObservation,
    reach: Reach,
    memory: Memory,
    /// The highest known epoch, of the Lease or of a member.
    highest: Option<i32>,
    /// There is no epoch for another term, and this was logged.
    epochs_exhausted: bool,
    /// The last logged leader.
    follows: Option<String>,
    /// When this replica last handled a member that obeys a higher epoch.
    raised: Option<Boottime>,
    /// This replica does not take the Lease before this time.
    paused_until: Boottime,
}

/// The reason for the end of a pause.
enum Woken {
    ByTime,
    Outdated(i64),
    Shutdown,
}

impl Candidacy {
    /// A candidacy for the Lease `name`.
    pub fn new(leases: Api<Lease>, name: &str, identity: &str, clock: Arc<dyn Clock>) -> Self {
        Self {
            leases,
            name: name.into(),
            identity: identity.into(),
            paused_until: clock.boottime(),
            clock,
            terms: watch::Sender::new(None),
            leading: None,
            written: None,
            observation: LeaseObservation::default(),
            reach: Reach::default(),
            memory: Memory::default(),
            highest: None,
            epochs_exhausted: false,
            follows: None,
            raised: None,
        }
    }

    /// The current term, if this replica leads.
    pub fn leadership(&self) -> watch::Receiver<Option<Term>> {
        self.terms.subscribe()
    }

    /// Takes and renews the Lease whenever it can, until `shutdown`. Then it releases the Lease.
    pub async fn run(mut self, shutdown: CancellationToken, replica: impl ReplicaState) {
        loop {
            self.end_if_overdue();
            let is_answered = self.attempt_in_time(&replica).await;
            self.end_if_overdue();
            let woken = self.pause(&shutdown, replica.api_now(), is_answered).await;
            // This comes first, because the process can have been stopped for a long time.
            self.end_if_overdue();
            match woken {
                Woken::ByTime => {}
                Woken::Outdated(epoch) => self.rise_above(epoch, replica.api_now()),
                Woken::Shutdown => break,
            }
        }
        if self.leading.is_some() {
            self.end_term("shutting down");
            self.release_lease(None).await;
        }
    }

    /// Makes one attempt, which does not last longer than the term. Returns false after an error.
    async fn attempt_in_time(&mut self, replica: &impl ReplicaState) -> bool {
        let limit = self.left().map_or(ATTEMPT_TIMEOUT, |left| left.min(ATTEMPT_TIMEOUT));
        match timeout(limit, self.attempt(replica)).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(quorum))) => {
                tracing::info!(quorum, "releasing the Lease, because another replica perhaps reaches the quorum");
                let now = self.clock.boottime();
                self.paused_until = now + HAND_OVER_PAUSE;
                self.end_term("it does not reach a quorum");
                self.release_lease(Some(self.memory.next(now, replica.api_now()))).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "lease request failed");
                return false;
            }
            Err(_elapsed) => {
                tracing::debug!("no answer from the API server about the lease");
                return false;
            }
        }
        true
    }

    async fn pause(&self, shutdown: &CancellationToken, api_now: UnixMillis, is_answered: bool) -> Woken {
        let Some(term) = &self.leading else {
            return tokio::select! {
                () = shutdown.cancelled() => Woken::Shutdown,
                () = sleep(until_next(RETRY_PERIOD, api_now)) => Woken::ByTime,
            };
        };
        let now = self.clock.boottime();
        let period = if is_answered { until_next(RENEW_PERIOD, api_now) } else { PAUSE_AFTER_ERROR };
        let may_rise = self.raised.is_none_or(|raised| now.since(raised) >= RAISE_PERIOD);
        tokio::select! {
            () = shutdown.cancelled() => Woken::Shutdown,
            epoch = term.outdated_by(), if may_rise => Woken::Outdated(epoch),
            () = term.wished() => Woken::ByTime,
            () = sleep(period.min(term.until().since(now))) => Woken::ByTime,
        }
    }

    /// Ends the term because a member obeys a higher epoch, and refuses commands of this leader.
    ///
    /// The next term begins above that epoch, as soon as this replica has confirmed that it holds the Lease.
    fn rise_above(&mut self, epoch: i64, api_now: UnixMillis) {
        self.raised = Some(self.clock.boottime());
        match plausible_epoch(epoch, self.highest, api_now) {
            Some(epoch) => {
                self.highest = self.highest.max(Some(epoch));
                self.end_term("a member obeys a higher epoch");
            }
            None => tracing::error!(epoch, "a member obeys an epoch that no leader had. Restart that member"),
        }
    }

    /// The remaining time of this replica's term.
    fn left(&self) -> Option<Duration> {
        self.leading.as_ref().map(|term| term.until().since(self.clock.boottime()))
    }

    fn end_if_overdue(&mut self) {
        if self.left().is_some_and(|left| left.is_zero()) {
            self.end_term("the lease could not be renewed in time");
        }
    }

    fn end_term(&mut self, why: &str) {
        if let Some(term) = self.leading.take() {
            term.over.cancel();
            self.terms.send_replace(None);
            tracing::info!(epoch = term.epoch, why, "this replica no longer leads");
        }
    }
}

/// The time until the API server's clock shows the next multiple of `period`.
///
/// A `Date` header has whole seconds. An answer near the change of a second shows on which side the clock is, so each answer halves the
/// uncertainty. Answers at other moments would leave an uncertainty of up to a second, by which published validities would be shorter.
fn until_next(period: Duration, api_now: UnixMillis) -> Duration {
    let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
    Duration::from_millis(u64::try_from(period - api_now.0.rem_euclid(period)).unwrap_or(0))
}

#[cfg(test)]
mod tests;
