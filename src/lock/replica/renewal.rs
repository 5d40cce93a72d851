//! Renews held locks on every replica, by its own timer. It waits neither for reconciles nor for the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kube::{Api, Client, ResourceExt};
use tokio::sync::{SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use super::hold_table::Holds;
use super::{holder, liveness, location};
use crate::api::requests::request;
use crate::api::{DistributedLock, HeldQuorum};
use crate::lock::model::end::End;
use crate::lock::model::heartbeat;
use crate::lock::model::hold::{Hold, RenewalOutcome, Terms};
use crate::lock::model::orphans;
use crate::quorum::session::{MOST_IN_BATCH, QuorumSession, RenewalLimit, Sessions};
use crate::redlock::{Drift, Extend, ExtendRequest, Nonce, Occupant, RunId, ValueSigner, repair_until};
use crate::runtime::cache::version;
use crate::runtime::context::Context;
use crate::runtime::fair_queue::{Class, FairQueue, Slot};
use crate::runtime::keys;
use crate::runtime::leader::Term;
use crate::runtime::panics::caught;

/// Delay of a renewal that is not allowed now, or whose quorum has no session.
const POSTPONED: Duration = Duration::from_millis(100);
/// Delay of a renewal that panicked.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// Interval of the timer without holds. A new hold wakes it immediately.
const IDLE: Duration = Duration::from_secs(60);
/// Time between two readings of the voting processes.
const VOTERS: Duration = Duration::from_millis(500);

/// The number of concurrent pipelines and checks of holders.
pub const SLOTS: usize = 256;

/// The task that renews holds, with its caches, sessions and table.
#[derive(Clone)]
pub struct Renewal {
    /// Caches and clocks.
    pub context: Context,
    /// Connections to the quorums.
    pub sessions: Sessions,
    /// The holds of this replica.
    pub holds: Arc<Holds>,
    /// Whether this replica leads. Only the leader repairs.
    pub leadership: watch::Receiver<Option<Term>>,
    /// The slots for renewals and checks of holders.
    pub queue: FairQueue,
}

/// Whether the holder is checked before a renewal.
fn is_asked(hold: &Hold, lock: &DistributedLock) -> bool {
    hold.published && liveness::is_holder_checked(lock)
}

/// The batches of a round: holds of one namespace on one quorum object.
///
/// A quorum that was created again has the name of the former one, and other members. A hold whose holder is checked first is a batch of
/// one, so that a silent holder delays no other.
fn batches(due: Vec<Hold>, is_checked: impl Fn(&Hold) -> bool) -> Vec<Vec<Hold>> {
    let mut together = BTreeMap::<_, Vec<Hold>>::new();
    for hold in due {
        let Terms { lock, uid, quorum, .. } = &hold.terms;
        let alone = is_checked(&hold).then(|| uid.clone());
        let at = (lock.namespace.clone(), quorum.uid.clone(), alone);
        together.entry(at).or_default().push(hold);
    }
    together.values().flat_map(|holds| holds.chunks(MOST_IN_BATCH).map(<[Hold]>::to_vec)).collect()
}

/// Waits until a batch can be sent, and then for a slot.
///
/// A batch that waits for slow members has no slot, so it delays no renewal on another quorum.
async fn take_turn<'a>(
    limit: Option<&'a RenewalLimit>,
    batch: usize,
    queue: &FairQueue,
    namespace: &str,
    class: Class,
) -> (Option<SemaphorePermit<'a>>, Slot) {
    let permit = if let Some(limit) = limit { limit.enter(batch).await } else { None };
    (permit, queue.enter(namespace, class).await)
}

impl Renewal {
    /// Renews all due holds until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.renew_due() => {}
            () = self.hasten_for_new_voters() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn renew_due(&self) {
        loop {
            let now = self.context.clock.boottime();
            let pause = self.holds.next_due().map_or(IDLE, |due| due.since(now));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.holds.changed() => {}
            }
            let due = self.holds.take_due(self.context.clock.boottime());
            let is_checked =
                |hold: &Hold| self.context.locks.get(&hold.terms.lock).is_some_and(|lock| is_asked(hold, &lock));
            for batch in batches(due, is_checked) {
                tokio::spawn(self.clone().guarded(batch));
            }
        }
    }

    /// Hastens the renewals that lacked a vote when another process votes.
    ///
    /// That process has no keys yet. Until the repairs after these renewals, the loss of another member would lose locks. Only the leader
    /// repairs.
    async fn hasten_for_new_voters(&self) {
        // The processes that voted, by the UID of their quorum.
        let mut voted = BTreeMap::<String, BTreeSet<RunId>>::new();
        loop {
            tokio::time::sleep(VOTERS).await;
            let sessions = if self.leadership.borrow().is_some() { self.sessions.all() } else { Vec::new() };
            let vote_now: BTreeMap<_, _> =
                sessions.iter().map(|session| (session.uid().to_owned(), session.voters())).collect();
            for (uid, processes) in &vote_now {
                if voted.get(uid).is_none_or(|before| !processes.is_subset(before)) {
                    self.holds.hasten(uid, self.context.clock.boottime());
                }
            }
            voted = vote_now;
        }
    }

    /// Renews a batch so that a panic over one lock affects no other.
    ///
    /// After a panic each hold of the batch is renewed alone.
    async fn guarded(self, holds: Vec<Hold>) {
        if caught(self.renew_in_turn(holds.clone())).await.is_ok() {
            return;
        }
        let is_alone = holds.len() == 1;
        let alone = holds.into_iter().map(async |hold| {
            if is_alone || caught(self.renew_in_turn(vec![hold.clone()])).await.is_err() {
                self.panicked(&hold);
            }
        });
        join_all(alone).await;
    }

    fn panicked(&self, hold: &Hold) {
        self.context.metrics.count(&self.context.metrics.panics, "renewal");
        tracing::error!(lock = %hold.terms.lock, "renewing this lock panicked");
        let pause = AFTER_PANIC.min(hold.terms.renew_interval);
        self.postpone(hold, pause);
    }

    /// Waits for a slot, and renews the holds that are still to be renewed.
    ///
    /// A hold is dropped from the batch if its holder is gone, suspended or past its time, as far as this replica observes.
    async fn renew_in_turn(&self, holds: Vec<Hold>) {
        let Some(first) = holds.iter().min_by_key(|hold| hold.valid_until) else { return };
        let (quorum, namespace) = (first.terms.quorum.clone(), first.terms.lock.namespace.clone().unwrap_or_default());
        let session = location::session(&self.sessions, &quorum);
        let limit = session.as_ref().map(|session| &session.renewal_limit);
        let class = Class::Renewal(first.valid_until);
        let (under_way, _slot) = take_turn(limit, holds.len(), &self.queue, &namespace, class).await;
        // Only holds with a slot allocate this future.
        Box::pin(self.renew_now(quorum, holds, under_way)).await;
    }

    async fn renew_now(&self, quorum: HeldQuorum, holds: Vec<Hold>, under_way: Option<SemaphorePermit<'_>>) {
        let mut able = Vec::new();
        for hold in holds {
            match self.renewable(&hold) {
                // The ttl of its renewal counts from the check, so it does not wait for the others.
                Some(lock) if is_asked(&hold, &lock) => {
                    if let Some(hold) = self.check_holder(&lock, hold).await {
                        self.renew(quorum.clone(), vec![hold], None).await;
                    }
                }
                Some(_) => able.push(hold),
                // A reader of the watch that falls behind misses the deletion of a lock.
                None if hold.published && self.lock_of(&hold).is_none() => self.holds.forget_deleted(&hold.terms.uid),
                None => self.postpone(&hold, POSTPONED),
            }
        }
        if !able.is_empty() {
            self.renew(quorum, able, under_way).await;
        }
    }

    /// The cached lock of a hold.
    fn lock_of(&self, hold: &Hold) -> Option<Arc<DistributedLock>> {
        let lock = self.context.locks.get(&hold.terms.lock)?;
        (lock.metadata.uid.as_deref() == Some(hold.terms.uid.as_str())).then_some(lock)
    }

    /// The lock of a hold that is still to be renewed.
    ///
    /// Without the object nothing could end the hold properly, so it runs out.
    fn renewable(&self, hold: &Hold) -> Option<Arc<DistributedLock>> {
        let cached = self.lock_of(hold)?;
        if !hold.is_written() {
            // No status has this grant yet.
            return self.leadership.borrow().is_some().then_some(cached);
        }
        // The watch can report the status with this grant much later.
        let written = hold.written.clone().filter(|written| version(&**written) > version(&*cached));
        let lock = written.unwrap_or(cached);
        let named = orphans::holder_nonce(&lock) == Some(hold.terms.nonce);
        (named && holder::verdict(&self.context, &lock, None).is_renewed()).then_some(lock)
    }

    /// Checks the holder. Returns the hold with the ttl for its renewal, or `None` if the check failed.
    async fn check_holder(&self, lock: &DistributedLock, mut hold: Hold) -> Option<Hold> {
        let checked = liveness::check(&self.context, lock, &mut hold).await;
        self.holds.note_checks(&hold);
        let now = self.context.clock.boottime();
        let end = match checked {
            Ok(None) => {
                self.holds.checked(&hold.terms.uid, &hold.terms.nonce, None);
                return Some(hold);
            }
            Ok(Some(last_end)) => {
                let session = location::session(&self.sessions, &hold.terms.quorum);
                let drift = session.map_or_else(Drift::default, |session| session.redlock().settings().drift);
                if let Some((ttl, check_by)) = heartbeat::bounded(last_end, hold.terms.ttl, drift, now) {
                    self.holds.checked(&hold.terms.uid, &hold.terms.nonce, Some(check_by));
                    hold.terms.ttl = ttl;
                    return Some(hold);
                }
                End::HeartbeatSilent { silent: hold.terms.ttl.into() }
            }
            Err(end) => end,
        };
        self.holds.apply_outcome(&hold.terms.uid, &hold.terms.nonce, RenewalOutcome::Unhealthy(end), now);
        None
    }

    fn postpone(&self, hold: &Hold, pause: Duration) {
        let now = self.context.clock.boottime();
        self.holds.apply_outcome(&hold.terms.uid, &hold.terms.nonce, RenewalOutcome::Postponed(now + pause), now);
    }

    /// Renews a batch. `under_way` ends with the round, because the repairs after it can wait for the API server.
    async fn renew(&self, quorum: HeldQuorum, batch: Vec<Hold>, under_way: Option<SemaphorePermit<'_>>) {
        let Some((session, signer)) = location::signed(&self.sessions, &quorum) else {
            return batch.iter().for_each(|hold| self.postpone(hold, POSTPONED));
        };
        let now = self.context.clock.boottime();
        let requests = batch
            .iter()
            .map(|Hold { terms, .. }| ExtendRequest {
                key: terms.key.clone(),
                value: signer.value(&terms.uid, &terms.nonce),
                ttl: terms.ttl,
                valid_until: None,
            })
            .collect();
        for hold in &batch {
            self.context.metrics.renewal_lateness.observe(now.since(hold.due).as_secs_f64());
        }
        let outcomes = session.redlock().extend(&session.electorate(), requests).await;
        drop(under_way);
        let now = self.context.clock.boottime();
        let repairs = batch.iter().zip(outcomes).map(|(hold, outcome)| {
            self.context.metrics.count(&self.context.metrics.renewals, outcome_name(&outcome));
            self.holds.apply_outcome(&hold.terms.uid, &hold.terms.nonce, RenewalOutcome::Round(outcome.clone()), now);
            self.repair(&session, &signer, hold, outcome)
        });
        join_all(repairs.collect::<Vec<_>>()).await;
    }

    /// Sets the key again on members that lost it.
    ///
    /// The key lives for the rest of the validity that the last round earned, and is set only soon after that round. A repair is never a vote.
    async fn repair(&self, session: &QuorumSession, signer: &ValueSigner, hold: &Hold, outcome: Extend) {
        if self.leadership.borrow().is_none() {
            return;
        }
        let Extend::Renewed { started, valid_until, missing, others, .. } = outcome else { return };
        if !others.is_empty() && hold.published {
            self.release_orphan(session, signer, hold, &others).await;
        }
        if missing.is_empty() {
            return;
        }
        let redlock = session.redlock();
        let Some(not_after) = repair_until(started, hold.terms.ttl, redlock.settings().node_timeout) else { return };
        let (value, times) = (signer.value(&hold.terms.uid, &hold.terms.nonce), (valid_until, not_after));
        let repaired = redlock.repair(&session.electorate(), &hold.terms.key, &value, times, &missing).await;
        tracing::info!(lock = %hold.terms.lock, members = ?repaired, "key set again on members that had lost it");
    }

    /// Releases the value that a dead leader left on a minority, which would exclude this hold there.
    ///
    /// The next renewal finds the key missing there and repairs it.
    ///
    /// The caches can be older than the answers of the members, and the value can be a later grant that is published. This therefore reads
    /// the API server first. If it still names this hold, the value belongs to a grant that was decided on an earlier version of the
    /// object. That grant cannot be published.
    async fn release_orphan(&self, session: &QuorumSession, signer: &ValueSigner, hold: &Hold, others: &[Occupant]) {
        let Some(lock) = self.context.locks.get(&hold.terms.lock) else { return };
        let peers = self.context.locks.under(&keys::key(&lock.key()));
        let orphan = orphans::of(&lock, signer, others).or_else(|| orphans::of_finished(&peers, signer, others));
        if let Some(orphan) = orphan
            && is_named(&self.context.client, &lock, hold.terms.nonce).await
        {
            session.redlock().release(&session.electorate(), &hold.terms.key, &orphan).await;
            tracing::info!(lock = %hold.terms.lock, "released a grant that no status names");
        }
    }
}

/// Whether the API server itself still names the hold with this nonce.
async fn is_named(client: &Client, lock: &DistributedLock, nonce: Nonce) -> bool {
    let locks: Api<DistributedLock> = Api::namespaced(client.clone(), &lock.namespace().unwrap_or_default());
    let read = request(locks.get_opt(&lock.name_any())).await;
    let read = read.ok().flatten().filter(|read| read.uid() == lock.uid());
    read.is_some_and(|read| orphans::holder_nonce(&read) == Some(nonce))
}

fn outcome_name(outcome: &Extend) -> &'static str {
    match outcome {
        Extend::Renewed { votes, .. } if votes.yes < votes.of => "incomplete",
        Extend::Renewed { .. } => "renewed",
        Extend::Refused { .. } => "refused",
        Extend::NoQuorum { .. } => "no_quorum",
        Extend::TooLate => "too_late",
    }
}

#[cfg(test)]
mod tests;
