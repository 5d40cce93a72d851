//! Who would hold a lock if it were acquired now, as the caches have it, and whether that candidate answers.

use std::sync::Arc;

use kube::ResourceExt;

use super::{
    exclusions::{self, Exclusions},
    memory::{NOT_YET_PAUSE, Postponed},
    progress::Progress,
};
use crate::{
    api::{Claim, DistributedLock, Election, conditions::HeldReason},
    lock::{
        model::{
            candidate::{self, Candidate, Ineligible},
            decide::Contender,
        },
        replica::liveness::{self, Asked},
    },
    runtime::{context::Context, keys},
};

/// The candidates of all locks: pods as the caches have them, who is passed over, and what candidates have answered.
pub(super) struct Candidates {
    context: Context,
    exclusions: Exclusions,
    asked: Asked,
}

impl Candidates {
    /// No candidate was asked yet.
    pub(super) fn new(context: Context) -> Self {
        Self { context, exclusions: Exclusions::default(), asked: Asked::default() }
    }

    /// Who would hold the lock if it were acquired now.
    pub(super) fn contender(&self, lock: &DistributedLock) -> Result<Contender, String> {
        let namespace = lock.namespace().unwrap_or_default();
        match (&lock.spec.claim, &lock.spec.election) {
            (Some(Claim { identity: Some(identity), .. }), _) => Ok(Contender::Identity(identity.clone())),
            (Some(Claim { pod_name: Some(pod_name), pod_uid, container, .. }), _) => {
                let pod = self.context.pods.named(&namespace, pod_name);
                let pod = pod.ok_or_else(|| format!("there is no pod {pod_name} in namespace {namespace}"))?;
                if pod_uid.is_some() && *pod_uid != pod.uid() {
                    return Err(format!(
                        "pod {pod_name} in namespace {namespace} is another one than spec.claim.podUID names"
                    ));
                }
                let candidate = candidate::bound(&pod, container.as_deref()).map_err(|Ineligible(why)| why)?;
                Ok(Contender::Instance(Box::new(candidate)))
            }
            (_, Some(election)) => self.elect(lock, &namespace, election),
            _ => Err("the spec has neither claim nor election".into()),
        }
    }

    fn elect(&self, lock: &DistributedLock, namespace: &str, election: &Election) -> Result<Contender, String> {
        let pods = self.context.pods.under(&keys::namespace(namespace));
        let (candidates, others) = candidate::of_election(election, &pods, &self.context.nodes.all())?;
        let mut reasons: Vec<_> = others.into_iter().map(|Ineligible(why)| why).collect();
        let any = !candidates.is_empty();
        let candidates = self.without_excluded(lock, candidates);
        match candidate::prefer(&candidates, election.preference) {
            Some(best) => Ok(Contender::Instance(Box::new(best.clone()))),
            None if any => Err("the only candidate has just released the lock: it may lead again after one ttl".into()),
            None if reasons.is_empty() => Err("no pod matches spec.election.selector".into()),
            None => {
                reasons.sort();
                reasons.truncate(5);
                Err(reasons.join("; "))
            }
        }
    }

    /// The candidates without those to pass over, unless there are no others.
    fn without_excluded(&self, lock: &DistributedLock, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let (uid, now) = (lock.uid().unwrap_or_default(), self.context.clock.boottime());
        let api_now = self.context.api_now();
        let may_lead = |candidate: &Candidate| !exclusions::has_just_released(lock, &candidate.pod_name, api_now);
        let candidates: Vec<_> = candidates.into_iter().filter(may_lead).collect();
        let (passed_over, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| {
            exclusions::was_asked_to_go(lock, &candidate.pod_name)
                || self.exclusions.contains(&uid, &candidate.container_id, now)
        });
        if others.is_empty() { passed_over } else { others }
    }

    /// A candidate that fails the liveness check before it holds would only keep the lock from others for a TTL: it is passed over for
    /// that long, if another candidate can lead. `None`: it is well, or is not asked.
    pub(super) fn health(&self, lock: &Arc<DistributedLock>, contender: &Contender) -> Option<Progress> {
        let (Contender::Instance(candidate), Some(_asks)) = (contender, &lock.spec.liveness) else { return None };
        let (uid, now) = (lock.uid().unwrap_or_default(), self.context.clock.boottime());
        let Some(answer) = self.asked.take(&uid, &candidate.container_id, now) else {
            return Some(Progress::Ask(candidate.clone()));
        };
        let why = answer.err()?;
        if self.exclusions.add(&uid, &candidate.container_id, now, lock.spec.ttl.get()) {
            let message = format!("pod {} fails the liveness check: {why}", candidate.pod_name);
            return Some(Progress::Later(Postponed { reason: HeldReason::NoCandidate, message, pause: NOT_YET_PAUSE }));
        }
        // That was not known before: the next decision picks another candidate, if there is one.
        Some(Progress::Next(lock.clone()))
    }

    /// Asks a candidate, and remembers its answer for the next decision.
    pub(super) async fn ask(&self, lock: &DistributedLock, candidate: &Candidate) {
        let Some(liveness) = &lock.spec.liveness else { return };
        let pod = self.context.pods.named(&lock.namespace().unwrap_or_default(), &candidate.pod_name);
        let answer = liveness::ask_pod(pod.as_deref(), liveness, &*self.context.network).await;
        let uid = lock.uid().unwrap_or_default();
        self.asked.answered(uid, candidate.container_id.clone(), answer, self.context.clock.boottime());
    }

    /// Drops what is remembered of a lock that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.asked.forget(uid);
    }
}
