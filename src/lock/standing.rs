//! Pure but for the caches it reads: may the holder named in a lock's status go on holding it?
//!
//! The leader asks before it keeps, frees or seals a hold; every replica asks before each renewal. A live holder is never
//! cut short: a lock is free at once only by the holder's own word or when its container is known to have terminated.
//! Everything else stops the renewal and lets the hold run out (docs/safety.md, "Death and doubt").

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::instance::{self, Instance};
use crate::{
    api::{BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, STEP_DOWN_ANNOTATION, conditions::HeldReason},
    operator::context::Context,
    time::UnixMillis,
};

/// The label that the Job controller puts on the pods of a Job.
const JOB_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";

/// What is to become of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is renewed.
    Good,
    /// It ends at once: the holder said so, or is known to have ended.
    Free(HeldReason, String),
    /// It is not renewed any more; it is sealed and runs out, or goes when the container has terminated.
    RunsOut(HeldReason, String),
}

/// What is known about the holder's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A holder with a free-text identity: nothing to look at.
    Unbound,
    /// A claim with a free-text identity that is owned by a Job or pod with a running container.
    OwnerRunning,
    /// A holder that is bound to a container instance.
    Bound(Instance),
}

/// Judges the hold in `lock.status` from the caches.
///
/// `unwell` says why the holder failed its own liveness check or heartbeat, if it did.
pub fn of(context: &Context, lock: &DistributedLock, unwell: Option<&str>) -> Standing {
    match judge(lock, &liveness(context, lock), context.clock.wall()) {
        Standing::Good => {
            unwell.map_or(Standing::Good, |why| Standing::RunsOut(HeldReason::HolderUnhealthy, why.into()))
        }
        other => other,
    }
}

/// Judges the hold in `lock.status` by everything but the holder's own answers. `now` is wall time, as `maxHold` and `minHold` are counted from a published time.
pub fn judge(lock: &DistributedLock, liveness: &Liveness, now: UnixMillis) -> Standing {
    let deleting = lock.metadata.deletion_timestamp.is_some();
    let free_identity = lock.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some());
    match liveness {
        // What minHold is for: a job that finished at once somewhere is not to run again elsewhere.
        Liveness::Bound(Instance::Terminated)
            if lock.spec.claim.is_some() && held_for_less_than_min_hold(lock, now) => {}
        Liveness::Bound(Instance::Terminated) => {
            return Standing::Free(HeldReason::HolderGone, "its container has terminated".into());
        }
        Liveness::OwnerRunning if deleting => return Standing::Good,
        _ if deleting && free_identity => {
            if held_for_less_than_min_hold(lock, now) {
                return Standing::Good;
            }
            return Standing::Free(HeldReason::Released, "the claim was deleted".into());
        }
        _ => {}
    }
    if let Some(reason) = annotation(lock, BREAK_FORCE_ANNOTATION) {
        return Standing::Free(HeldReason::Broken, format!("broken by force, exclusion was given up: {reason}"));
    }
    if let Some(ending) = lock.status.as_ref().and_then(|status| status.ending.as_ref()) {
        let reason = HeldReason::ALL.iter().find(|reason| reason.as_str() == ending.reason);
        let why = ending.message.clone().unwrap_or_default();
        return Standing::RunsOut(reason.copied().unwrap_or(HeldReason::Ending), why);
    }
    match liveness {
        Liveness::Bound(Instance::Doubt(why)) => Standing::RunsOut(HeldReason::HolderGone, why.clone()),
        _ if annotation(lock, BREAK_ANNOTATION).is_some() => {
            let reason = annotation(lock, BREAK_ANNOTATION).unwrap_or_default();
            Standing::RunsOut(HeldReason::Broken, format!("broken: {reason}"))
        }
        _ if annotation(lock, STEP_DOWN_ANNOTATION).is_some() => {
            Standing::RunsOut(HeldReason::SteppedDown, "asked to step down".into())
        }
        _ if deleting => Standing::RunsOut(HeldReason::Released, "the lock was deleted while its holder works".into()),
        _ if lock.spec.suspend => Standing::RunsOut(HeldReason::Suspended, "the lock was suspended".into()),
        _ if held_for_max_hold(lock, now) => Standing::RunsOut(HeldReason::MaxHoldReached, "maxHold is over".into()),
        _ => Standing::Good,
    }
}

fn annotation<'a>(lock: &'a DistributedLock, name: &str) -> Option<&'a str> {
    lock.annotations().get(name).map(String::as_str)
}

fn held_for_max_hold(lock: &DistributedLock, now: UnixMillis) -> bool {
    let Some(max_hold) = lock.spec.max_hold else { return false };
    held_for(lock, now).is_some_and(|held| held >= max_hold.get().as_millis())
}

fn held_for_less_than_min_hold(lock: &DistributedLock, now: UnixMillis) -> bool {
    let Some(min_hold) = lock.spec.min_hold else { return false };
    held_for(lock, now).is_some_and(|held| held < min_hold.get().as_millis())
}

/// Milliseconds since the lock was acquired.
fn held_for(lock: &DistributedLock, now: UnixMillis) -> Option<u128> {
    let acquired = lock.status.as_ref()?.acquired_at?.as_millis();
    u128::try_from(now.0.saturating_sub(acquired)).ok()
}

fn liveness(context: &Context, lock: &DistributedLock) -> Liveness {
    let Some(holder) = lock.status.as_ref().and_then(|status| status.holder.as_ref()) else { return Liveness::Unbound };
    let namespace = lock.namespace().unwrap_or_default();
    let (Some(pod_name), Some(pod_uid)) = (&holder.pod_name, &holder.pod_uid) else {
        return if owner_is_running(context, lock, &namespace) { Liveness::OwnerRunning } else { Liveness::Unbound };
    };
    let pod = context.pods.named(&namespace, pod_name);
    let departed = context.pods.departed(pod_uid);
    let node_is_lost = holder.node_name.as_deref().is_some_and(|node| context.node_watch.is_lost(node));
    Liveness::Bound(instance::judge(
        pod_uid,
        holder.container_id.as_deref(),
        pod.as_deref(),
        departed.as_deref(),
        node_is_lost,
    ))
}

/// Deleting a Job collects the claims that it owns at the same moment as its pods, which may work on through their grace
/// period: until then the claim counts as held.
fn owner_is_running(context: &Context, lock: &DistributedLock, namespace: &str) -> bool {
    let owners: Vec<_> = lock.owner_references().iter().filter(|o| o.kind == "Job" || o.kind == "Pod").collect();
    if owners.is_empty() || lock.metadata.deletion_timestamp.is_none() {
        return false;
    }
    let owned = |pod: &Pod| {
        owners.iter().any(|owner| {
            pod.metadata.uid.as_deref() == Some(owner.uid.as_str())
                || pod.labels().get(JOB_UID_LABEL).is_some_and(|uid| *uid == owner.uid)
        })
    };
    context
        .pods
        .all()
        .iter()
        .any(|pod| pod.namespace().as_deref() == Some(namespace) && owned(pod) && !instance::has_ended(pod, None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z

    fn lock(spec: serde_json::Value, deleting: bool) -> DistributedLock {
        let mut metadata = json!({"name": "l", "namespace": "ns", "uid": "u"});
        if deleting {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:50Z");
        }
        serde_json::from_value(json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": metadata, "spec": spec,
            "status": {"transitions": 1, "acquiredAt": "2026-01-01T00:00:00.000Z", "holder": {"identity": "a"}}
        }))
        .unwrap()
    }

    fn free_claim(extra: serde_json::Value) -> serde_json::Value {
        let mut spec = json!({"key": "k", "claim": {"identity": "a"}});
        for (name, value) in extra.as_object().unwrap() {
            spec[name] = value.clone();
        }
        spec
    }

    fn election() -> serde_json::Value {
        json!({"election": {"selector": {"matchLabels": {"app": "a"}}}})
    }

    fn reason(standing: &Standing) -> Option<HeldReason> {
        match standing {
            Standing::Good => None,
            Standing::Free(reason, _) | Standing::RunsOut(reason, _) => Some(*reason),
        }
    }

    #[test]
    fn deleting_a_claim_with_a_free_identity_is_its_holders_word() {
        let standing = judge(&lock(free_claim(json!({})), true), &Liveness::Unbound, NOW);
        assert!(matches!(standing, Standing::Free(HeldReason::Released, _)));
    }

    #[test]
    fn a_claim_is_not_given_up_before_min_hold() {
        let early = judge(&lock(free_claim(json!({"minHold": "2m"})), true), &Liveness::Unbound, NOW);
        assert_eq!(early, Standing::Good);
        let late = judge(&lock(free_claim(json!({"minHold": "30s"})), true), &Liveness::Unbound, NOW);
        assert!(matches!(late, Standing::Free(HeldReason::Released, _)));
    }

    #[test]
    fn a_claim_whose_container_finished_at_once_is_kept_for_min_hold_and_an_election_is_not() {
        let bound = Liveness::Bound(Instance::Terminated);
        let pod_claim = |min_hold: &str| json!({"key": "k", "claim": {"podName": "a"}, "minHold": min_hold});
        assert_eq!(judge(&lock(pod_claim("2m"), false), &bound, NOW), Standing::Good);
        assert!(matches!(judge(&lock(pod_claim("30s"), false), &bound, NOW), Standing::Free(..)));
        let mut election = lock(election(), false);
        election.spec.min_hold = Some(crate::api::GoDuration::from_secs(120));
        assert!(matches!(judge(&election, &bound, NOW), Standing::Free(..)));
    }

    #[test]
    fn deleting_an_election_does_not_cut_its_working_leader_short() {
        let standing = judge(&lock(election(), true), &Liveness::Bound(Instance::Running), NOW);
        assert!(matches!(standing, Standing::RunsOut(HeldReason::Released, _)));
    }

    #[test]
    fn a_terminated_container_frees_the_lock_whatever_else_is_going_on() {
        let bound = Liveness::Bound(Instance::Terminated);
        let mut ending = lock(election(), true);
        ending.spec.suspend = true;
        assert!(matches!(judge(&ending, &bound, NOW), Standing::Free(HeldReason::HolderGone, _)));
    }

    #[test]
    fn doubt_suspension_and_max_hold_let_the_hold_run_out() {
        let doubt = Liveness::Bound(Instance::Doubt("gone".into()));
        assert_eq!(reason(&judge(&lock(election(), false), &doubt, NOW)), Some(HeldReason::HolderGone));
        let suspended = judge(&lock(free_claim(json!({"suspend": true})), false), &Liveness::Unbound, NOW);
        assert!(matches!(suspended, Standing::RunsOut(HeldReason::Suspended, _)));
        let overdue = judge(&lock(free_claim(json!({"maxHold": "1m"})), false), &Liveness::Unbound, NOW);
        assert!(matches!(overdue, Standing::RunsOut(HeldReason::MaxHoldReached, _)));
        let in_time = judge(&lock(free_claim(json!({"maxHold": "61s"})), false), &Liveness::Unbound, NOW);
        assert_eq!(in_time, Standing::Good);
    }

    #[test]
    fn a_claim_that_a_running_job_owns_outlives_its_deletion() {
        let standing = judge(&lock(free_claim(json!({})), true), &Liveness::OwnerRunning, NOW);
        assert_eq!(standing, Standing::Good);
    }

    #[test]
    fn a_break_lets_the_hold_run_out_and_only_a_forced_one_cuts_it_short() {
        let annotated = |name: &str| {
            let mut lock = lock(election(), false);
            lock.annotations_mut().insert(name.into(), "stuck since noon".into());
            judge(&lock, &Liveness::Bound(Instance::Running), NOW)
        };
        assert!(
            matches!(annotated(BREAK_ANNOTATION), Standing::RunsOut(HeldReason::Broken, why) if why.contains("noon"))
        );
        assert!(
            matches!(annotated(BREAK_FORCE_ANNOTATION), Standing::Free(HeldReason::Broken, why) if why.contains("given up"))
        );
        assert_eq!(reason(&annotated(STEP_DOWN_ANNOTATION)), Some(HeldReason::SteppedDown));
    }

    #[test]
    fn a_hold_that_is_ending_stays_ending_after_its_cause_is_gone() {
        let mut lock = lock(election(), false);
        lock.status.as_mut().unwrap().ending = Some(crate::api::Ending {
            since: crate::api::MilliTime::from_millis(NOW.0).unwrap(),
            reason: "Suspended".into(),
            until: None,
            message: None,
        });
        let standing = judge(&lock, &Liveness::Bound(Instance::Running), NOW);
        assert_eq!(reason(&standing), Some(HeldReason::Suspended));
    }
}
