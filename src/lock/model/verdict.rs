//! Pure: the verdict on the holder that a lock's status names.
//!
//! The leader judges before it keeps, frees or seals a hold, and every replica before each renewal. No verdict shortens the validity of a
//! live holder. A lock is free immediately only after a release by its holder, after `break-force`, or after the proven end of its container.
//!
//! For every other cause the replicas stop renewing, and the hold runs out (docs/dev/rules.md, "Death and doubt").

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::end::{Doubt, End};
use super::hold::{HeldFor, left_of_max_hold, left_of_min_hold};
use super::instance::Instance;
use super::job::{JobEvidence, JobPods, JobState};
use crate::api::conditions::{HeldReason, LockCondition, transition_time};
use crate::api::{
    BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, Ending, RELEASE_ANNOTATION, STEP_DOWN_ANNOTATION,
    Stopping,
};
use crate::runtime::keys::JOB_UID_LABEL;
use crate::time::UnixMillis;

/// The verdict on a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The hold is renewed.
    Keep,
    /// The hold is renewed only because of `minHold`. It ends for this reason when `minHold` has passed.
    Minimum(End),
    /// The hold is renewed until its Job is suspended and the Job's pods have ended. Then it runs out.
    Stop(End),
    /// The hold ends immediately, because its holder released it or has provably ended.
    Release(End),
    /// The hold is no longer renewed. It is sealed and runs out, or ends with its container.
    LetExpire(End),
}

impl Verdict {
    /// Whether replicas renew the hold.
    pub const fn is_renewed(&self) -> bool {
        // A Job that is being stopped has its hold until its pods have ended.
        matches!(self, Self::Keep | Self::Minimum(_) | Self::Stop(_))
    }
}

/// The state of the holder's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A holder with a free-text identity, which has no process to check.
    Unbound,
    /// A claim with a free-text identity that is being deleted, and is owned by a Job or a pod.
    Owned(Instance),
    /// A holder that is bound to a container instance.
    Bound(Instance),
    /// A Job.
    Job(JobEvidence),
}

/// The input of a verdict apart from the lock object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The state of the holder's processes.
    pub liveness: Liveness,
    /// The lock's namespace is being deleted with everything in it.
    pub namespace_ends: bool,
    /// The holder's node, if it was cordoned after the grant and another candidate is ready elsewhere.
    pub cordoned_node: Option<String>,
    /// The API server's time, for times that it or a controller wrote.
    pub api_now: UnixMillis,
    /// How long the lock has been held. `None` until an answer of the API server had a date.
    pub held_for: Option<HeldFor>,
}

/// The verdict on the hold in `lock.status`, without liveness checks and heartbeats.
pub fn judge(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    if let Some(reason) = annotation(lock, BREAK_FORCE_ANNOTATION) {
        return Verdict::Release(End::BrokenByForce { reason: reason.to_owned() });
    }
    if let Some(ending) = lock.ending() {
        return judge_ending(lock, evidence, ending);
    }
    if let Some(error) = lock.spec.unreadable.clone() {
        return Verdict::LetExpire(End::Unreadable { error });
    }
    let after = judge_good(lock, evidence);
    match is_held_for_its_minimum(lock, evidence.held_for) {
        true => judge_minimum(lock, evidence, after),
        false => after,
    }
}

/// The verdict on a hold that has not begun to end, without regard to `minHold`.
fn judge_good(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    if is_released(lock) {
        return Verdict::Release(End::Released);
    }
    match &evidence.liveness {
        Liveness::Job(job) => judge_job(lock, evidence, job),
        Liveness::Bound(Instance::Terminated) => Verdict::Release(End::Terminated),
        Liveness::Bound(Instance::Doubt(why)) => Verdict::LetExpire(End::InDoubt { doubt: *why }),
        Liveness::Owned(Instance::Doubt(why)) => Verdict::LetExpire(End::DeletedWithOwner { doubt: *why }),
        Liveness::Owned(Instance::Terminated) | Liveness::Unbound if is_deleting(lock) && is_free_identity(lock) => {
            deleted(lock, evidence)
        }
        _ => requested(lock, evidence),
    }
}

/// The verdict on a hold that `minHold` protects.
///
/// `minHold` keeps the lock, so that a claim that ended early does not run again elsewhere. It does not keep a Job running. A Job with a pod in
/// doubt is stopped, because a second pod would work with the same token.
fn judge_minimum(lock: &DistributedLock, evidence: &Evidence, after: Verdict) -> Verdict {
    match &evidence.liveness {
        _ if is_deleting(lock) && evidence.namespace_ends => Verdict::LetExpire(End::NamespaceEnds),
        Liveness::Job(JobEvidence { pods: JobPods { doubt: Some(doubt), .. }, state, .. })
            if lock.stopping().is_none() && !state.is_over() =>
        {
            Verdict::Stop(End::InDoubt { doubt: *doubt })
        }
        _ => match after {
            Verdict::Stop(end) | Verdict::Release(end) | Verdict::LetExpire(end) => Verdict::Minimum(end),
            Verdict::Keep | Verdict::Minimum(_) => Verdict::Keep,
        },
    }
}

/// The verdict on the hold of a Job, which is stopped before its hold ends.
///
/// Its pods can work through their grace period. Only proven death ends the hold immediately, and only if each pod that the Job counts is
/// observed.
fn judge_job(lock: &DistributedLock, evidence: &Evidence, job: &JobEvidence) -> Verdict {
    if let Some(stopping) = lock.stopping() {
        return judge_stopping(lock, evidence, job, stopping);
    }
    let is_over = job.state.is_over();
    match (job.state, job.pods.doubt) {
        // A running pod keeps the hold of a Job that starts no further pods, even if other pods are in doubt.
        _ if is_over && job.pods.running => stop_first(requested(lock, evidence)),
        (_, Some(doubt)) if is_over => Verdict::LetExpire(End::InDoubt { doubt }),
        (_, Some(doubt)) => Verdict::Stop(End::InDoubt { doubt }),
        (JobState::Gone, None) => Verdict::LetExpire(End::JobGone),
        (JobState::Finished { complete: true }, None) => Verdict::Release(End::JobFinished),
        (JobState::Finished { complete: false }, None) => Verdict::LetExpire(End::JobFinishedUnobserved),
        (JobState::SuspendedByOther, None) => Verdict::Stop(End::JobSuspended),
        // The operator suspended the Job, and did not write the status after that. The cause is usually still there.
        (JobState::Stopped, None) => match stop_first(requested(lock, evidence)) {
            Verdict::Keep => Verdict::Stop(End::JobHalted),
            verdict => verdict,
        },
        (JobState::Waiting | JobState::Running, None) => stop_first(requested(lock, evidence)),
    }
}

/// Stops the Job first, while its hold is still renewed.
fn stop_first(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::LetExpire(end) => Verdict::Stop(end),
        verdict => verdict,
    }
}

/// Whether a Job waits for its lock again after its hold ended for this reason.
///
/// It does not wait again after an end by a user or a limit, even if the hold was lost while the Job was being stopped. The user's request can
/// also come at that time.
pub fn is_to_run_again(lock: &DistributedLock, reason: HeldReason) -> bool {
    if [BREAK_ANNOTATION, STEP_DOWN_ANNOTATION].into_iter().any(|request| annotation(lock, request).is_some()) {
        return false;
    }
    let is_loss = |reason| matches!(reason, HeldReason::Expired | HeldReason::HolderGone | HeldReason::Suspended);
    is_loss(reason) && lock.stopping().is_none_or(|stopping| HeldReason::named(&stopping.reason).is_some_and(is_loss))
}

/// The verdict on the hold of a suspended Job.
///
/// Its pods have their grace period and one ttl to end. Then the hold runs out in any case.
fn judge_stopping(lock: &DistributedLock, evidence: &Evidence, job: &JobEvidence, stopping: &Stopping) -> Verdict {
    let is_overdue = evidence.api_now.since(stopping.since.into()) >= job.grace.saturating_add(lock.spec.ttl.get());
    let recorded = End::recorded(&stopping.reason, stopping.message.as_ref());
    let (reason, why) = (recorded.reason(), recorded.to_string());
    match () {
        () if job.runs_no_pod() => Verdict::LetExpire(End::JobStopped { reason, why }),
        () if is_overdue => Verdict::LetExpire(End::JobOverdue { reason, why }),
        () => Verdict::Keep,
    }
}

/// The verdict on a hold that ends.
///
/// The end continues even if its cause has disappeared. Only a proven death or a release shortens it.
fn judge_ending(lock: &DistributedLock, evidence: &Evidence, ending: &Ending) -> Verdict {
    match evidence.liveness {
        Liveness::Bound(Instance::Terminated) => Verdict::Release(End::Terminated),
        _ if is_released(lock) => Verdict::Release(End::Released),
        _ => Verdict::LetExpire(End::recorded(&ending.reason, ending.message.as_ref())),
    }
}

/// The verdict on a claim with a free identity that is being deleted.
///
/// Its deletion is a release by its holder, unless another controller possibly deleted the claim while the holder works. The namespace
/// controller deletes claims and pods together, and pods can work through their grace period.
fn deleted(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    if evidence.namespace_ends {
        return Verdict::LetExpire(End::NamespaceEnds);
    }
    match lock.owner_references().iter().find(|owner| !is_watched_owner(owner)).cloned() {
        Some(OwnerReference { kind, name, .. }) => Verdict::LetExpire(End::UnknownOwner { kind, name }),
        None => Verdict::Release(End::Deleted),
    }
}

/// The verdict according to requests of users and limits in the specification.
fn requested(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    let annotated = |name| annotation(lock, name).map(str::to_owned);
    if let Some(reason) = annotated(BREAK_ANNOTATION) {
        return Verdict::LetExpire(End::Broken { reason });
    }
    if let Some(reason) = annotated(STEP_DOWN_ANNOTATION) {
        return Verdict::LetExpire(End::SteppedDown { reason });
    }
    if is_deleting(lock) && evidence.liveness != Liveness::Owned(Instance::Running) {
        return Verdict::LetExpire(End::DeletedWhileHeld);
    }
    if lock.spec.suspend {
        return Verdict::LetExpire(End::Suspended);
    }
    if let Some(node) = evidence.cordoned_node.clone() {
        return Verdict::LetExpire(End::Cordoned { node });
    }
    if left_of_max_hold(lock, evidence.held_for) == Some(Duration::ZERO) {
        return Verdict::LetExpire(End::MaxHold);
    }
    if has_idle_lease(lock, evidence.api_now) {
        return Verdict::LetExpire(End::Unpublished);
    }
    Verdict::Keep
}

/// Whether the published validity has passed, so that the policy admits no leader to the Lease.
///
/// Otherwise an operator that cannot reach its API server would keep the lock from the other clusters, and no pod would lead.
pub fn has_idle_lease(lock: &DistributedLock, api_now: UnixMillis) -> bool {
    lock.lease().is_some() && lock.valid_until().is_some_and(|until| UnixMillis::from(until) <= api_now)
}

/// Whether the namespace is being deleted.
pub fn is_ending(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_some() || phase == Some("Terminating")
}

/// Whether the holder released the lock with an annotation that has the token of this hold.
fn is_released(lock: &DistributedLock) -> bool {
    let released = annotation(lock, RELEASE_ANNOTATION).and_then(|released| released.trim().parse().ok());
    released.is_some() && released == lock.fencing_token()
}

pub(in crate::lock) fn is_deleting(lock: &DistributedLock) -> bool {
    lock.metadata.deletion_timestamp.is_some()
}

/// Whether the holder of a claim is a text, not a container.
fn is_free_identity(lock: &DistributedLock) -> bool {
    lock.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some())
}

fn annotation<'a>(lock: &'a DistributedLock, name: &str) -> Option<&'a str> {
    lock.annotations().get(name).map(String::as_str)
}

/// Whether the status named the holder before this moment, by the control plane's clock.
///
/// The time of transition of the condition Held has the same clock. A hold that began on a cordoned node continues, because a leader steps
/// down once for each cordon.
pub fn was_held_before(lock: &DistributedLock, moment: UnixMillis) -> bool {
    let held = lock.condition(LockCondition::Held).filter(|held| held.status == "True");
    held.is_some_and(|held| transition_time(held) < moment)
}

/// Whether `minHold` still protects the hold of a claim.
fn is_held_for_its_minimum(lock: &DistributedLock, held_for: Option<HeldFor>) -> bool {
    // Without the API server's clock, assume that minHold has not passed. A late end is safe.
    let has_passed = left_of_min_hold(lock, held_for) == Some(Duration::ZERO);
    lock.spec.claim.is_some() && lock.spec.min_hold.is_some() && !has_passed
}

/// Whether a failed check ends the hold.
///
/// It does not end a hold that `minHold` protects, or a hold that its holder released.
pub fn must_be_healthy(lock: &DistributedLock, held_for: Option<HeldFor>) -> bool {
    !is_held_for_its_minimum(lock, held_for) && !is_released(lock)
}

/// Whether the operator watches the owner's containers, because the owner is a pod or a Job.
pub fn is_watched_owner(owner: &OwnerReference) -> bool {
    matches!((owner.kind.as_str(), owner.api_version.as_str()), ("Pod", "v1") | ("Job", "batch/v1"))
}

/// Whether a pod is this owner, or belongs to it.
pub fn belongs_to(pod: &Pod, owner: &OwnerReference) -> bool {
    pod.metadata.uid.as_deref() == Some(owner.uid.as_str())
        || pod.labels().get(JOB_UID_LABEL).is_some_and(|uid| *uid == owner.uid)
}

/// Combines the states of an owner's pods.
///
/// A running pod keeps the claim. Otherwise a pod in doubt, or no pod at all, lets the claim run out.
///
/// `complete` is false for Jobs, because a pod that was deleted by force before this replica started is not in the cache and can still run.
pub(in crate::lock) fn all_of(instances: Vec<Instance>, complete: bool) -> Instance {
    if instances.contains(&Instance::Running) {
        return Instance::Running;
    }
    let doubt = instances.iter().find(|instance| matches!(instance, Instance::Doubt(_))).copied();
    doubt.unwrap_or(match () {
        () if instances.is_empty() => Instance::Doubt(Doubt::NoPods),
        () if complete => Instance::Terminated,
        () => Instance::Doubt(Doubt::OtherPods),
    })
}

#[cfg(test)]
mod tests;
