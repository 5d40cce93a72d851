//! Who would hold a lock if it were acquired now, as the caches have it, and whether that candidate answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use parking_lot::Mutex;

use super::memory::{NOT_YET_PAUSE, Postponed};
use super::progress::Progress;
use crate::api::conditions::HeldReason;
use crate::api::{Claim, DistributedLock, Election};
use crate::lock::model::candidate::{self, Candidate, Ineligible};
use crate::lock::model::decide::{Contender, NoContender};
use crate::lock::model::job::{self, UnfitJob};
use crate::lock::model::said::Said;
use crate::lock::model::status::full_name;
use crate::lock::replica::holder;
use crate::lock::replica::liveness::{self, Asked};
use crate::runtime::context::Context;
use crate::runtime::keys;
use crate::time::{Boottime, UnixMillis};

/// Between two looks at the older claim of a Job.
const OLDER_CLAIM: Duration = Duration::from_secs(1);

/// The candidates of all locks.
///
/// It knows the pods as the caches have them, the candidates that are passed over, and what candidates have answered.
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
        let any = !candidates.is_empty();
        let candidates = self.without_excluded(lock, candidates);
        match candidate::prefer(&candidates, election.preference) {
            Some(best) => Ok(Contender::Instance(Box::new(best.clone()))),
            None if any => {
                let until = last_released(lock).and_then(|(_, again)| left_until(again, self.context.api_now()));
                Err(NoContender { why: Ineligible::JustReleased.to_string(), until })
            }
            None if reasons.is_empty() => Err(Ineligible::NoMatch { namespace: namespace.to_owned() }.into()),
            None => {
                reasons.sort();
                reasons.truncate(5);
                Err(reasons.join("; ").into())
            }
        }
    }

    /// The candidates without those to pass over, unless there are no others.
    fn without_excluded(&self, lock: &DistributedLock, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let (uid, now) = (lock.uid().unwrap_or_default(), self.context.clock.boottime());
        let api_now = self.context.api_now();
        let may_lead = |candidate: &Candidate| !has_just_released(lock, &candidate.pod_name, api_now);
        let candidates: Vec<_> = candidates.into_iter().filter(may_lead).collect();
        let (passed_over, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|candidate| {
            was_asked_to_go(lock, &candidate.pod_name) || self.exclusions.contains(&uid, &candidate.container_id, now)
        });
        if others.is_empty() { passed_over } else { others }
    }

    /// What the liveness check of a candidate says before the lock is acquired for it.
    ///
    /// A candidate that fails the check would only keep the lock from others for one TTL. So it is passed over for that
    /// long, if another candidate can lead. `None`: the candidate is well, or is not asked.
    pub(super) fn health(&self, lock: &Arc<DistributedLock>, contender: &Contender) -> Option<Progress> {
        let (Contender::Instance(candidate), Some(_asks)) = (contender, &lock.spec.liveness) else { return None };
        let (uid, now) = (lock.uid().unwrap_or_default(), self.context.clock.boottime());
        let Some(answer) = self.asked.take(&uid, &candidate.container_id, now) else {
            return Some(Progress::Ask(candidate.clone()));
        };
        let why = answer.err()?;
        if self.exclusions.add(&uid, &candidate.container_id, now, lock.spec.ttl.get()) {
            let pod = format!("{}/{}", lock.namespace().unwrap_or_default(), candidate.pod_name);
            return Some(Progress::Later(Postponed { said: Said::Unwell { pod, why }, pause: NOT_YET_PAUSE }));
        }
        // That was not known before: the next decision picks another candidate, if there is one.
        Some(Progress::Next(lock.clone()))
    }

    /// Asks a candidate, and remembers its answer for the next decision.
    pub(super) async fn ask(&self, lock: &DistributedLock, candidate: &Candidate) {
        let Some(liveness) = &lock.spec.liveness else { return };
        let pod = self.context.pods.named(&lock.namespace().unwrap_or_default(), &candidate.pod_name);
        let answer =
            liveness::ask_pod(pod.as_deref(), liveness, &*self.context.network, liveness::probe_timeout(lock)).await;
        let uid = lock.uid().unwrap_or_default();
        self.asked.answered(uid, candidate.container_id.clone(), answer, self.context.clock.boottime());
    }

    /// Drops what is remembered of a lock that is gone.
    pub(super) fn forget(&self, uid: &str) {
        self.asked.forget(uid);
    }
}

/// Ends after which another candidate is to lead. Not those that say that the holder is gone, that its health is not known, or that
/// the lock is to have no holder.
const ASKED_TO_GO: [HeldReason; 5] = [
    HeldReason::SteppedDown,
    HeldReason::Broken,
    HeldReason::HolderUnhealthy,
    HeldReason::MaxHoldReached,
    HeldReason::Released,
];

/// Whether this pod had the last hold, and that hold was ended against it.
///
/// Then another candidate leads next, however long none could be elected since. This is read from the history, so that
/// every leader knows it.
fn was_asked_to_go(lock: &DistributedLock, pod_name: &str) -> bool {
    let Some(last) = lock.status.as_ref().and_then(|status| status.history.first()) else { return false };
    last.identity == pod_name && ASKED_TO_GO.iter().any(|reason| last.reason == reason.as_str())
}

/// Whether this pod gave the lock back less than one ttl ago. If it is the only candidate, it would get a token that it does not
/// want at once. `now` is the API server's time, by which the end of the hold was written.
fn has_just_released(lock: &DistributedLock, pod_name: &str, now: UnixMillis) -> bool {
    last_released(lock).is_some_and(|(pod, again)| pod == pod_name && left_until(again, now).is_some())
}

/// The pod that gave the lock back last, if that ended the last hold, and when it may lead again.
fn last_released(lock: &DistributedLock) -> Option<(&str, UnixMillis)> {
    let last = lock.status.as_ref()?.history.first().filter(|last| last.reason == HeldReason::Released.as_str())?;
    let ttl = i64::try_from(lock.spec.ttl.get().as_millis()).unwrap_or(i64::MAX);
    Some((&last.identity, UnixMillis(last.to.as_millis().saturating_add(ttl))))
}

/// The time that is left until a moment, if it has not come.
fn left_until(moment: UnixMillis, now: UnixMillis) -> Option<Duration> {
    u64::try_from(moment.0.saturating_sub(now.0)).ok().filter(|left| *left > 0).map(Duration::from_millis)
}

/// By lock and container instance, until when.
#[derive(Debug, Default)]
struct Exclusions(Mutex<HashMap<(String, String), Boottime>>);

impl Exclusions {
    /// Adds an instance, or prolongs its time; whether it was there already.
    fn add(&self, lock: &str, container: &str, now: Boottime, time: Duration) -> bool {
        let mut until = self.0.lock();
        until.retain(|_, until| *until > now);
        until.insert((lock.to_owned(), container.to_owned()), now + time).is_some()
    }

    /// Whether an instance is to be passed over now.
    fn contains(&self, lock: &str, container: &str, now: Boottime) -> bool {
        let until = self.0.lock();
        until.get(&(lock.to_owned(), container.to_owned())).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_hold_was_ended_is_passed_over_and_whose_container_died_is_not() {
        let passed_over = |reason: &str, pod| {
            let end = serde_json::json!({"identity": "a-0", "to": "1970-01-01T00:00:10.000Z", "reason": reason});
            let object = serde_json::json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "l"}, "spec": {"ttl": "5s"}, "status": {"transitions": 1, "history": [end]}});
            was_asked_to_go(&serde_json::from_value(object).unwrap(), pod)
        };
        assert!(passed_over("SteppedDown", "a-0") && !passed_over("SteppedDown", "a-1"));
        assert!(!passed_over("HolderGone", "a-0") && !passed_over("Suspended", "a-0"));
    }

    #[test]
    fn who_gave_a_lock_back_does_not_get_it_within_one_ttl() {
        let end = serde_json::json!({"identity": "a-0", "to": "1970-01-01T00:00:10.000Z", "reason": "Released"});
        let object = serde_json::json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": "l"}, "spec": {"ttl": "5s"}, "status": {"transitions": 1, "history": [end]}});
        let lock: DistributedLock = serde_json::from_value(object).unwrap();
        let released = |pod, now| has_just_released(&lock, pod, UnixMillis(now));
        assert!(released("a-0", 14_999) && !released("a-0", 15_000) && !released("a-1", 11_000));
        let left = |now| last_released(&lock).and_then(|(_, again)| left_until(again, UnixMillis(now)));
        assert_eq!((left(14_999), left(15_000)), (Some(Duration::from_millis(1)), None));
        assert!(was_asked_to_go(&lock, "a-0"));
    }

    #[test]
    fn an_instance_is_passed_over_for_its_lock_and_for_a_while_only() {
        let at = |seconds| Boottime::new(Duration::from_secs(seconds));
        let exclusions = Exclusions::default();
        assert!(!exclusions.add("lock", "c1", at(0), Duration::from_secs(10)));
        assert!(exclusions.contains("lock", "c1", at(9)));
        assert!(!exclusions.contains("other", "c1", at(9)) && !exclusions.contains("lock", "c2", at(9)));
        assert!(!exclusions.contains("lock", "c1", at(10)));
        assert!(exclusions.add("lock", "c1", at(9), Duration::from_secs(10)));
        assert!(exclusions.contains("lock", "c1", at(18)));
    }
}
