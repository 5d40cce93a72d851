//! Ending a hold: label off, then the status without a holder, then the key.
//!
//! A key is deleted only on the holder's word, on its known death, or after a majority refused the hold, and only after the API
//! server confirmed that no status names its holder. Every other end is sealed and runs out: the members say when.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, runtime::controller::Action};

use super::{
    labels,
    locks::{Error, Locks, Progress},
};
use crate::{
    api::{
        BREAK_BY_ANNOTATION, DistributedLock, HeldQuorum, LetGo, MilliTime, RELEASE_ANNOTATION, conditions::HeldReason,
    },
    lock::{
        model::{
            decide::{Freed, Pause, Sealing, seal_retry},
            events::LockEvent,
            orphans::{self, EVERY_ATTEMPT, holder_nonce},
            queue,
            said::Said,
            status::{Draft, full_name},
            verdict::{self, Verdict},
        },
        replica::{access, location, writes::request},
    },
    quorum::session::QuorumSession,
    redlock::{AcquireRequest, LockKey, LockValue, Nonce, Seal, Seen, ValueSigner},
};

/// Of a user's name so much is written down.
const LONGEST_AUTHOR: usize = 128;
/// Between two questions about a hold that was let go.
const LET_GO_RETRY: Duration = Duration::from_secs(1);

impl Locks {
    /// The hold ends now: by the holder's word, because its container has terminated, or because it has run out.
    pub(super) async fn free(&self, lock: &Arc<DistributedLock>, freed: Freed) -> Result<Progress, Error> {
        let Freed { reason, why, leave_seal } = freed;
        if let Some(doubt) = self.doubt_about_deletion(lock, reason).await? {
            return self.run_out(lock, reason, &doubt).await;
        }
        let why = attributed(lock, reason, why);
        let reach = self.reach_held(lock);
        let freed = self.unpublish(lock, reason, &why, None).await?;
        if let Some(reach) = reach.filter(|_| !leave_seal) {
            reach.delete().await;
        }
        tracing::info!(lock = %full_name(lock), %reason, why, "lock released");
        let event = if reason == HeldReason::Broken { LockEvent::Broken { why } } else { LockEvent::Released { why } };
        self.event(&freed, event);
        self.nudge_others(&freed);
        Ok(Progress::Next(freed))
    }

    /// A majority of the members refused the hold: its key is gone there, and what a minority still has keeps nobody's promise.
    pub(super) async fn lose(&self, lock: &Arc<DistributedLock>, why: &str) -> Result<Progress, Error> {
        let reach = self.reach_held(lock);
        let freed = self.unpublish(lock, HeldReason::Expired, why, None).await?;
        if let Some(reach) = reach {
            reach.delete().await;
        }
        self.say_lost(&freed, why);
        self.nudge_others(&freed);
        Ok(Progress::Next(freed))
    }

    /// Starts to let a hold run out. Every replica stops renewing when it sees the status; the seal stops those that do not.
    pub(super) async fn run_out(
        &self,
        lock: &Arc<DistributedLock>,
        reason: HeldReason,
        why: &str,
    ) -> Result<Progress, Error> {
        let uid = lock.uid().unwrap_or_default();
        let now = self.context.clock.boottime();
        let hold = self.holds.get(&uid);
        let record = location::of(&self.context, lock);
        let session = record.as_ref().and_then(|record| location::session(&self.sessions, &record.quorum));
        let quorum_now = session.as_ref().and_then(|session| session.quorum_time(now));
        let why = &attributed(lock, reason, why.to_owned());
        let draft = Draft::of(lock, self.context.api_now());
        let draft = match &record {
            Some(record) => draft.recorded(record, session.and_then(|session| session.rejoin_delay())),
            None => draft,
        };
        // What is published may be older than the last renewal: with Transitions it is that of the grant, and long past.
        let draft = match (&hold, quorum_now) {
            (Some(hold), Some(quorum_now)) => draft.renewed(hold, quorum_now),
            _ => draft,
        };
        let status = draft.finish();
        let until = status.valid_until.and_then(|until| self.end_of_delay(lock, reason, until));
        let status = Draft::from_status(lock, status, self.context.api_now()).ending(reason, why, until).finish();
        let ending = self.written.replace_status(&self.context.client, lock, status).await?;
        // Not before the write: if it fails, the next attempt has to know the last validity, too.
        self.holds.forget(&uid);
        if reason == HeldReason::Expired {
            self.say_lost(&ending, why);
        } else {
            tracing::info!(lock = %full_name(lock), %reason, why, "lock is no longer renewed and runs out");
            let (why, broken) = (why.clone(), reason == HeldReason::Broken);
            self.event(&ending, if broken { LockEvent::Breaking { why } } else { LockEvent::Ending { why } });
        }
        Ok(Progress::Next(ending))
    }

    /// After a loss nobody gets the lock before `lockDelay` has passed, too. In other ends the seal carries the delay.
    fn end_of_delay(&self, lock: &DistributedLock, reason: HeldReason, until: MilliTime) -> Option<MilliTime> {
        let delay = lock.spec.lock_delay.filter(|_| reason == HeldReason::Expired).unwrap_or_default().get();
        let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        MilliTime::from_millis(until.as_millis().saturating_add(delay))
    }

    fn say_lost(&self, lock: &Arc<DistributedLock>, why: &str) {
        tracing::warn!(lock = %full_name(lock), why, "lock lost");
        self.event(lock, LockEvent::Lost { why: why.to_owned() });
    }

    /// Seals the keys of a hold that runs out.
    pub(super) async fn seal(&self, lock: &Arc<DistributedLock>) -> Result<Progress, Error> {
        let uid = lock.uid().unwrap_or_default();
        let Some(nonce) = holder_nonce(lock) else { return Ok(self.seal_unnamed(lock).await) };
        let Some(reach) = self.reach_held(lock) else { return Ok(Progress::Done(Action::requeue(seal_retry()))) };
        let delay = lock.spec.lock_delay.map_or(Duration::ZERO, |delay| delay.get());
        match reach.seal(delay).await {
            Sealing::Unconfirmed => Ok(Progress::Done(Action::requeue(seal_retry()))),
            sealing => {
                if sealing == Sealing::Gone {
                    self.plant_delay(lock, &reach).await;
                }
                self.mark_sealed(&uid, Some(nonce), sealing);
                Ok(Progress::Next(lock.clone()))
            }
        }
    }

    /// The status says that the lock is held, and not by which attempt: whatever attempt of it has the key is sealed.
    async fn seal_unnamed(&self, lock: &Arc<DistributedLock>) -> Progress {
        let uid = lock.uid().unwrap_or_default();
        let sealing = match location::of(&self.context, lock) {
            Some(record) => self.seal_every(&uid, &record.quorum, &record.key).await,
            None => Sealing::Unconfirmed,
        };
        if sealing == Sealing::Unconfirmed {
            return Progress::Done(Action::requeue(seal_retry()));
        }
        self.mark_sealed(&uid, None, sealing);
        Progress::Next(lock.clone())
    }

    /// The key of a lost hold has run out: what is left of `lockDelay` binds clients outside the operator only if a seal is set
    /// again. Where nobody answers, or somebody else has the key, there is nothing to set.
    async fn plant_delay(&self, lock: &DistributedLock, reach: &Reach) {
        let status = lock.status.as_ref();
        let ending = status.and_then(|status| status.ending.as_ref());
        let lost =
            ending.filter(|ending| ending.reason == HeldReason::Expired.as_str() && lock.spec.lock_delay.is_some());
        let quorum_now = reach.session.quorum_time(self.context.clock.boottime());
        let (Some(until), Some(now)) = (lost.and_then(|ending| ending.until), quorum_now) else { return };
        let left = u64::try_from(until.as_millis().saturating_sub(now.0)).unwrap_or(0);
        let ttl = Duration::from_millis(left).min(reach.session.max_ttl_in_force());
        if !ttl.is_zero() {
            let (key, value, hint) = (reach.key.clone(), reach.sealed(), reach.session.hint());
            let request = AcquireRequest { key, value, ttl, hint };
            let _best_effort = reach.session.redlock().acquire(&reach.session.electorate(), request).await;
        }
    }

    /// No majority of the members has confirmed the end for so long that none can remember the hold.
    pub(super) async fn let_go_of(
        &self,
        lock: &Arc<DistributedLock>,
        reason: HeldReason,
        why: &str,
    ) -> Result<Progress, Error> {
        let nonce = holder_nonce(lock).map_or_else(|| EVERY_ATTEMPT.to_owned(), |nonce| nonce.to_string());
        let let_go = location::of(&self.context, lock).map(|record| LetGo {
            nonce,
            quorum: record.quorum,
            key: record.key.as_str().to_owned(),
        });
        let event = LockEvent::LetGo { why: why.to_owned() };
        let why = event.to_string();
        let freed = self.unpublish(lock, reason, &why, let_go).await?;
        tracing::warn!(lock = %full_name(lock), %reason, why, "lock let go, its keys are left to run out");
        self.event(&freed, event);
        self.nudge_others(&freed);
        Ok(Progress::Next(freed))
    }

    /// Asks about a hold that was let go.
    pub(super) async fn seal_let_go(&self, lock: &Arc<DistributedLock>) -> Result<Progress, Error> {
        let uid = lock.uid().unwrap_or_default();
        let let_go = lock.status.as_ref().and_then(|status| status.let_go.as_ref());
        let nonce: Option<Nonce> = let_go.and_then(|let_go| let_go.nonce.parse().ok());
        let sealing = match let_go {
            Some(let_go) => self.seal_attempt(&uid, &let_go.quorum, LockKey::new(let_go.key.clone()), nonce).await,
            None => Sealing::Unconfirmed,
        };
        match sealing {
            Sealing::RunsOut(_) | Sealing::Gone => self.mark_sealed(&uid, nonce, sealing),
            Sealing::Unconfirmed => {
                let until = self.context.clock.boottime() + LET_GO_RETRY;
                self.pause(&uid, Some(Pause::new(until, &Said::NoWord)));
            }
        }
        Ok(Progress::Next(lock.clone()))
    }

    /// Seals this attempt, or every one if nobody knows which one it was.
    async fn seal_attempt(&self, uid: &str, quorum: &HeldQuorum, key: LockKey, nonce: Option<Nonce>) -> Sealing {
        let Some(nonce) = nonce else { return self.seal_every(uid, quorum, &key).await };
        match self.reach(uid, quorum, key, nonce) {
            Some(reach) => reach.seal(Duration::ZERO).await,
            None => Sealing::Unconfirmed,
        }
    }

    /// A majority has told the end of a hold that was let go.
    pub(super) async fn forget_let_go(&self, lock: &Arc<DistributedLock>) -> Result<Progress, Error> {
        let status = Draft::of(lock, self.context.api_now()).let_go(None).finish();
        let written = self.written.replace_status(&self.context.client, lock, status).await?;
        self.nudge_others(&written);
        Ok(Progress::Next(written))
    }

    /// Deleting a claim is its holder's word only if nothing else deleted it. The caches may not show that yet, and a
    /// key that was deleted cannot be put back: the API server itself is asked.
    async fn doubt_about_deletion(&self, lock: &DistributedLock, reason: HeldReason) -> Result<Option<String>, Error> {
        let by_word = lock.annotations().contains_key(RELEASE_ANNOTATION);
        let is_ending = lock.status.as_ref().is_some_and(|status| status.ending.is_some());
        let deleted = lock.metadata.deletion_timestamp.is_some() && verdict::is_free_identity(lock);
        if reason != HeldReason::Released || by_word || is_ending || !deleted {
            return Ok(None);
        }
        let (client, namespace) = (&self.context.client, lock.namespace().unwrap_or_default());
        let object = request(Api::<Namespace>::all(client.clone()).get_opt(&namespace)).await?;
        if object.is_none_or(|object| verdict::is_ending(&object))
            && let Verdict::LetExpire(_, why) = verdict::namespace_ends()
        {
            return Ok(Some(why));
        }
        Ok(None)
    }

    /// Takes the label off, then the holder out of the status. When this returns, no status names the holder.
    async fn unpublish(
        &self,
        lock: &Arc<DistributedLock>,
        reason: HeldReason,
        why: &str,
        let_go: Option<LetGo>,
    ) -> Result<Arc<DistributedLock>, Error> {
        if lock.spec.election.is_some() {
            labels::clear(&self.context.client, &lock.namespace().unwrap_or_default(), &lock.name_any(), None).await?;
        }
        // One clock for both ends of a hold: with two of them its history would overlap that of the next holder.
        let session =
            location::of(&self.context, lock).and_then(|held| location::session(&self.sessions, &held.quorum));
        let quorum_now = session.and_then(|session| session.quorum_time(self.context.clock.boottime()));
        let api_now = self.context.api_now();
        let ended = Draft::of(lock, api_now).ended(reason, why, quorum_now.unwrap_or(api_now)).let_go(let_go);
        // A claim ends once. Only a suspended one queues again when it is resumed.
        let finishes = lock.spec.claim.is_some() && reason != HeldReason::Suspended;
        let status = if finishes { ended.finished(reason, why) } else { ended }.finish();
        let written = self.written.replace_status(&self.context.client, lock, status).await?;
        self.holds.forget(&lock.uid().unwrap_or_default());
        self.context.metrics.count(&self.context.metrics.ended, reason.as_str());
        Ok(written)
    }

    /// Deletes what a leader that died on its way left of a lock that is being deleted and has no holder. Once the object is gone,
    /// nobody could tell the value from a foreign one. Without Redis it runs out: no object waits for members.
    pub(super) async fn release_orphans(&self, lock: &DistributedLock) {
        let Ok(access) = access::of(&self.context, lock) else { return };
        let session = location::session(&self.sessions, &access.quorum);
        let Some((session, signer)) = session.and_then(|session| Some((session.clone(), session.signer()?))) else {
            return;
        };
        let electorate = session.electorate();
        for slot in queue::free_slots(lock, &[]) {
            let key = access.slot_key(slot);
            let states = session.redlock().inspect(&electorate, &key).await;
            let seen: Vec<_> =
                states.into_iter().filter_map(|(member, state)| Some(Seen { member, holder: state.ok()? })).collect();
            if let Some(value) = orphans::of(lock, &signer, &seen) {
                session.redlock().release(&electorate, &key, &value).await;
                tracing::info!(lock = %full_name(lock), "released a grant that no status names");
            }
        }
    }

    /// The way to the keys of the hold that the status names.
    fn reach_held(&self, lock: &DistributedLock) -> Option<Reach> {
        let record = location::of(&self.context, lock)?;
        self.reach(&lock.uid().unwrap_or_default(), &record.quorum, record.key, holder_nonce(lock)?)
    }

    pub(super) fn reach(&self, uid: &str, quorum: &HeldQuorum, key: LockKey, nonce: Nonce) -> Option<Reach> {
        let session = location::session(&self.sessions, quorum)?;
        let signer = session.signer()?;
        let value = signer.value(uid, &nonce);
        Some(Reach { session, key, signer, value })
    }
}

/// Adds who broke the lock: the user name that the chart's admission policy has compared with that of the request. A client chooses its
/// field manager freely, so that says nothing.
fn attributed(lock: &DistributedLock, reason: HeldReason, why: String) -> String {
    let ending = lock.status.as_ref().and_then(|status| status.ending.as_ref()?.message.as_deref());
    if reason != HeldReason::Broken || ending.is_some_and(|ending| why.starts_with(ending)) {
        return why;
    }
    let author = lock.annotations().get(BREAK_BY_ANNOTATION).map(|author| author.chars().take(LONGEST_AUTHOR));
    author.map_or(why.clone(), |author| format!("{why} (by {})", author.collect::<String>()))
}

/// What it takes to end a hold on the members.
pub(super) struct Reach {
    pub(super) session: Arc<QuorumSession>,
    pub(super) key: LockKey,
    pub(super) signer: ValueSigner,
    pub(super) value: LockValue,
}

impl Reach {
    fn sealed(&self) -> LockValue {
        self.signer.sealed(&self.value)
    }

    pub(super) async fn seal(&self, delay: Duration) -> Sealing {
        let (session, sealed) = (&self.session, self.sealed());
        match session.redlock().seal(&session.electorate(), &self.key, &self.value, &sealed, delay).await {
            Seal::Sealed { until, .. } => Sealing::RunsOut(until),
            Seal::Gone => Sealing::Gone,
            Seal::NoQuorum { .. } => Sealing::Unconfirmed,
        }
    }

    /// Deletes the value, and its seal.
    async fn delete(&self) {
        let (electorate, sealed) = (self.session.electorate(), self.sealed());
        let redlock = self.session.redlock();
        tokio::join!(
            redlock.release(&electorate, &self.key, &self.value),
            redlock.release(&electorate, &self.key, &sealed)
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_broke_a_lock_is_who_the_admission_policy_let_say_so() {
        let lock = |annotations: serde_json::Value, status: serde_json::Value| -> DistributedLock {
            serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "a", "annotations": annotations,
                    "managedFields": [{"manager": "somebody-else", "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:metadata": {"f:annotations": {"f:redlock-operator.io/break": {}}}}}]},
                "spec": {"key": "k", "claim": {"identity": "a"}}, "status": status}))
            .unwrap()
        };
        let none = json!({"transitions": 1});
        let by_alice = lock(json!({"redlock-operator.io/break-by": "alice"}), none.clone());
        let said = |lock, reason| attributed(lock, reason, "Broken: it hangs".into());
        assert_eq!(said(&by_alice, HeldReason::Broken), "Broken: it hangs (by alice)");
        assert_eq!(said(&by_alice, HeldReason::HolderGone), "Broken: it hangs", "another end is not her doing");
        assert_eq!(said(&lock(json!({}), none), HeldReason::Broken), "Broken: it hangs");
        let ending = json!({"transitions": 1, "ending": {"since": "2026-01-01T00:00:00Z", "reason": "Broken",
            "message": "Broken: it hangs (by alice)"}});
        let again =
            attributed(&lock(json!({}), ending), HeldReason::Broken, "Broken: it hangs (by alice); over".into());
        assert_eq!(again, "Broken: it hangs (by alice); over");
    }
}
