//! Which replica leads: a Kubernetes Lease, taken and renewed by compare-and-swap and judged by this replica's own clock.
//!
//! Guarantees: two replicas never both write the same version of the Lease (`replace` carries the resourceVersion), and a
//! Lease is taken over only after it stayed unchanged for its whole duration on the taker's own CLOCK_BOOTTIME. No wall
//! clocks are compared. A leader that was frozen may still believe that it leads: whatever it writes afterwards is refused
//! by resourceVersion (Kubernetes) or by the epoch (Redis members), see docs/safety.md.
//!
//! A leader that can no longer reach a quorum hands the Lease over and says why in it: a replica that reaches the quorum takes it at
//! once. If none does, nobody is better, and whoever takes it a moment later stays.

use std::{sync::Arc, time::Duration};

use futures::future::OptionFuture;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use tokio::{
    sync::{SetOnce, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::time::{Boottime, Clock};

/// Others may take the Lease over when it has not changed for this long.
const LEASE_DURATION: Duration = Duration::from_secs(4);
/// A leader that could not renew for this long stops leading; the second of difference covers slow clocks and requests.
const RENEW_DEADLINE: Duration = Duration::from_secs(3);
/// Between two renewals.
const RENEW_PERIOD: Duration = Duration::from_secs(1);
/// Between two looks at a Lease that somebody else holds.
const RETRY_PERIOD: Duration = Duration::from_millis(500);
/// On a Lease that was handed over: the quorum that its holder could not reach.
const OUT_OF_REACH_ANNOTATION: &str = "redlock-operator.io/out-of-reach";
/// Who handed the Lease over leaves it to others for this long, also if it reaches the quorum again meanwhile.
const STAND_ASIDE: Duration = Duration::from_millis(700);
/// Who does not reach that quorum either leaves it to others for this long.
const RELUCTANCE: Duration = Duration::from_millis(1_500);
/// For reading and writing the Lease once.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// Epochs count from 2023-11-14, so that they fit the Lease's 32-bit `leaseTransitions` until 2091.
const EPOCH_ORIGIN_SECONDS: i64 = 1_700_000_000;

/// One period of leadership.
#[derive(Clone, Debug)]
pub struct Term {
    /// Rises with every change of leader, also when the Lease object was deleted in between. Redis members refuse to be
    /// opened or closed by an epoch lower than the highest that they have seen.
    pub epoch: i64,
    /// Cancelled when the term is over.
    pub over: CancellationToken,
    out_of_reach: Arc<SetOnce<String>>,
    outdated: Arc<SetOnce<i64>>,
}

impl Term {
    /// A term with this epoch.
    #[must_use]
    pub fn new(epoch: i64) -> Self {
        Self { epoch, over: CancellationToken::new(), out_of_reach: Arc::default(), outdated: Arc::default() }
    }

    /// A member obeys this epoch, which is higher than the term's: nothing can be done to it in this term. Whether that was news.
    pub fn outdated(&self, by: i64) -> bool {
        by > self.epoch && self.outdated.set(by).is_ok()
    }

    /// The higher epoch that a member obeys, as soon as one was met.
    pub async fn outdated_by(&self) -> i64 {
        *self.outdated.wait().await
    }

    /// Asks for this term to end in favour of a replica that reaches `quorum`, whatever text names it. Whether nobody had asked.
    pub fn hand_over(&self, quorum: String) -> bool {
        self.out_of_reach.set(quorum).is_ok()
    }
}

/// What to do about the Lease, decided without IO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// We hold it: renew it.
    Renew,
    /// Nobody holds it, or its holder has not renewed it for its whole duration: take it.
    Take,
    /// Somebody else holds it.
    Wait,
}

/// The Lease as this replica last saw it change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// resourceVersion of the Lease.
    pub version: Option<String>,
    /// When this replica first saw that version.
    pub at: Boottime,
}

/// Decides from the Lease's spec, and since when this replica has seen it unchanged. `reluctance`: how long others may take a
/// Lease that nobody holds.
pub fn evaluate(spec: &LeaseSpec, me: &str, reluctance: Duration, unchanged_since: Boottime, now: Boottime) -> Verdict {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    if holder == me {
        return Verdict::Renew;
    }
    let duration = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
    let wait = if holder.is_empty() { reluctance } else { duration.map_or(LEASE_DURATION, Duration::from_secs) };
    if now.since(unchanged_since) >= wait { Verdict::Take } else { Verdict::Wait }
}

/// The epoch of a new term: above the last one, and above any of a Lease that was deleted since.
pub fn next_epoch(last: Option<i32>, unix_seconds: i64) -> i32 {
    let by_clock = i32::try_from(unix_seconds - EPOCH_ORIGIN_SECONDS).unwrap_or(1).max(1);
    last.map_or(by_clock, |last| last.saturating_add(1).max(by_clock))
}

/// This replica's candidacy.
pub struct Candidacy<C: ?Sized> {
    leases: Api<Lease>,
    name: String,
    identity: String,
    clock: Arc<C>,
    terms: watch::Sender<Option<Term>>,
    /// The term that we lead, and until when we may believe it.
    leading: Option<(Term, Boottime)>,
    sighting: Sighting,
    /// Until then others may take the Lease, and this replica does not.
    aside_until: Boottime,
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
        let now = clock.boottime();
        let candidacy = Self {
            leases: Api::namespaced(client, namespace),
            name: name.into(),
            identity: identity.into(),
            clock,
            terms,
            leading: None,
            sighting: Sighting { version: None, at: now },
            aside_until: now,
        };
        (candidacy, receiver)
    }

    /// Stands, leads and stands again until `shutdown`; then hands the Lease over. `reaches` tells whether this replica reaches a
    /// quorum.
    pub async fn run(mut self, shutdown: CancellationToken, reaches: impl Fn(&str) -> bool) {
        loop {
            match timeout(ATTEMPT_TIMEOUT, self.attempt(&reaches)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "lease request failed"),
                Err(_elapsed) => tracing::debug!("no answer from the API server about the lease"),
            }
            self.resign_if_overdue();
            let pause = if self.leading.is_some() { RENEW_PERIOD } else { RETRY_PERIOD };
            let term = self.leading.as_ref().map(|(term, _)| term.clone());
            let asked = OptionFuture::from(term.as_ref().map(|term| term.out_of_reach.wait()));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Some(quorum) = asked => {
                    self.aside_until = self.clock.boottime() + STAND_ASIDE;
                    self.hand_over("it does not reach a quorum that another replica may reach", Some(quorum)).await;
                }
                () = shutdown.cancelled() => break,
            }
        }
        if self.leading.is_some() {
            self.hand_over("shutting down", None).await;
        }
    }

    async fn hand_over(&mut self, why: &str, out_of_reach: Option<&str>) {
        self.end_term(why);
        if !matches!(timeout(ATTEMPT_TIMEOUT, self.let_go(out_of_reach)).await, Ok(Ok(()))) {
            tracing::info!("lease not handed over, it runs out by itself");
        }
    }

    async fn attempt(&mut self, reaches: &impl Fn(&str) -> bool) -> kube::Result<()> {
        let sent = self.clock.boottime();
        if sent < self.aside_until {
            return Ok(());
        }
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let lease = self.written(None);
            let created = self.leases.create(&PostParams::default(), &lease).await?;
            self.lead(&created, sent);
            return Ok(());
        };
        if self.sighting.version != lease.metadata.resource_version {
            self.sighting = Sighting { version: lease.metadata.resource_version.clone(), at: self.clock.boottime() };
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let is_reached = lease.annotations().get(OUT_OF_REACH_ANNOTATION).is_none_or(|quorum| reaches(quorum));
        let reluctance = if is_reached { Duration::ZERO } else { RELUCTANCE };
        match evaluate(&spec, &self.identity, reluctance, self.sighting.at, sent) {
            Verdict::Wait => {
                if self.leading.is_some() {
                    self.end_term("somebody else took the lease");
                }
                Ok(())
            }
            Verdict::Renew | Verdict::Take => {
                let lease = self.written(Some(lease));
                let replaced = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
                self.lead(&replaced, sent);
                Ok(())
            }
        }
    }

    /// The Lease as we would write it: renewed if it is ours in a term that we know, else taken with the next epoch (a
    /// process that restarted under its old name must not continue the term of its predecessor).
    fn written(&self, current: Option<Lease>) -> Lease {
        let mut lease = current.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
        lease.annotations_mut().remove(OUT_OF_REACH_ANNOTATION);
        let now = wall(&*self.clock);
        let mut spec = lease.spec.take().unwrap_or_default();
        if self.leading.is_none() {
            spec.lease_transitions = Some(next_epoch(spec.lease_transitions, now.as_second()));
            spec.acquire_time = Some(MicroTime(now));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
        spec.renew_time = Some(MicroTime(now));
        lease.spec = Some(spec);
        lease
    }

    fn lead(&mut self, lease: &Lease, sent: Boottime) {
        let until = sent + RENEW_DEADLINE;
        self.sighting = Sighting { version: lease.metadata.resource_version.clone(), at: self.clock.boottime() };
        if let Some((_, believed_until)) = &mut self.leading {
            *believed_until = until;
            return;
        }
        let epoch = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(1);
        let term = Term::new(i64::from(epoch));
        tracing::info!(epoch, "this replica leads");
        self.leading = Some((term.clone(), until));
        self.terms.send_replace(Some(term));
    }

    fn resign_if_overdue(&mut self) {
        if self.leading.as_ref().is_some_and(|(_, until)| self.clock.boottime() >= *until) {
            self.end_term("the lease could not be renewed in time");
        }
    }

    fn end_term(&mut self, why: &str) {
        if let Some((term, _)) = self.leading.take() {
            tracing::info!(epoch = term.epoch, why, "this replica no longer leads");
            term.over.cancel();
            self.terms.send_replace(None);
        }
    }

    async fn let_go(&mut self, out_of_reach: Option<&str>) -> kube::Result<()> {
        let mut lease = self.leases.get(&self.name).await?;
        if let Some(spec) = &mut lease.spec
            && spec.holder_identity.as_deref() == Some(self.identity.as_str())
        {
            spec.holder_identity = None;
            let quorum = out_of_reach.map(|quorum| (OUT_OF_REACH_ANNOTATION.to_owned(), quorum.to_owned()));
            lease.annotations_mut().extend(quorum);
            let replaced = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
            self.sighting = Sighting { version: replaced.metadata.resource_version, at: self.clock.boottime() };
        }
        Ok(())
    }
}

/// For display in the Lease only; no decision reads it.
fn wall(clock: &(impl Clock + ?Sized)) -> Timestamp {
    Timestamp::from_millisecond(clock.wall().0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn lease(holder: Option<&str>) -> LeaseSpec {
        LeaseSpec { holder_identity: holder.map(Into::into), lease_duration_seconds: Some(4), ..LeaseSpec::default() }
    }

    fn at(seconds: u64) -> Boottime {
        Boottime::new(Duration::from_secs(seconds))
    }

    #[test]
    fn a_term_says_which_higher_epoch_a_member_obeys() {
        let term = Term::new(7);
        assert!(!term.outdated(7) && !term.outdated(3), "those are no higher");
        assert!(term.outdated(9) && !term.outdated(12), "the first one ends the term");
        assert_eq!(term.outdated_by().now_or_never(), Some(9));
        assert_eq!(Term::new(7).outdated_by().now_or_never(), None);
    }

    #[test]
    fn our_own_lease_is_renewed_however_old_it_looks() {
        assert_eq!(evaluate(&lease(Some("me")), "me", Duration::ZERO, at(0), at(100)), Verdict::Renew);
    }

    #[test]
    fn a_lease_of_another_is_taken_only_after_its_whole_duration_unchanged_on_our_own_clock() {
        let spec = lease(Some("other"));
        assert_eq!(evaluate(&spec, "me", Duration::ZERO, at(10), at(13)), Verdict::Wait);
        assert_eq!(evaluate(&spec, "me", Duration::ZERO, at(10), at(14)), Verdict::Take);
    }

    #[test]
    fn a_lease_that_was_handed_over_is_taken_at_once() {
        assert_eq!(evaluate(&lease(None), "me", Duration::ZERO, at(10), at(10)), Verdict::Take);
        assert_eq!(evaluate(&lease(Some("")), "me", Duration::ZERO, at(10), at(10)), Verdict::Take);
    }

    #[test]
    fn a_lease_handed_over_for_what_we_do_not_reach_either_is_left_to_others_for_a_moment() {
        let take = |millis| {
            evaluate(&lease(None), "me", RELUCTANCE, at(10), at(10) + Duration::from_millis(millis)) == Verdict::Take
        };
        assert_eq!((take(0), take(1_499), take(1_500)), (false, false, true));
    }

    #[test]
    fn epochs_rise_through_changes_of_leader_and_deletion_of_the_lease() {
        let first = next_epoch(None, EPOCH_ORIGIN_SECONDS + 100);
        let second = next_epoch(Some(first), EPOCH_ORIGIN_SECONDS + 100);
        let after_deletion = next_epoch(None, EPOCH_ORIGIN_SECONDS + 110);
        assert!(first < second && second < after_deletion);
    }
}
