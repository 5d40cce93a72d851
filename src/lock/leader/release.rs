//! Ends a hold: first the label, then the status without a holder, then the key.
//!
//! The leader deletes a key only after a release by the holder, after its proven death, or after a majority refused the hold. Before that
//! the API server must have confirmed that no status names the holder. Every other end is sealed and runs out, and the members confirm it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::events::EventType;
use kube::{Api, Client, ResourceExt};

use super::job_sync::{self, Stop, Stopped};
use super::labels;
use super::leader_context::LeaderContext;
use super::lock_store::LockStore;
use super::member_access::MemberAccess;
use super::progress::{AFTER_REFUSED_END, Error, Progress, Stepped};
use crate::api::conditions::HeldReason;
use crate::api::requests::{RequestError, request, unless_gone};
use crate::api::{DistributedLock, MilliTime};
use crate::lock::model::delay::end_of_delay;
use crate::lock::model::end::{Doubt, End, Phase};
use crate::lock::model::events::LockEvent;
use crate::lock::model::hold_record::HoldRecord;
use crate::lock::model::status::{Draft, full_name};
use crate::lock::model::{orphans, queue, verdict};
use crate::lock::replica::access::{self, Access};
use crate::lock::replica::{holder, location};
use crate::redlock::Occupant;
use crate::runtime::reconciles::Action;

/// The object after a write.
type Written = Result<Arc<DistributedLock>, Error>;

/// Advances the end of a hold to a phase.
///
/// A phase is one write of the status, and the changes that come before and after it.
pub(super) async fn advance(leader: &LeaderContext, lock: &DistributedLock, phase: &Phase) -> Stepped {
    let LeaderContext { store, members, peers, .. } = leader;
    let other_end = match phase {
        // The policy on Leases names a pod and no container. The next container of the pod can write the Lease until the validity passes.
        Phase::Freed(End::Terminated) if !verdict::has_idle_lease(lock, store.context.api_now()) => {
            let since = holder::successor_since(&leader.context, lock);
            match leader.leases.close(store, lock, since).await? {
                // The validity can pass before another writer of the Lease has left it.
                Some(left) if lock.ending().is_some() => {
                    return Ok(Progress::Done(Action::requeue(left.min(AFTER_REFUSED_END))));
                }
                left => left.map(|_left| End::InDoubt { doubt: Doubt::NextContainer }),
            }
        }
        Phase::Freed(end) | Phase::RanOut(end) => doubt_about_deletion(&store.context.client, lock, end).await?,
        _ => None,
    };
    let phase = other_end.map_or_else(|| phase.clone(), Phase::Ending);
    let draft = || Draft::of(lock, store.context.api_now());
    let newer = match &phase {
        Phase::Stopping(end) => {
            // The hold is renewed until the pods of the Job have ended. A refusal does not stop this phase. Each visit tries again while the Job
            // is not suspended, and the next status has the refusal.
            job_sync::try_to_stop(&store.context.client, lock, Stop::Any).await?;
            store.replace_status(lock, draft().stopping(end).finish()).await?
        }
        Phase::Ending(end) => run_out(store, members, lock, end).await?,
        Phase::Unconfirmed(_) => {
            // No majority has confirmed the loss. The status still names the hold, so that its value is no orphan.
            job_sync::stop(store, lock, Stop::Any).await?;
            store.replace_status(lock, draft().unconfirmed().finish()).await?
        }
        Phase::Freed(_) | Phase::RanOut(_) => free(store, members, lock, &phase).await?,
    };
    announce(store, &newer, &phase);
    if !matches!(phase, Phase::Stopping(_) | Phase::Ending(_)) {
        // The next lock on the key can try now.
        peers.request_reconcile_of_other_locks(&newer);
    }
    Ok(Progress::Next(newer))
}

/// Starts to let a hold run out.
///
/// Every replica stops renewing when it reads the status. The seal stops those that do not.
async fn run_out(store: &LockStore, members: &MemberAccess, lock: &DistributedLock, end: &End) -> Written {
    // The Job is suspended as early as possible, because its pods need time to end.
    job_sync::stop(store, lock, Stop::Any).await?;
    let record = HoldRecord::of(lock);
    let session = record.as_ref().and_then(|record| location::session(&members.sessions, &record.quorum));
    let mut draft = Draft::of(lock, store.context.api_now());
    if let Some(record) = &record {
        draft = draft.recorded(record, session.as_ref().and_then(|session| session.rejoin_delay()));
    }
    let mut last = None;
    if let (Some(hold), Some(clock)) = (members.holds.of(lock), store.context.api_clock()) {
        let now = members.now();
        // The published validity can be older than the last renewal. With Transitions it is that of the grant.
        draft = draft.renewed(&hold, clock, now);
        // If this replica never renewed the hold, another one can have renewed it until now.
        let valid_until = hold.last_majority_at.map_or(now + hold.terms.ttl, |_| hold.valid_until);
        last = MilliTime::from_millis(clock.latest(valid_until).ceil().0);
    }
    let status = draft.finish();
    let max_ttl_in_force = session.map(|session| session.max_ttl_in_force());
    let until = status.valid_until.max(last).and_then(|until| end_of_delay(lock, until, max_ttl_in_force));
    let status = Draft::from_status(lock, status, store.context.api_now()).ending(end, until).finish();
    let ending = store.replace_status(lock, status).await?;
    // The hold is dropped after the write, because another attempt needs its last validity.
    members.holds.forget(&lock.uid().unwrap_or_default());
    Ok(ending)
}

/// Ends the hold now.
///
/// The holder released the lock, its container has terminated, a majority of the members refused the hold, or it has run out. This clears the
/// label, removes the holder from the status, and then deletes the key of a freed lock.
async fn free(store: &LockStore, members: &MemberAccess, lock: &DistributedLock, phase: &Phase) -> Written {
    let (context, reason) = (&store.context, phase.end().reason());
    let key = members.hold_key(lock).filter(|_| matches!(phase, Phase::Freed(_)));
    if lock.spec.election.is_some() {
        labels::clear(&context.client, &labels::name_of(lock), None).await?;
    }
    let which = if *phase.end() == End::Released { Stop::Unstarted } else { Stop::Any };
    let job = job_sync::stop(store, lock, which).await?;
    let api_now = context.api_now();
    // This is the earliest reading of the clock, and the next holder's `acquiredAt` is the latest one, so the two holds do not overlap.
    let ends = context.api_clock().map_or(api_now, |clock| clock.earliest(members.now()).floor());
    let ended = Draft::of(lock, api_now).ended(phase.end(), ends);
    // A claim ends once. A suspended claim queues again, and so does one whose Job must run again.
    let runs_again = job == Stopped::Suspended && verdict::is_to_run_again(lock, reason);
    let finishes = lock.spec.claim.is_some() && reason != HeldReason::Suspended && !runs_again;
    let status = if finishes { ended.finished() } else { ended }.finish();
    let freed = store.replace_status(lock, status).await?;
    members.holds.forget(&lock.uid().unwrap_or_default());
    context.metrics.count(&context.metrics.ended, reason.as_str());
    if let Some(key) = key {
        key.delete().await;
    }
    Ok(freed)
}

/// Reports a phase of the end of a hold in the log and by an Event.
fn announce(store: &LockStore, lock: &Arc<DistributedLock>, phase: &Phase) {
    let Some(event) = LockEvent::of_end(phase) else { return };
    let (name, reason) = (full_name(lock), phase.end().reason());
    match event.kind() {
        EventType::Warning => tracing::warn!(lock = name, %reason, %event, "the hold of this lock ends"),
        EventType::Normal => tracing::info!(lock = name, %reason, %event, "the hold of this lock ends"),
    }
    store.event(lock, event);
}

/// Checks whether the deletion of a claim is a release by its holder.
///
/// The deletion of a namespace deletes its claims, and the caches can be late. A deleted key cannot be restored, so this reads the
/// namespace from the API server.
async fn doubt_about_deletion(client: &Client, lock: &DistributedLock, end: &End) -> Result<Option<End>, RequestError> {
    if *end != End::Deleted {
        return Ok(None);
    }
    let namespace = lock.namespace().unwrap_or_default();
    let object = request(Api::<Namespace>::all(client.clone()).get_opt(&namespace)).await?;
    Ok(object.is_none_or(|object| verdict::is_ending(&object)).then_some(End::NamespaceEnds))
}

/// Removes the finalizer of a deleted lock whose status names no holder.
///
/// Before that it deletes what an earlier leader has left on its key.
pub(super) async fn remove_finalizer(leader: &LeaderContext, lock: &DistributedLock) -> Stepped {
    if let Ok(access) = access::of(&leader.context, lock) {
        release_orphans(&leader.members, lock, &access).await;
    }
    unless_gone(leader.store.remove_finalizer(lock).await)?;
    leader.forget(lock);
    // Other deletions are forgotten by the task that adopts holds, in the order of the watch.
    leader.members.holds.forget(&lock.uid().unwrap_or_default());
    Ok(Progress::Done(Action::await_change()))
}

/// Deletes what an earlier leader has left of a deleted lock without a holder.
///
/// After the object is deleted, the value is indistinguishable from a foreign one. If the members do not answer, the value expires, because the
/// deletion does not wait for them.
async fn release_orphans(members: &MemberAccess, lock: &DistributedLock, access: &Access) {
    let Some((session, signer)) = location::signed(&members.sessions, &access.quorum) else { return };
    let electorate = session.electorate();
    for slot in queue::free_slots(lock, &[]) {
        let key = access.slot_key(slot);
        let states = session.redlock().inspect(&electorate, &key).await;
        let occupants: Vec<_> =
            states.into_iter().filter_map(|(member, state)| Some(Occupant { member, holder: state.ok()? })).collect();
        if let Some(value) = orphans::of(lock, &signer, &occupants) {
            session.redlock().release(&electorate, &key, &value).await;
            tracing::info!(lock = %full_name(lock), "released a grant that no status names");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::api::test_util::parsed;
    use crate::lock::leader::tests;
    use crate::runtime::fake_api;
    use crate::runtime::settings::Settings;

    /// Only a Job that released its lock continues without it. One that a user suspended and resumed does not.
    #[tokio::test]
    async fn a_job_that_was_resumed_while_its_hold_ended_is_suspended() {
        for (end, is_suspended) in
            [(End::recorded("Released", Some(&"a user suspended the Job".to_owned())), true), (End::Released, false)]
        {
            let patches = Arc::new(Mutex::new(Vec::new()));
            let recorded = patches.clone();
            let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns", "uid": "j-1", "resourceVersion": "1"},
                "spec": {"suspend": false, "template": {"spec": {"containers": []}}}});
            let context = fake_api::context(move |request| {
                let mut job = job.clone();
                if request.method() == "PATCH" {
                    recorded.lock().push(request.uri().path().to_owned());
                    job["spec"]["suspend"] = json!(true);
                }
                (200, job)
            });
            let leader = tests::leader(context);
            let ending =
                json!({"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:10Z", "reason": "Released"});
            let holder = json!({"identity": "j", "jobName": "j", "jobUID": "j-1"});
            let lock = parsed(json!({"metadata": {"name": "j-1", "namespace": "ns", "uid": "u"},
                "spec": {"key": "k", "claim": {"jobName": "j", "jobUID": "j-1"}},
                "status": {"holder": holder, "fencingToken": 7, "ending": ending}}));
            let _written = free(&leader.store, &leader.members, &lock, &Phase::Freed(end.clone())).await;
            assert_eq!(
                patches.lock().iter().any(|path| path.ends_with("/jobs/j")),
                is_suspended,
                "{end:?}: {:?}",
                patches.lock()
            );
        }
    }

    /// A hold does not wait for the Lease after its validity, and no event reports that moment.
    #[tokio::test]
    async fn an_ending_election_is_visited_before_a_long_lease_ends() {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "app", "namespace": "ns"},
            "spec": {"holderIdentity": "x", "leaseDurationSeconds": 137, "renewTime": "2026-01-01T00:00:00.000000Z"}});
        let settings = Settings { lease_gate_leaves_out: Some([].into()), ..Settings::default() };
        let mut context = fake_api::context(move |_request| (200, lease.clone()));
        context.replica.settings = Arc::new(settings);
        let leader = tests::leader(context);
        let ending = json!({"since": "2026-01-01T00:00:00Z", "until": "2200-01-01T00:00:00Z", "reason": "HolderGone"});
        let holder = json!({"identity": "app-0", "podName": "app-0", "podUID": "p"});
        let lock = parsed(json!({"metadata": {"name": "app", "namespace": "ns", "uid": "u"},
            "spec": {"election": {"selector": {"matchLabels": {"app": "app"}}, "lease": {"name": "app"}}},
            "status": {"holder": holder, "validUntil": "2200-01-01T00:00:00Z", "ending": ending}}));
        let Ok(Progress::Done(action)) = advance(&leader, &lock, &Phase::Freed(End::Terminated)).await else {
            panic!("the Lease is not closed")
        };
        assert_eq!(action, Action::requeue(Duration::from_secs(1)));
    }
}
