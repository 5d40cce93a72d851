//! One attempt to take or to renew the Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::PostParams;
use tokio::time::timeout;

use super::hand_over::Record;
use super::lease::{Verdict, evaluate, highest_epoch, next_epoch};
use super::term::Term;
use super::{ATTEMPT_TIMEOUT, Candidacy, LEASE_DURATION, RENEW_DEADLINE, ReplicaState};
use crate::time::{Boottime, UnixMillis};

/// The delay before a replica that misses a quorum takes a Lease without a holder.
///
/// In that time a replica that reaches all quorums can take it.
const TAKE_DELAY: Duration = Duration::from_millis(1_500);
/// The age from which a wish to hand over is dropped, if this replica reaches the quorum.
///
/// By then the links have detected silent members.
const WISH_AGE: Duration = Duration::from_secs(5);

/// The annotation of the Lease with the default quorum in force, as `<namespace>/<name>`.
const DEFAULT_IN_FORCE: &str = "redlock-operator.io/default-in-force";

impl Candidacy {
    /// Makes one attempt.
    ///
    /// A leader writes over its last write, and reads the Lease only after an error.
    /// Returns the quorum because of which the leader must release the Lease, if there is one.
    pub(super) async fn attempt(&mut self, replica: &impl ReplicaState) -> kube::Result<Option<String>> {
        let sent = self.clock.boottime();
        if sent < self.paused_until {
            return Ok(None);
        }
        if let Some(written) = self.written.take().filter(|_| self.leading.is_some()) {
            match self.attempt_on(Some(written), sent, replica).await {
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
                done => return done,
            }
        }
        let lease = self.leases.get_opt(&self.name).await?;
        self.attempt_on(lease, sent, replica).await
    }

    /// Decides from the current Lease, and writes it.
    async fn attempt_on(
        &mut self,
        lease: Option<Lease>,
        sent: Boottime,
        replica: &impl ReplicaState,
    ) -> kube::Result<Option<String>> {
        let api_now = replica.api_now();
        self.reach.observe(replica.reachability(), sent);
        let Some(lease) = lease else {
            self.end_term("the lease is gone");
            self.highest = highest_epoch(self.highest, None);
            self.take(None, sent, replica).await?;
            return Ok(None);
        };
        let unchanged_since = self.observation.observe(&lease, self.clock.boottime());
        let spec = lease.spec.clone().unwrap_or_default();
        self.highest = highest_epoch(self.highest, spec.lease_transitions);
        self.memory.observe(Record::of(&lease), sent);
        let epoch = self.leading.as_ref().map(|term| term.epoch);
        let take_delay = self.reach.missing(sent).map_or(Duration::ZERO, |_quorum| TAKE_DELAY);
        match evaluate(&spec, &self.identity, epoch, take_delay, sent.since(unchanged_since)) {
            Verdict::Wait => {
                self.end_term("another replica took the lease");
                self.follow(spec.holder_identity.unwrap_or_default());
                self.report_next_epoch(true, replica);
            }
            Verdict::Take => {
                self.end_term("the lease was not ours all the time");
                self.take(Some(lease), sent, replica).await?;
            }
            Verdict::Renew => return self.renew(lease, sent, api_now).await,
        }
        Ok(None)
    }

    /// Logs the leader that this replica follows, once for each leader.
    fn follow(&mut self, leader: String) {
        if self.follows.as_ref() != Some(&leader) {
            tracing::info!(leader, "this replica follows the leader");
            self.follows = Some(leader);
        }
    }

    /// Takes the Lease, and begins a term. A restarted process does not continue its earlier term.
    async fn take(&mut self, current: Option<Lease>, sent: Boottime, replica: &impl ReplicaState) -> kube::Result<()> {
        let api_now = replica.api_now();
        let epoch = next_epoch(self.highest, api_now);
        self.report_next_epoch(epoch.is_some(), replica);
        let Some(epoch) = epoch else { return Ok(()) };
        let exists = current.is_some();
        let mut lease = current.unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_transitions = Some(epoch);
        spec.acquire_time = Some(micro_time(api_now));
        note_renewal(spec, api_now);
        let written = if exists {
            self.leases.replace(&self.name, &PostParams::default(), &lease).await?
        } else {
            self.leases.create(&PostParams::default(), &lease).await?
        };
        self.highest = Some(epoch);
        tracing::info!(epoch, "this replica leads");
        self.follows = None;
        let term = Term::new(i64::from(epoch));
        term.default_is(recorded_default(&written));
        term.last_until(sent + RENEW_DEADLINE);
        term.refuse(!self.memory.allows(sent, api_now));
        self.keep(written);
        self.leading = Some(term.clone());
        self.terms.send_replace(Some(term));
        Ok(())
    }

    /// Reports whether a next term can have an epoch, and logs the error once.
    fn report_next_epoch(&mut self, exists: bool, replica: &impl ReplicaState) {
        replica.refuses_to_lead(!exists);
        if !exists && !self.epochs_exhausted {
            tracing::error!(
                lease = self.name,
                "no replica can lead: leaseTransitions of the Lease is the largest number there is, and each term needs a larger one. \
                 Held locks are renewed, nothing is granted. Set it to 0: docs/security.md, \"The Lease\""
            );
        }
        self.epochs_exhausted = !exists;
    }

    /// Renews the Lease, or returns a quorum that this replica does not reach, for a hand-over.
    async fn renew(&mut self, mut lease: Lease, sent: Boottime, api_now: UnixMillis) -> kube::Result<Option<String>> {
        let Some(term) = self.leading.clone() else { return Ok(None) };
        let allows = self.memory.allows(sent, api_now);
        term.refuse(!allows);
        if let Some(quorum) = self.out_of_reach(&term, sent).filter(|_| allows) {
            return Ok(Some(quorum));
        }
        note_renewal(lease.spec.get_or_insert_default(), api_now);
        if let Some(default) = term.wanted_default() {
            lease.annotations_mut().insert(DEFAULT_IN_FORCE.to_owned(), default);
        }
        let written = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        term.default_is(recorded_default(&written));
        self.keep(written);
        term.last_until(sent + RENEW_DEADLINE);
        Ok(None)
    }

    /// Keeps this leader's last write for the next renewal.
    fn keep(&mut self, written: Lease) {
        self.observation.observe(&written, self.clock.boottime());
        self.written = Some(written);
    }

    /// A quorum because of which the leader releases the Lease.
    ///
    /// A quorum that is deleted, or is being deleted, is no reason.
    fn out_of_reach(&self, term: &Term, now: Boottime) -> Option<String> {
        for (quorum, since) in term.wishes() {
            if now.since(since) > WISH_AGE && self.reach.is_steady(&quorum, now) {
                term.reaches(&quorum);
            } else if self.reach.contains(&quorum) {
                return Some(quorum);
            }
        }
        self.reach.missing(now).map(str::to_owned)
    }

    /// Releases the Lease, so that no replica has to wait until it expires.
    pub(super) async fn release_lease(&mut self, record: Option<Record>) {
        if !matches!(timeout(ATTEMPT_TIMEOUT, self.try_release_lease(record)).await, Ok(Ok(()))) {
            tracing::info!("lease not released, it expires");
        }
    }

    async fn try_release_lease(&mut self, record: Option<Record>) -> kube::Result<()> {
        let mut lease = self.leases.get(&self.name).await?;
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        if let Some(record) = record {
            record.write_to(&mut lease);
        }
        let written = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        self.observation.observe(&written, self.clock.boottime());
        Ok(())
    }
}

/// The default quorum that a Lease records.
fn recorded_default(lease: &Lease) -> Option<String> {
    lease.annotations().get(DEFAULT_IN_FORCE).cloned()
}

fn note_renewal(spec: &mut LeaseSpec, api_now: UnixMillis) {
    spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
    spec.renew_time = Some(micro_time(api_now));
}

fn micro_time(time: UnixMillis) -> MicroTime {
    MicroTime(Timestamp::from_millisecond(time.0).unwrap_or_default())
}
