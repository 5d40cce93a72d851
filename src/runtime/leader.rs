//! Which replica leads: a Kubernetes Lease, taken and renewed by compare-and-swap and judged by this replica's own clock.
//!
//! Two replicas never both write the same version of the Lease, because `replace` carries the resourceVersion. A replica takes a
//! Lease only if it was unchanged for its whole duration on the replica's own CLOCK_BOOTTIME. No wall clocks are compared.
//!
//! A holder stops earlier, by its own CLOCK_BOOTTIME. No attempt to renew and no pause lasts longer than its term, and work for a term
//! checks the clock before every step ([`Term::bound`]). The resourceVersion (Kubernetes) or the epoch (Redis members) refuses a write that
//! a frozen leader had begun, see docs/dev/rules.md.
//!
//! A leader that does not reach a quorum with locks releases the Lease, see `hand_over` and docs/dev/algorithm.md.

mod attempt;
mod hand_over;
mod lease;
mod reach;
mod term;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::attempt::Attempt;
use self::hand_over::Memory;
use self::lease::{LeaseObservation, believable};
use self::reach::Reach;
use crate::api::RedisQuorum;
use crate::time::{Boottime, Clock, UnixMillis};

pub use self::reach::QuorumReachability;
pub use self::term::Term;

/// Another replica can take the Lease when its holder has not changed it for this long.
const LEASE_DURATION: Duration = Duration::from_secs(4);
/// How long a leader goes on leading without a renewal.
/// It is a second shorter than the Lease, which covers slow clocks and requests.
const RENEW_DEADLINE: Duration = Duration::from_secs(3);
/// Between two renewals.
const RENEW_PERIOD: Duration = Duration::from_secs(1);
/// Between two looks at a Lease that another replica holds.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// How long a replica that let the Lease go leaves it to others.
/// It does so even if it reaches the quorum again meanwhile.
const STAND_ASIDE: Duration = Duration::from_secs(1);
/// For reading and writing the Lease once.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two terms that begin for the sake of a member that obeys a higher epoch.
const RAISE_PERIOD: Duration = Duration::from_secs(10);

/// The surroundings of a replica.
pub trait Surroundings: Send + Sync {
    /// A look at every quorum that is to be served.
    fn reachability(&self) -> Vec<QuorumReachability>;
    /// The API server's time.
    fn api_now(&self) -> UnixMillis;
    /// Whether this replica would have to lead, and there is no epoch left for a term.
    fn refuses_to_lead(&self, refuses: bool);
}

/// A quorum's name in the Lease.
#[must_use]
pub fn quorum_name(quorum: &ObjectRef<RedisQuorum>) -> String {
    format!("{}/{}", quorum.namespace.as_deref().unwrap_or_default(), quorum.name)
}

/// This replica's candidacy.
pub struct Candidacy<C: ?Sized> {
    leases: Api<Lease>,
    name: String,
    identity: String,
    clock: Arc<C>,
    terms: watch::Sender<Option<Term>>,
    leading: Option<Term>,
    observation: LeaseObservation,
    reach: Reach,
    memory: Memory,
    /// The highest epoch that is known: the Lease's, or one that a member obeys.
    highest: Option<i32>,
    /// There is no epoch for another term, and this was said.
    refuses: bool,
    /// The leader whose name was logged last.
    follows: Option<String>,
    /// When a term last began for the sake of such a member.
    raised: Option<Boottime>,
    /// This replica leaves the Lease to other replicas until this time.
    aside_until: Boottime,
}

/// Why a pause ended.
enum Woken {
    ByTime,
    Outdated(i64),
    Shutdown,
}

impl<C: Clock + ?Sized> Candidacy<C> {
    /// Stands for the Lease `name`; the receiver shows the current term of this replica, if it leads.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        clock: Arc<C>,
    ) -> (Self, watch::Receiver<Option<Term>>) {
        let (terms, receiver) = watch::channel(None);
        let candidacy = Self {
            leases: Api::namespaced(client, namespace),
            name: name.into(),
            identity: identity.into(),
            aside_until: clock.boottime(),
            clock,
            terms,
            leading: None,
            observation: LeaseObservation::default(),
            reach: Reach::default(),
            memory: Memory::default(),
            highest: None,
            refuses: false,
            follows: None,
            raised: None,
        };
        (candidacy, receiver)
    }

    /// Stands, leads and stands again until `shutdown`; then lets the Lease go.
    pub async fn run(mut self, shutdown: CancellationToken, around: impl Surroundings) {
        loop {
            self.end_if_overdue();
            self.attempt_in_time(&around).await;
            self.end_if_overdue();
            let woken = self.pause(&shutdown, around.api_now()).await;
            // First of all, because this process can have been stopped for a long time.
            self.end_if_overdue();
            match woken {
                Woken::ByTime => {}
                Woken::Outdated(epoch) => self.rise_above(epoch, around.api_now()),
                Woken::Shutdown => break,
            }
        }
        if self.leading.is_some() {
            self.end_term("shutting down");
            self.let_go(None).await;
        }
    }

    /// No attempt lasts longer than the term.
    async fn attempt_in_time(&mut self, around: &impl Surroundings) {
        let limit = self.left().map_or(ATTEMPT_TIMEOUT, |left| left.min(ATTEMPT_TIMEOUT));
        match timeout(limit, self.attempt(around)).await {
            Ok(Ok(Attempt::Done)) => {}
            Ok(Ok(Attempt::HandOver(quorum))) => {
                tracing::info!(quorum, "releasing the Lease, because another replica perhaps reaches the quorum");
                let now = self.clock.boottime();
                self.aside_until = now + STAND_ASIDE;
                self.end_term("it does not reach a quorum");
                self.let_go(Some(self.memory.next(now, around.api_now()))).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "lease request failed"),
            Err(_elapsed) => tracing::debug!("no answer from the API server about the lease"),
        }
    }

    async fn pause(&self, shutdown: &CancellationToken, api_now: UnixMillis) -> Woken {
        let Some(term) = &self.leading else {
            return tokio::select! {
                () = shutdown.cancelled() => Woken::Shutdown,
                () = sleep(until_next(RETRY_PERIOD, api_now)) => Woken::ByTime,
            };
        };
        let now = self.clock.boottime();
        let may_rise = self.raised.is_none_or(|raised| now.since(raised) >= RAISE_PERIOD);
        tokio::select! {
            () = shutdown.cancelled() => Woken::Shutdown,
            epoch = term.outdated_by(), if may_rise => Woken::Outdated(epoch),
            () = term.wished() => Woken::ByTime,
            () = sleep(until_next(RENEW_PERIOD, api_now).min(term.until().since(now))) => Woken::ByTime,
        }
    }

    /// A member obeys a higher epoch, so this leader can do nothing to it. The next term begins above that one, when the Lease is
    /// confirmed to be ours.
    fn rise_above(&mut self, epoch: i64, api_now: UnixMillis) {
        self.raised = Some(self.clock.boottime());
        match believable(epoch, self.highest, api_now) {
            Some(epoch) => {
                self.highest = self.highest.max(Some(epoch));
                self.end_term("a member obeys a higher epoch");
            }
            None => tracing::error!(epoch, "a member obeys an epoch that no leader had. Restart that member"),
        }
    }

    /// How long this replica still leads.
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

/// Until the API server's clock shows the next multiple of `period`.
///
/// A `Date` header has whole seconds. An answer near the change of a second says on which side the clock is, so each one halves what is
/// not known of it. Answers at other moments would leave up to a second, which published validities would lose.
fn until_next(period: Duration, api_now: UnixMillis) -> Duration {
    let period = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
    Duration::from_millis(u64::try_from(period - api_now.0.rem_euclid(period)).unwrap_or(0))
}

#[cfg(test)]
mod tests;
