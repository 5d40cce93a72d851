//! Who would hold a lock if it were acquired now, as the caches have it.

use kube::ResourceExt;

use super::{exclusions, locks::Locks};
use crate::{
    api::{Claim, DistributedLock, Election},
    lock::model::{
        candidate::{self, Candidate, Ineligible},
        decide::Contender,
    },
    runtime::keys,
};

impl Locks {
    /// Whether a lock could hold its key now. One that could not blocks no other.
    pub(super) fn is_eligible(&self, lock: &DistributedLock) -> bool {
        self.contender(lock).is_ok() && !self.is_unable(&lock.uid().unwrap_or_default())
    }

    /// Who would hold the lock if it were acquired now.
    pub(super) fn contender(&self, lock: &DistributedLock) -> Result<Contender, String> {
        let namespace = lock.namespace().unwrap_or_default();
        match (&lock.spec.claim, &lock.spec.election) {
            (Some(Claim { identity: Some(identity), .. }), _) => Ok(Contender::Identity(identity.clone())),
            (Some(Claim { pod_name: Some(pod_name), pod_uid, container, .. }), _) => {
                let pod = self.context.pods.named(&namespace, pod_name);
                let name = || format!("{namespace}/{pod_name}");
                let pod = pod.ok_or_else(|| Ineligible::NoPod { pod: name() }.to_string())?;
                if pod_uid.is_some() && *pod_uid != pod.uid() {
                    return Err(Ineligible::OtherPod { pod: name() }.to_string());
                }
                let candidate = candidate::bound(&pod, container.as_deref()).map_err(|why| why.to_string())?;
                Ok(Contender::Instance(Box::new(candidate)))
            }
            (_, Some(election)) => self.elect(lock, &namespace, election),
            _ => Err("the spec has neither claim nor election".into()),
        }
    }

    fn elect(&self, lock: &DistributedLock, namespace: &str, election: &Election) -> Result<Contender, String> {
        let pods = self.context.pods.under(&keys::namespace(namespace));
        let (candidates, others) =
            candidate::of_election(election, &pods, &self.context.nodes.all()).map_err(|why| why.to_string())?;
        let mut reasons: Vec<_> = others.iter().map(Ineligible::to_string).collect();
        let any = !candidates.is_empty();
        let candidates = self.without_shunned(lock, candidates);
        match candidate::prefer(&candidates, election.preference) {
            Some(best) => Ok(Contender::Instance(Box::new(best.clone()))),
            None if any => Err(Ineligible::JustReleased.to_string()),
            None if reasons.is_empty() => Err(Ineligible::NoMatch { namespace: namespace.to_owned() }.to_string()),
            None => {
                reasons.sort();
                reasons.truncate(5);
                Err(reasons.join("; "))
            }
        }
    }

    /// The candidates without those to pass over, unless there are no others.
    fn without_shunned(&self, lock: &DistributedLock, candidates: Vec<Candidate>) -> Vec<Candidate> {
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

    /// Passes a container instance over for the length of one TTL, if another candidate can lead. Whether it was so already.
    pub fn shun(&self, lock: &DistributedLock, container_id: &str) -> bool {
        let now = self.context.clock.boottime();
        self.exclusions.add(&lock.uid().unwrap_or_default(), container_id, now, lock.spec.ttl.get())
    }
}
