//! Determines from the caches the holder that would get a lock now.

use std::time::Duration;

use kube::ResourceExt;

use crate::api::{Claim, DistributedLock, Election, LockHolder};
use crate::lock::model::candidate::{self, Candidate, Ineligible};
use crate::lock::model::decide::WaitReason;
use crate::lock::model::held_message::HeldMessage;
use crate::lock::model::job::{self, UnfitJob};
use crate::lock::model::status::full_name;
use crate::lock::replica::holder;
use crate::runtime::context::Context;
use crate::runtime::keys;
use crate::time::UnixMillis;

/// How often a younger claim of a Job checks the older one.
const OLDER_CLAIM: Duration = Duration::from_secs(1);

/// Returns the next holder of the lock. An error is the reason why it has no candidate.
pub(super) fn contender(context: &Context, lock: &DistributedLock) -> Result<LockHolder, WaitReason> {
    let namespace = lock.namespace().unwrap_or_default();
    let no_candidate = |why: String| WaitReason::from(HeldMessage::NoCandidate { why });
    match (&lock.spec.claim, &lock.spec.election) {
        (Some(Claim { identity: Some(identity), .. }), _) => {
            Ok(LockHolder { identity: identity.clone(), ..LockHolder::default() })
        }
        (Some(claim @ Claim { pod_name: Some(name), .. }), _) => {
            instance(context, &namespace, name, claim).map_err(|ineligible| no_candidate(ineligible.to_string()))
        }
        (Some(Claim { job_name: Some(name), job_uid, .. }), _) => {
            let claims = context.locks.under(&keys::claims_of_job(&namespace, name));
            // Two claims would start the Job alternately, each without the lock of the other.
            if let Some(claim) = job::older_claim(&claims, lock).map(full_name) {
                let unfit = UnfitJob::OtherClaim { job: format!("{namespace}/{name}"), claim };
                return Err(WaitReason { retry_after: Some(OLDER_CLAIM), ..no_candidate(unfit.to_string()) });
            }
            fit_job(context, &namespace, name, job_uid.as_deref()).map_err(|unfit| no_candidate(unfit.to_string()))
        }
        (_, Some(election)) => elect(context, lock, election),
        _ => Err(no_candidate("the spec has neither claim nor election".to_owned())),
    }
}

/// The container of the pod that a claim names.
///
/// The claim can also name the UID of the pod, and the container.
fn instance(context: &Context, namespace: &str, name: &str, claim: &Claim) -> Result<LockHolder, Ineligible> {
    let full_name = || format!("{namespace}/{name}");
    let pod = context.pods.named(namespace, name).ok_or_else(|| Ineligible::NoPod { pod: full_name() })?;
    if claim.pod_uid.is_some() && claim.pod_uid != pod.metadata.uid {
        return Err(Ineligible::OtherPod { pod: full_name() });
    }
    Ok(candidate::bound(&pod, claim.container.as_deref())?.holder)
}

/// The Job that a claim names, if it can be started.
fn fit_job(context: &Context, namespace: &str, name: &str, job_uid: Option<&str>) -> Result<LockHolder, UnfitJob> {
    let job = context.jobs.as_ref().and_then(|jobs| jobs.named(namespace, name));
    let uid = job.as_ref().and_then(|job| job.uid()).unwrap_or_default();
    let running = holder::job_pods(context, namespace, &uid, 0).running;
    job::fit(job.as_deref(), &format!("{namespace}/{name}"), job_uid, running)?;
    let (identity, job_name) = (name.to_owned(), Some(name.to_owned()));
    Ok(LockHolder { identity, job_name, job_uid: Some(uid), ..LockHolder::default() })
}

/// Returns the pod that an election prefers. An error is the reason why it has none.
fn elect(context: &Context, lock: &DistributedLock, election: &Election) -> Result<LockHolder, WaitReason> {
    let namespace = lock.namespace().unwrap_or_default();
    let no_leader = |why: String| WaitReason::from(HeldMessage::NoLeader { why });
    let (pods, now) = (context.pods.under(&keys::namespace(&namespace)), context.api_now());
    let (candidates, mut others) = candidate::of_election(election, &pods, &context.nodes.all())
        .map_err(|ineligible| no_leader(ineligible.to_string()))?;
    let mut retry_after: Option<Duration> = None;
    let mut is_fit = |one: &Candidate| match candidate::back_off(lock, one) {
        Some((times, at)) if now.0 < at.as_millis() => {
            let pod = format!("{namespace}/{}", one.holder.identity);
            others.push(Ineligible::Unhealthy { pod, times, at });
            let left = UnixMillis(at.as_millis()).since(now);
            retry_after = Some(retry_after.map_or(left, |other| other.min(left)));
            false
        }
        _ => true,
    };
    let candidates: Vec<_> = candidates.into_iter().filter(|one| is_fit(one)).collect();
    let last = candidate::last_holder(lock, now);
    if let Some(best) = candidate::prefer(&candidates, election.preference, last) {
        return Ok(best.holder.clone());
    }
    if others.is_empty() {
        others.push(Ineligible::NoMatch { namespace });
    }
    let mut reasons: Vec<_> = others.iter().map(Ineligible::to_string).collect();
    reasons.sort();
    reasons.truncate(5);
    Err(WaitReason { retry_after, ..no_leader(reasons.join("; ")) })
}
