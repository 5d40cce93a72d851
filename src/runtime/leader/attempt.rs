//! One look at the Lease, and the write that follows from it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use tokio::time::timeout;

use super::hand_over::{Holder, Notes, Prospect};
use super::lease::{Asker, Verdict, evaluate, highest_known, next_epoch};
use super::term::Term;
use super::{ATTEMPT_TIMEOUT, Candidacy, LEASE_DURATION, RENEW_DEADLINE, Surroundings};
use crate::time::{Boottime, Clock, UnixMillis};

/// Those to whom it was not handed over leave it to the others for this long.
const RELUCTANCE: Duration = Duration::from_millis(1_500);
/// Another replica wrote into the Lease in between: read it again, so many times at once.
const CONFLICTS: usize = 3;
/// How old a wish may be when the quorum is reached, before it is dropped.
/// By then the links have noticed if members are silent.
const WISH_AGE: Duration = Duration::from_secs(5);

/// What an attempt came to.
pub(super) enum Attempt {
    /// The Lease is as it should be.
    Done,
    /// To be handed over for the sake of this quorum, to these.
    HandOver(String, Vec<String>),
}

impl<C: Clock + ?Sized> Candidacy<C> {
    /// Standbys write into the Lease, too, so a conflict is no news: read it again.
    pub(super) async fn attempts(&mut self, around: &impl Surroundings) -> kube::Result<Attempt> {
        let mut conflicts = 0;
        loop {
            match self.attempt(around).await {
                Err(kube::Error::Api(status)) if status.is_conflict() && conflicts < CONFLICTS => conflicts += 1,
                settled => return settled,
            }
        }
    }

    async fn attempt(&mut self, around: &impl Surroundings) -> kube::Result<Attempt> {
        let sent = self.clock.boottime();
        if sent < self.aside_until {
            return Ok(Attempt::Done);
        }
        let api_now = around.api_now();
        self.reach.look(around.sights(), sent);
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            self.end_term("the lease is gone");
            self.highest = highest_known(self.highest, None);
            return self.take(None, sent, around).await;
        };
        let unchanged_since = self.sighting.look(&lease, self.clock.boottime());
        let spec = lease.spec.clone().unwrap_or_default();
        self.highest = highest_known(self.highest, spec.lease_transitions);
        let mut notes = Notes::of(&lease);
        self.memory.look(&mut notes, sent, api_now);
        let asker = Asker {
            me: &self.identity,
            epoch: self.leading.as_ref().map(|term| term.epoch),
            reluctance: self.reluctance(&notes),
        };
        match evaluate(&spec, asker, unchanged_since, sent) {
            Verdict::Wait => {
                self.end_term("another replica took the lease");
                self.tell_whether_there_is_an_epoch(true, around);
                self.speak(lease, notes, sent).await
            }
            Verdict::Take => {
                self.end_term("the lease was not ours all the time");
                self.take(Some((lease, notes)), sent, around).await
            }
            Verdict::Renew => self.renew(lease, notes, sent, api_now).await,
        }
    }

    /// How long this replica leaves a Lease without a holder to others.
    fn reluctance(&self, notes: &Notes) -> Duration {
        let is_preferred = notes.successors.is_empty() || notes.successors.contains(&self.identity);
        if is_preferred { Duration::ZERO } else { RELUCTANCE }
    }

    /// Begins a term. A process that restarted under its old name does not continue the term of the one before.
    async fn take(
        &mut self,
        current: Option<(Lease, Notes)>,
        sent: Boottime,
        around: &impl Surroundings,
    ) -> kube::Result<Attempt> {
        let api_now = around.api_now();
        let epoch = next_epoch(self.highest, api_now);
        self.tell_whether_there_is_an_epoch(epoch.is_some(), around);
        let Some(epoch) = epoch else { return Ok(Attempt::Done) };
        let exists = current.is_some();
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let (mut lease, notes) = current.unwrap_or_else(|| (Lease { metadata, ..Lease::default() }, Notes::default()));
        notes.for_new_term().write_to(&mut lease);
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
        self.sighting.look(&written, self.clock.boottime());
        tracing::info!(epoch, "this replica leads");
        let term = Term::new(i64::from(epoch));
        term.last_until(sent + RENEW_DEADLINE);
        self.leading = Some(term.clone());
        self.terms.send_replace(Some(term));
        Ok(Attempt::Done)
    }

    fn tell_whether_there_is_an_epoch(&mut self, there_is: bool, around: &impl Surroundings) {
        around.refuses_to_lead(!there_is);
        if !there_is && !self.refuses {
            tracing::error!(
                lease = self.name,
                "no replica can lead: leaseTransitions of the Lease is the largest number there is, and each term needs a larger one. \
                 Held locks are renewed, nothing is granted. Set it to 0: docs/security.md, \"The Lease\""
            );
        }
        self.refuses = !there_is;
    }

    /// Goes on leading, and says in the Lease what is not reached; or finds a replica that reaches it.
    async fn renew(
        &mut self,
        mut lease: Lease,
        mut notes: Notes,
        sent: Boottime,
        api_now: UnixMillis,
    ) -> kube::Result<Attempt> {
        let Some(term) = self.leading.clone() else { return Ok(Attempt::Done) };
        for (quorum, wish) in term.wishes() {
            if wish.is_older(WISH_AGE, sent) && self.reach.is_steady(&quorum, sent) {
                term.reaches(&quorum);
            }
        }
        let wishes = term.wishes();
        let urgent = |quorum: &str| wishes.iter().any(|(wished, wish)| wished == quorum && wish.urgent);
        let holder = Holder { notes: &notes, reach: &self.reach, memory: &self.memory, now: sent, api_now };
        for (quorum, _) in &wishes {
            if matches!(holder.prospect(quorum, true), Prospect::Gone | Prospect::TooSoon) {
                term.refuse(quorum);
            }
        }
        let missing = holder.missing(wishes.iter().map(|(quorum, _)| quorum.as_str()));
        for quorum in &missing {
            if let Prospect::To(successors) = holder.prospect(quorum, urgent(quorum)) {
                return Ok(Attempt::HandOver(quorum.clone(), successors));
            }
        }
        notes.missing = missing;
        notes.write_to(&mut lease);
        note_renewal(lease.spec.get_or_insert_default(), api_now);
        let written = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        self.sighting.look(&written, self.clock.boottime());
        term.last_until(sent + RENEW_DEADLINE);
        Ok(Attempt::Done)
    }

    /// Says in the Lease of another replica what this one reaches, if that is news.
    async fn speak(&mut self, mut lease: Lease, mut notes: Notes, now: Boottime) -> kube::Result<Attempt> {
        let is_held = lease.spec.as_ref().is_some_and(|spec| spec.holder_identity.is_some());
        if let Some(says) = notes.to_say(&self.identity, &self.reach, self.spoke, now).filter(|_| is_held) {
            self.spoke = Some(now);
            notes.standbys.insert(self.identity.clone(), says);
            notes.write_to(&mut lease);
            self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        }
        Ok(Attempt::Done)
    }

    /// Lets the Lease go, so that no replica has to wait until it runs out.
    pub(super) async fn let_go(&mut self, to: Option<(&str, Vec<String>)>, around: &impl Surroundings) {
        for _ in 0..=CONFLICTS {
            match timeout(ATTEMPT_TIMEOUT, self.try_to_let_go(to.as_ref(), around)).await {
                Ok(Ok(())) => return,
                Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {}
                _ => break,
            }
        }
        tracing::info!("lease not handed over, it runs out by itself");
    }

    async fn try_to_let_go(
        &mut self,
        to: Option<&(&str, Vec<String>)>,
        around: &impl Surroundings,
    ) -> kube::Result<()> {
        let mut lease = self.leases.get(&self.name).await?;
        if lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) != Some(self.identity.as_str()) {
            return Ok(());
        }
        if let Some((quorum, successors)) = to {
            let notes = Notes::of(&lease).handed_over(quorum, successors.clone(), around.api_now());
            notes.write_to(&mut lease);
        }
        lease.spec.get_or_insert_default().holder_identity = None;
        let written = self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        self.sighting.look(&written, self.clock.boottime());
        Ok(())
    }
}

fn note_renewal(spec: &mut LeaseSpec, api_now: UnixMillis) {
    spec.lease_duration_seconds = i32::try_from(LEASE_DURATION.as_secs()).ok();
    spec.renew_time = Some(micro_time(api_now));
}

fn micro_time(time: UnixMillis) -> MicroTime {
    MicroTime(Timestamp::from_millisecond(time.0).unwrap_or_default())
}
