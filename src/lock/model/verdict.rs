//! Pure: may the holder named in a lock's status go on holding it?
//!
//! The leader asks before it keeps, frees or seals a hold; every replica asks before each renewal. A live holder is never
//! cut short: a lock is free at once only by the holder's own word or when its container is known to have terminated.
//! Everything else stops the renewal and lets the hold run out (docs/dev/rules.md, "Death and doubt").

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::end::{Doubt, End};
use super::held_for::HeldFor;
use super::instance::Instance;
use super::job::{JobEvidence, JobState};
use crate::api::conditions::{HeldReason, LockCondition, find_condition, transition_time};
use crate::api::{
    BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION, DistributedLock, Ending, RELEASE_ANNOTATION, STEP_DOWN_ANNOTATION,
    Stopping,
};
use crate::runtime::keys::JOB_UID_LABEL;
use crate::time::UnixMillis;

/// What is to become of a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is renewed.
    Keep,
    /// It is renewed for `minHold` only, and would end without.
    Minimum(End),
    /// It is renewed until its Job has been suspended and the Job's pods have ended. Then it runs out.
    Stop(End),
    /// It ends at once: the holder said so, or is known to have ended.
    Release(End),
    /// It is not renewed any more; it is sealed and runs out, or goes when the container has terminated.
    LetExpire(End),
}

impl Verdict {
    /// Whether replicas renew the hold.
    pub const fn is_renewed(&self) -> bool {
        match self {
            // A Job that is being stopped has its hold until its pods have ended.
            Self::Keep | Self::Minimum(_) | Self::Stop(_) => true,
            Self::Release(_) | Self::LetExpire(_) => false,
        }
    }
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
    /// A Job.
    Job(JobEvidence),
}

/// Everything outside the lock object that its verdict depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What is known about the holder's processes.
    pub liveness: Liveness,
    /// The lock's namespace is being deleted, and everything in it.
    pub namespace_ends: bool,
    /// The holder's node was cordoned, and another candidate is ready on a node that is not.
    pub cordon: Option<Cordon>,
    /// The API server's time, for what counts from a time that it or a controller wrote.
    pub api_now: UnixMillis,
    /// How long the lock has been held. `None`: no answer of the API server has carried a date yet.
    pub held_for: Option<HeldFor>,
}

/// A node that is about to be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cordon {
    /// Its name.
    pub node: String,
    /// When it was cordoned, by the clock of the control plane.
    pub at: UnixMillis,
}

/// Judges the hold in `lock.status` by everything but the holder's own answers.
pub fn judge(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    if let Some(reason) = annotation(lock, BREAK_FORCE_ANNOTATION) {
        return Verdict::Release(End::BrokenByForce { reason: reason.to_owned() });
    }
    if let Some(ending) = lock.status.as_ref().and_then(|status| status.ending.as_ref()) {
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

/// The verdict on a hold that neither ends nor is protected by `minHold`.
fn judge_good(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    if is_released(lock) {
        return Verdict::Release(End::Released);
    }
    match &evidence.liveness {
        Liveness::Job(job) => judge_job(lock, evidence, job),
        Liveness::Bound(Instance::Terminated) => Verdict::Release(End::Terminated),
        Liveness::Bound(Instance::Doubt(why)) => Verdict::LetExpire(End::InDoubt { doubt: why.clone() }),
        Liveness::Owned(Instance::Doubt(why)) => Verdict::LetExpire(End::DeletedWithOwner { doubt: why.clone() }),
        Liveness::Owned(Instance::Terminated) | Liveness::Unbound if is_deleting(lock) && is_free_identity(lock) => {
            deleted(lock, evidence)
        }
        _ => asked(lock, evidence),
    }
}

/// The verdict on a hold that `minHold` protects.
///
/// A job that finished at once in one place does not run again in another. The lock is kept, not the work: a Job with a pod in doubt is stopped, or a second pod would work with the same token.
fn judge_minimum(lock: &DistributedLock, evidence: &Evidence, after: Verdict) -> Verdict {
    let is_stopping = lock.status.as_ref().is_some_and(|status| status.stopping.is_some());
    match &evidence.liveness {
        _ if is_deleting(lock) && evidence.namespace_ends => Verdict::LetExpire(End::NamespaceEnds),
        Liveness::Job(JobEvidence { doubt: Some(doubt), state, .. }) if !is_stopping && !state.is_over() => {
            Verdict::Stop(End::InDoubt { doubt: doubt.clone() })
        }
        _ => match after {
            Verdict::Stop(end) | Verdict::Release(end) | Verdict::LetExpire(end) => Verdict::Minimum(end),
            Verdict::Keep | Verdict::Minimum(_) => Verdict::Keep,
        },
    }
}

/// The verdict on the hold of a Job, which is stopped before its hold ends.
///
/// Its pods may work through their grace period. Known death alone ends the hold at once, and only when each pod that the Job counts is known.
fn judge_job(lock: &DistributedLock, evidence: &Evidence, job: &JobEvidence) -> Verdict {
    if let Some(stopping) = lock.status.as_ref().and_then(|status| status.stopping.as_ref()) {
        return judge_stopping(lock, evidence, job, stopping);
    }
    let goes = job.state.is_over();
    match (job.state, &job.doubt) {
        // Whatever is in doubt, a pod that runs keeps the hold of a Job that needs no stopping.
        _ if goes && job.running => stop_first(asked(lock, evidence)),
        (_, Some(doubt)) if goes => Verdict::LetExpire(End::InDoubt { doubt: doubt.clone() }),
        (_, Some(doubt)) => Verdict::Stop(End::InDoubt { doubt: doubt.clone() }),
        (JobState::Gone, None) => Verdict::LetExpire(End::JobGone),
        (JobState::Finished { complete: true }, None) => Verdict::Release(End::JobFinished),
        (JobState::Finished { complete: false }, None) => Verdict::LetExpire(End::JobFinishedUnseen),
        (JobState::SuspendedByOther { .. }, None) => Verdict::Stop(End::JobSuspended),
        // The write of the status that was to follow did not happen.
        (JobState::Stopped { .. }, None) => Verdict::Stop(End::JobHalted),
        (JobState::Waiting | JobState::Running, None) => stop_first(asked(lock, evidence)),
    }
}

/// A Job is asked to end while its hold is still renewed.
fn stop_first(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::LetExpire(end) => Verdict::Stop(end),
        verdict => verdict,
    }
}

/// Whether a Job whose hold has ended for this reason waits for its lock again. What a person or a limit has ended, it does not, also if the hold
/// was lost while the Job was being stopped.
pub fn is_to_run_again(lock: &DistributedLock, reason: HeldReason) -> bool {
    let is_loss = |reason| matches!(reason, HeldReason::Expired | HeldReason::HolderGone | HeldReason::Suspended);
    let stopping = lock.status.as_ref().and_then(|status| status.stopping.as_ref());
    is_loss(reason) && stopping.is_none_or(|stopping| HeldReason::named(&stopping.reason).is_some_and(is_loss))
}

/// The pods of a suspended Job have their grace period and one ttl to end. Then the hold runs out, whatever is known of them.
fn judge_stopping(lock: &DistributedLock, evidence: &Evidence, job: &JobEvidence, stopping: &Stopping) -> Verdict {
    let is_overdue = evidence.api_now.since(stopping.since.into()) >= job.grace.saturating_add(lock.spec.ttl.get());
    let recorded = End::recorded(&stopping.reason, stopping.message.as_ref());
    let (reason, why) = (recorded.reason(), recorded.to_string());
    match () {
        () if job.is_settled() => Verdict::LetExpire(End::JobStopped { reason, why }),
        () if is_overdue => Verdict::LetExpire(End::JobOverdue { reason, why }),
        () => Verdict::Keep,
    }
}

/// An end that has begun goes on, also when its cause is gone. Only known death or the holder's word make it quicker.
fn judge_ending(lock: &DistributedLock, evidence: &Evidence, ending: &Ending) -> Verdict {
    if evidence.liveness == Liveness::Bound(Instance::Terminated) {
        return Verdict::Release(End::Terminated);
    }
    if is_released(lock) {
        return Verdict::Release(End::Released);
    }
    Verdict::LetExpire(End::recorded(&ending.reason, ending.message.as_ref()))
}

/// The verdict on a claim with a free identity that is being deleted.
///
/// Its deletion is the holder's word, unless something else deletes what the holder may still use. The namespace controller deletes claims and
/// pods together, and pods may work through their grace period.
fn deleted(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    if evidence.namespace_ends {
        return Verdict::LetExpire(End::NamespaceEnds);
    }
    match lock.owner_references().iter().find(|owner| !is_watched_owner(owner)) {
        Some(OwnerReference { kind, name, .. }) => {
            Verdict::LetExpire(End::UnknownOwner { kind: kind.clone(), name: name.clone() })
        }
        None => Verdict::Release(End::Deleted),
    }
}

/// What people ask for, and what the specification limits.
fn asked(lock: &DistributedLock, evidence: &Evidence) -> Verdict {
    if let Some(reason) = annotation(lock, BREAK_ANNOTATION) {
        return Verdict::LetExpire(End::Broken { reason: reason.to_owned() });
    }
    if let Some(reason) = annotation(lock, STEP_DOWN_ANNOTATION) {
        return Verdict::LetExpire(End::SteppedDown { reason: reason.to_owned() });
    }
    if is_deleting(lock) && !matches!(evidence.liveness, Liveness::Owned(Instance::Running)) {
        return Verdict::LetExpire(End::DeletedWhileHeld);
    }
    if lock.spec.suspend {
        return Verdict::LetExpire(End::Suspended);
    }
    if let Some(cordon) = evidence.cordon.as_ref().filter(|cordon| was_held_before(lock, cordon.at)) {
        return Verdict::LetExpire(End::Cordoned { node: cordon.node.clone() });
    }
    if has_reached_max_hold(lock, evidence.held_for) {
        return Verdict::LetExpire(End::MaxHold);
    }
    Verdict::Keep
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

pub(in crate::lock) fn is_deleting(lock: &DistributedLock) -> bool {
    lock.metadata.deletion_timestamp.is_some()
}

/// A claim whose holder is a text, not a container.
pub fn is_free_identity(lock: &DistributedLock) -> bool {
    lock.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some())
}

fn annotation<'a>(lock: &'a DistributedLock, name: &str) -> Option<&'a str> {
    lock.annotations().get(name).map(String::as_str)
}

/// Whether the status named the holder before this moment, which the control plane's clock tells.
///
/// The time of transition of the condition Held is of that clock, too. A hold that began on a node which was already cordoned goes on: a
/// leader steps down once for each cordon.
pub fn was_held_before(lock: &DistributedLock, moment: UnixMillis) -> bool {
    let conditions = lock.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let held = find_condition(conditions, LockCondition::Held).filter(|held| held.status == "True");
    held.is_some_and(|held| transition_time(held) < moment)
}

/// It is early rather than late.
fn has_reached_max_hold(lock: &DistributedLock, held_for: Option<HeldFor>) -> bool {
    let Some(max_hold) = lock.spec.max_hold else { return false };
    held_for.is_some_and(|held| held.most >= max_hold.get())
}

/// Whether `minHold` still protects the hold of a claim.
fn is_held_for_its_minimum(lock: &DistributedLock, held_for: Option<HeldFor>) -> bool {
    let Some(min_hold) = lock.spec.min_hold.filter(|_| lock.spec.claim.is_some()) else { return false };
    // Without a clock that is not known; late is what the field asks for.
    held_for.is_none_or(|held| held.least < min_hold.get())
}

/// Whether it matters what the holder answers.
///
/// It does not matter before the end of `minHold`, nor after the holder has asked to be released.
pub fn is_expected_to_be_well(lock: &DistributedLock, held_for: Option<HeldFor>) -> bool {
    !is_held_for_its_minimum(lock, held_for) && !is_released(lock)
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

/// One that runs keeps the claim, one in doubt lets it run out, and none at all proves nothing. `complete`: there were no others. Of a Job
/// that is never known: a pod that was deleted by force, before this replica started, may run on where nothing shows it.
pub(in crate::lock) fn all_of(instances: Vec<Instance>, complete: bool) -> Instance {
    let nothing = || Instance::doubt(Doubt::NoPods);
    if instances.contains(&Instance::Running) {
        return Instance::Running;
    }
    let doubt = instances.iter().find(|instance| matches!(instance, Instance::Doubt(_))).cloned();
    doubt.unwrap_or_else(|| match () {
        () if instances.is_empty() => nothing(),
        () if complete => Instance::Terminated,
        () => Instance::doubt(Doubt::OtherPods),
    })
}

#[cfg(test)]
mod tests;
