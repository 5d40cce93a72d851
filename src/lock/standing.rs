//! Pure but for the caches it reads: may the holder named in a lock's status go on holding it?
//!
//! The leader asks before it keeps, frees or seals a hold; every replica asks before each renewal. A live holder is never
//! cut short: a lock is free at once only by the holder's own word or when its container is known to have terminated.
//! Everything else stops the renewal and lets the hold run out (docs/safety.md, "Death and doubt").

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::instance::{self, Instance, Sight};
use crate::{
    api::{
        BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, Ending, RELEASE_ANNOTATION, STEP_DOWN_ANNOTATION,
        conditions::HeldReason,
    },
    runtime::{
        context::Context,
        keys::{self, JOB_UID_LABEL},
    },
    time::UnixMillis,
};

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
    /// A claim with a free-text identity that is being deleted, and is owned by a Job or a pod.
    Owned(Instance),
    /// A holder that is bound to a container instance.
    Bound(Instance),
}

/// Everything outside the lock object that its standing depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What is known about the holder's processes.
    pub liveness: Liveness,
    /// The lock's namespace is being deleted, and everything in it.
    pub namespace_ends: bool,
    /// The quorum's clock, if it is known: `maxHold` and `minHold` count from a time that the holder was given.
    pub quorum_now: Option<UnixMillis>,
}

/// Judges the hold in `lock.status` from the caches.
///
/// `unwell` says why the holder failed its own liveness check or heartbeat, if it did.
pub fn of(context: &Context, lock: &DistributedLock, quorum_now: Option<UnixMillis>, unwell: Option<&str>) -> Standing {
    let namespace = context.namespaces.cluster_named(&lock.namespace().unwrap_or_default());
    let evidence = Evidence {
        liveness: liveness(context, lock),
        namespace_ends: namespace.is_some_and(|namespace| is_ending(&namespace)),
        quorum_now,
    };
    match (judge(lock, &evidence), unwell) {
        (Standing::Good, Some(why)) if is_expected_to_be_well(lock, quorum_now) => {
            Standing::RunsOut(HeldReason::HolderUnhealthy, why.into())
        }
        (standing, _) => standing,
    }
}

/// Judges the hold in `lock.status` by everything but the holder's own answers.
pub fn judge(lock: &DistributedLock, evidence: &Evidence) -> Standing {
    if let Some(reason) = annotation(lock, BREAK_FORCE_ANNOTATION) {
        return Standing::Free(HeldReason::Broken, format!("broken by force, exclusion was given up: {reason}"));
    }
    if let Some(ending) = lock.status.as_ref().and_then(|status| status.ending.as_ref()) {
        return judge_ending(lock, evidence, ending);
    }
    if is_held_for_its_minimum(lock, evidence.quorum_now) {
        // What minHold is for: a job that finished at once somewhere is not to run again elsewhere.
        return if is_deleting(lock) && evidence.namespace_ends { namespace_ends() } else { Standing::Good };
    }
    if is_released(lock) {
        return released();
    }
    match &evidence.liveness {
        Liveness::Bound(Instance::Terminated) => terminated(),
        Liveness::Bound(Instance::Doubt(why)) => Standing::RunsOut(HeldReason::HolderGone, why.clone()),
        Liveness::Owned(Instance::Doubt(why)) => {
            Standing::RunsOut(HeldReason::Released, format!("the claim was deleted with its owner, and {why}"))
        }
        Liveness::Owned(Instance::Terminated) | Liveness::Unbound if is_deleting(lock) && is_free_identity(lock) => {
            deleted(lock, evidence)
        }
        _ => asked(lock, evidence),
    }
}

/// An end that has begun goes on, also when its cause is gone. Only known death or the holder's word make it quicker.
fn judge_ending(lock: &DistributedLock, evidence: &Evidence, ending: &Ending) -> Standing {
    if evidence.liveness == Liveness::Bound(Instance::Terminated) {
        return terminated();
    }
    if is_released(lock) {
        return released();
    }
    let reason = HeldReason::ALL.iter().find(|reason| reason.as_str() == ending.reason);
    let why = ending.message.clone().unwrap_or_default();
    Standing::RunsOut(reason.copied().unwrap_or(HeldReason::Ending), why)
}

/// Deleting a claim with a free identity is its holder's word, unless something else deletes what its holder may still use.
fn deleted(lock: &DistributedLock, evidence: &Evidence) -> Standing {
    if evidence.namespace_ends {
        return namespace_ends();
    }
    match lock.owner_references().iter().find(|owner| !is_watched_owner(owner)) {
        Some(owner) => {
            let why = format!("the claim has an owner ({} {}) whose processes nobody can tell", owner.kind, owner.name);
            Standing::RunsOut(HeldReason::Released, why)
        }
        None => Standing::Free(HeldReason::Released, "the claim was deleted".into()),
    }
}

/// What people ask for, and what the specification limits.
fn asked(lock: &DistributedLock, evidence: &Evidence) -> Standing {
    if let Some(reason) = annotation(lock, BREAK_ANNOTATION) {
        return Standing::RunsOut(HeldReason::Broken, format!("broken: {reason}"));
    }
    if annotation(lock, STEP_DOWN_ANNOTATION).is_some() {
        return Standing::RunsOut(HeldReason::SteppedDown, "asked to step down".into());
    }
    if is_deleting(lock) && !matches!(evidence.liveness, Liveness::Owned(Instance::Running)) {
        return Standing::RunsOut(HeldReason::Released, "the lock was deleted while its holder works".into());
    }
    if lock.spec.suspend {
        return Standing::RunsOut(HeldReason::Suspended, "the lock was suspended".into());
    }
    if has_reached_max_hold(lock, evidence.quorum_now) {
        return Standing::RunsOut(HeldReason::MaxHoldReached, "maxHold has passed".into());
    }
    Standing::Good
}

fn terminated() -> Standing {
    Standing::Free(HeldReason::HolderGone, "its container has terminated".into())
}

fn released() -> Standing {
    Standing::Free(HeldReason::Released, "its holder released it".into())
}

/// The namespace controller deletes claims and pods together, and pods may work through their grace period.
pub fn namespace_ends() -> Standing {
    Standing::RunsOut(HeldReason::Released, "its namespace is being deleted".into())
}

/// Whether everything in the namespace is being deleted.
pub fn is_ending(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_some() || phase == Some("Terminating")
}

/// The holder's word: the annotation with the token of this very hold.
fn is_released(lock: &DistributedLock) -> bool {
    let token = lock.status.as_ref().and_then(|status| status.fencing_token);
    let word = annotation(lock, RELEASE_ANNOTATION).and_then(|word| word.trim().parse().ok());
    word.is_some() && word == token
}

fn is_deleting(lock: &DistributedLock) -> bool {
    lock.metadata.deletion_timestamp.is_some()
}

/// A claim whose holder is a text, not a container.
pub fn is_free_identity(lock: &DistributedLock) -> bool {
    lock.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some())
}

fn annotation<'a>(lock: &'a DistributedLock, name: &str) -> Option<&'a str> {
    lock.annotations().get(name).map(String::as_str)
}

fn has_reached_max_hold(lock: &DistributedLock, quorum_now: Option<UnixMillis>) -> bool {
    let Some(max_hold) = lock.spec.max_hold else { return false };
    held_for(lock, quorum_now).is_some_and(|held| held >= max_hold.get().as_millis())
}

/// Whether `minHold` still protects the hold of a claim.
fn is_held_for_its_minimum(lock: &DistributedLock, quorum_now: Option<UnixMillis>) -> bool {
    let Some(min_hold) = lock.spec.min_hold.filter(|_| lock.spec.claim.is_some()) else { return false };
    // Without a clock nobody knows; late is what the field asks for.
    held_for(lock, quorum_now).is_none_or(|held| held < min_hold.get().as_millis())
}

/// Whether it matters what the holder answers: not before `minHold` is over, nor once it has asked to be released.
pub fn is_expected_to_be_well(lock: &DistributedLock, quorum_now: Option<UnixMillis>) -> bool {
    !is_held_for_its_minimum(lock, quorum_now) && !is_released(lock)
}

/// Milliseconds since the lock was acquired.
fn held_for(lock: &DistributedLock, quorum_now: Option<UnixMillis>) -> Option<u128> {
    let acquired = lock.status.as_ref()?.acquired_at?.as_millis();
    Some(u128::try_from(quorum_now?.0.saturating_sub(acquired)).unwrap_or(0))
}

fn liveness(context: &Context, lock: &DistributedLock) -> Liveness {
    let Some(holder) = lock.status.as_ref().and_then(|status| status.holder.as_ref()) else { return Liveness::Unbound };
    let namespace = lock.namespace().unwrap_or_default();
    let (Some(pod_name), Some(pod_uid)) = (&holder.pod_name, &holder.pod_uid) else {
        return owner_liveness(context, lock, &namespace);
    };
    let pod = context.pods.named(&namespace, pod_name).filter(|pod| pod.uid().as_deref() == Some(pod_uid.as_str()));
    let departed = context.pods.departed(pod_uid);
    let sight = Sight {
        pod: pod.as_deref(),
        departed: departed.as_deref(),
        node_is_lost: is_lost(context, holder.node_name.as_deref()),
    };
    Liveness::Bound(instance::judge(holder.container_id.as_deref(), sight, context.api_now()))
}

fn is_lost(context: &Context, node: Option<&str>) -> bool {
    node.is_some_and(|node| context.node_watch.is_lost(node))
}

/// Whether the owner's containers are watched: those of a pod, or of a Job's pods.
pub fn is_watched_owner(owner: &OwnerReference) -> bool {
    matches!((owner.kind.as_str(), owner.api_version.as_str()), ("Pod", "v1") | ("Job", "batch/v1"))
}

/// Whether a pod is this owner, or belongs to it.
pub fn belongs_to(pod: &Pod, owner: &OwnerReference) -> bool {
    pod.metadata.uid.as_deref() == Some(owner.uid.as_str())
        || pod.labels().get(JOB_UID_LABEL).is_some_and(|uid| *uid == owner.uid)
}

/// Deleting a Job collects the claims that it owns at the same moment as its pods, which may work on through their grace
/// period: until each of them has been seen to end the claim counts as held.
fn owner_liveness(context: &Context, lock: &DistributedLock, namespace: &str) -> Liveness {
    let owners: Vec<_> = lock.owner_references().iter().filter(|owner| is_watched_owner(owner)).collect();
    if owners.is_empty() || !is_deleting(lock) {
        return Liveness::Unbound;
    }
    let is_owned =
        |pod: &Pod| pod.namespace().as_deref() == Some(namespace) && owners.iter().any(|owner| belongs_to(pod, owner));
    let (now, node) = (context.api_now(), |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
    let present = owners.iter().flat_map(|owner| context.pods.under(&keys::owner(&owner.uid)));
    let present = present.filter(|pod| is_owned(pod));
    let mut seen: Vec<_> = present
        .map(|pod| {
            let node_is_lost = is_lost(context, node(&pod).as_deref());
            instance::judge_owner(Sight { pod: Some(&pod), departed: None, node_is_lost }, now)
        })
        .collect();
    let departed = context.pods.departed_where(is_owned);
    seen.extend(
        departed.iter().map(|pod| instance::judge_owner(Sight { departed: Some(pod), ..Sight::default() }, now)),
    );
    Liveness::Owned(all_of(seen))
}

/// One that runs keeps the claim, one in doubt lets it run out, and none at all proves nothing.
fn all_of(instances: Vec<Instance>) -> Instance {
    let nothing = || Instance::Doubt("none of the owner's pods was seen to end".to_owned());
    if instances.contains(&Instance::Running) {
        return Instance::Running;
    }
    let doubt = instances.iter().find(|instance| matches!(instance, Instance::Doubt(_))).cloned();
    doubt.unwrap_or_else(|| if instances.is_empty() { nothing() } else { Instance::Terminated })
}

#[cfg(test)]
mod tests;
