//! Who would hold a lock if it were acquired now, as the caches have it.

use std::time::Duration;

use kube::ResourceExt;

use crate::api::conditions::{LockCondition, find_condition};
use crate::api::{Claim, DistributedLock, Election};
use crate::lock::model::candidate::{self, Ineligible};
use crate::lock::model::decide::{Contender, NoContender};
use crate::lock::model::job::{self, UnfitJob};
use crate::lock::model::status::full_name;
use crate::lock::replica::holder;
use crate::runtime::context::Context;
use crate::runtime::keys;
use crate::time::UnixMillis;

/// A leader that dies is followed within its Lease of 4 s, and the next one has to fill its caches.
const CHANGE_OF_LEADER: Duration = Duration::from_secs(10);

/// Between two looks at the older claim of a Job.
const OLDER_CLAIM: Duration = Duration::from_secs(1);

/// The candidates of all locks.
///
/// It knows the pods as the caches have them.
pub(super) struct Candidates {
    context: Context,
}

impl Candidates {
    /// Of this operator.
    pub(super) const fn new(context: Context) -> Self {
        Self { context }
    }

    /// Who would hold the lock if it were acquired now.
    pub(super) fn contender(&self, lock: &DistributedLock) -> Result<Contender, NoContender> {
        let namespace = lock.namespace().unwrap_or_default();
        match (&lock.spec.claim, &lock.spec.election) {
            (Some(Claim { identity: Some(identity), .. }), _) => Ok(Contender::Identity(identity.clone())),
            (Some(Claim { pod_name: Some(pod_name), pod_uid, container, .. }), _) => {
                let pod = self.context.pods.named(&namespace, pod_name);
                let name = || format!("{namespace}/{pod_name}");
                let pod = pod.ok_or_else(|| Ineligible::NoPod { pod: name() })?;
                if pod_uid.is_some() && *pod_uid != pod.uid() {
                    return Err(Ineligible::OtherPod { pod: name() }.into());
                }
                let candidate = candidate::bound(&pod, container.as_deref())?;
                Ok(Contender::Instance(Box::new(candidate)))
            }
            (Some(Claim { job_name: Some(name), job_uid, .. }), _) => {
                if let Some(claim) = self.older_claim(lock, &namespace, name) {
                    let unfit = UnfitJob::OtherClaim { job: format!("{namespace}/{name}"), claim };
                    return Err(NoContender { why: unfit.to_string(), until: Some(OLDER_CLAIM) });
                }
                self.job(&namespace, name, job_uid.as_deref()).map_err(|unfit| unfit.to_string().into())
            }
            (_, Some(election)) => self.elect(lock, &namespace, election),
            _ => Err("the spec has neither claim nor election".to_owned().into()),
        }
    }

    /// An older claim that names the same Job and has not ended.
    ///
    /// Two claims would start the Job in turns, each without the lock of the other.
    fn older_claim(&self, lock: &DistributedLock, namespace: &str, job: &str) -> Option<String> {
        let claims = self.context.locks.under(&keys::claims_of_job(namespace, job));
        job::older_claim(&claims, lock).map(full_name)
    }

    fn job(&self, namespace: &str, name: &str, asked: Option<&str>) -> Result<Contender, UnfitJob> {
        let job = self.context.jobs.as_ref().and_then(|jobs| jobs.named(namespace, name));
        let uid = job.as_ref().and_then(|job| job.uid()).unwrap_or_default();
        let running = holder::job_pods(&self.context, namespace, &uid, 0).running;
        job::fit(job.as_deref(), &format!("{namespace}/{name}"), asked, running)?;
        Ok(Contender::Job { name: name.to_owned(), uid })
    }

    fn elect(&self, lock: &DistributedLock, namespace: &str, election: &Election) -> Result<Contender, NoContender> {
        let pods = self.context.pods.under(&keys::namespace(namespace));
        let (candidates, others) = candidate::of_election(election, &pods, &self.context.nodes.all())?;
        let mut reasons: Vec<_> = others.iter().map(Ineligible::to_string).collect();
        let ended = just_ended(lock, self.context.api_now());
        match candidate::prefer(&candidates, election.preference, ended) {
            Some(best) => Ok(Contender::Instance(Box::new(best.clone()))),
            None if reasons.is_empty() => Err(Ineligible::NoMatch { namespace: namespace.to_owned() }.into()),
            None => {
                reasons.sort();
                reasons.truncate(5);
                Err(reasons.join("; ").into())
            }
        }
    }
}

/// The pod whose hold has just ended. Another candidate leads next, if there is one.
///
/// It stays last for one ttl, and for as long as a change of the operator's leader takes. The time of transition of the condition Held is of the
/// API server's clock, in whole seconds.
fn just_ended(lock: &DistributedLock, now: UnixMillis) -> Option<&str> {
    let status = lock.status.as_ref()?;
    let held = find_condition(&status.conditions, LockCondition::Held).filter(|held| held.status == "False")?;
    let recent = i64::try_from(lock.spec.ttl.get().max(CHANGE_OF_LEADER).as_millis()).unwrap_or(i64::MAX);
    let again = held.last_transition_time.0.as_millisecond().saturating_add(recent).saturating_add(1_000);
    status.history.first().filter(|_| now.0 < again).map(|last| last.identity.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_whose_hold_has_just_ended_is_known_for_one_ttl_and_across_a_change_of_leader() {
        let end = serde_json::json!({"identity": "a-0", "to": "1970-01-01T00:00:10.400Z", "reason": "Released"});
        let held = serde_json::json!({"type": "Held", "status": "False", "reason": "Released", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:10Z"});
        let lock = |ttl| -> DistributedLock {
            let object = serde_json::json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "l"}, "spec": {"ttl": ttl},
                "status": {"transitions": 1, "history": [end], "conditions": [held]}});
            serde_json::from_value(object).unwrap()
        };
        for (ttl, until) in [("15s", 26_000), ("2s", 21_000)] {
            assert_eq!(just_ended(&lock(ttl), UnixMillis(until - 1)), Some("a-0"));
            assert_eq!(just_ended(&lock(ttl), UnixMillis(until)), None);
        }
    }
}
