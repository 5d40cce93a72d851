//! Checks Jobs that hold locks.
//!
//! A Job starts under the hold that its status names, and is suspended before the status drops the hold.

use std::collections::{BTreeMap, BTreeSet};

use redlock_api::{BREAK_FORCE_ANNOTATION, DistributedLockStatus, JOB_TOKEN_ANNOTATION, RELEASE_ANNOTATION};
use serde_json::{Value, json};

use crate::cluster::JobHold;
use crate::plan::Fault;
use crate::world::World;
use redlock_simulation::kube::api::{Change, Entry, Kind, Shared};

/// The oracle's history of Jobs.
#[derive(Default)]
pub(super) struct Jobs {
    /// The holds that a status has named, with the value on the members.
    named: BTreeMap<JobHold, String>,
    /// Holds that were released on request.
    ///
    /// Their Jobs are not checked further.
    given_up: BTreeSet<JobHold>,
    /// Jobs that users have started.
    by_hand: BTreeSet<String>,
}

fn is_suspended(job: &Shared) -> bool {
    job.value["spec"]["suspend"] == json!(true)
}

/// Whether the Job has a final condition.
pub(crate) fn has_finished(job: &Shared) -> bool {
    let conditions = job.value["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|found| found["status"] == "True" && found["type"] != "Suspended")
}

/// The token on the pod template.
fn template_token(job: &Shared) -> Option<i64> {
    job.value["spec"]["template"]["metadata"]["annotations"][JOB_TOKEN_ANNOTATION].as_str()?.parse().ok()
}

/// The hold of a Job that a status names, and its nonce.
fn hold_of(status: &Value) -> Option<(JobHold, String)> {
    let (holder, token) = (&status["holder"], status["fencingToken"].as_i64()?);
    Some(((holder["jobUID"].as_str()?.to_owned(), token), holder["nonce"].as_str()?.to_owned()))
}

impl World {
    fn job_with(&self, namespace: &str, uid: &str) -> Option<Shared> {
        let mut jobs = self.api.server.objects(Kind::Job).filter(|job| job.namespace() == namespace);
        jobs.find(|job| job.uid() == uid).cloned()
    }

    /// Whether the API server can have refused the write that ends a hold.
    ///
    /// Other claims can take the lock although the write was refused.
    fn is_refused(&self) -> bool {
        self.plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::Refuse { code: 403, .. }))
    }

    /// Observes the write of a Job.
    pub(super) fn observe_job(&mut self, entry: &Entry) {
        let job = &entry.object;
        let Some(before) = entry.before.as_ref().filter(|_| entry.change == Change::Modified) else { return };
        match (is_suspended(before), is_suspended(job)) {
            (true, false) if self.oracle.by_hand => drop(self.oracle.jobs.by_hand.insert(job.uid().to_owned())),
            (true, false) => self.judge_start_of_job(job),
            (false, true) if !self.oracle.by_hand => self.oracle.counts.jobs_stopped += 1,
            _ => return,
        }
        let (name, token) = (job.name(), template_token(job));
        self.note(format_args!("job {name} suspended {} template token {token:?}", is_suspended(job)));
    }

    /// Checks a Job that the operator has started.
    ///
    /// A status must name the hold whose token is on the template.
    fn judge_start_of_job(&mut self, job: &Shared) {
        self.oracle.counts.jobs_started += 1;
        let Some(token) = template_token(job) else {
            return self.oracle.violated(format!("Job {} was started without a token at {}", job.name(), self.now));
        };
        let hold = (job.uid().to_owned(), token);
        let locks = self.api.server.objects(Kind::DistributedLock);
        let is_named =
            locks.into_iter().any(|lock| hold_of(&lock.value["status"]).is_some_and(|(held, _)| held == hold));
        let was_freed = self.is_refused() && self.oracle.jobs.given_up.contains(&hold);
        if !is_named && !was_freed {
            let what =
                format!("Job {} was started at {} under token {token}, which no status names", job.name(), self.now);
            self.oracle.violated(what);
        }
    }

    /// Checks that a status has named the hold under which a new pod was created.
    pub(super) fn judge_pod(&mut self, entry: &Entry) {
        let Some(hold) = self.cluster.hold_of(entry.object.uid()).filter(|_| entry.change == Change::Added) else {
            return;
        };
        self.oracle.counts.job_pods += 1;
        if !self.oracle.jobs.named.contains_key(hold) {
            let what = format!("pod {} has token {}, which no status has named", entry.object.name(), hold.1);
            self.oracle.violated(what);
        }
    }

    /// Checks the start of a container.
    ///
    /// No other belief in the key can exist while the hold of its pod is valid.
    pub(crate) fn judge_start(&mut self, pod_uid: &str) {
        let Some(nonce) = self.cluster.hold_of(pod_uid).and_then(|hold| self.oracle.jobs.named.get(hold)).cloned()
        else {
            return;
        };
        if let Some(belief) = self.oracle.beliefs.get(&nonce).cloned() {
            let belief = super::Belief { from: self.now, ..belief };
            self.oracle.believes(&nonce, belief, &self.cluster);
        }
    }

    /// Observes the write of a lock that a Job holds or held.
    pub(super) fn judge_job_hold(&mut self, entry: &Entry, status: &DistributedLockStatus) {
        let now = hold_of(&entry.object.value["status"]).filter(|_| entry.change != Change::Deleted);
        if let Some((hold, nonce)) = &now {
            let word = entry.object.annotation(RELEASE_ANNOTATION) == Some(hold.1.to_string().as_str());
            if word || entry.object.annotation(BREAK_FORCE_ANNOTATION).is_some() {
                self.oracle.jobs.given_up.insert(hold.clone());
            }
            self.oracle.jobs.named.insert(hold.clone(), nonce.clone());
        }
        let before = entry.before.as_ref().map(|before| before.value["status"].clone()).unwrap_or_default();
        let Some((hold, nonce)) = hold_of(&before).filter(|(_, nonce)| now.as_ref().is_none_or(|now| now.1 != *nonce))
        else {
            return;
        };
        if self.oracle.jobs.given_up.contains(&hold) || self.oracle.by_hand {
            return;
        }
        let reason = status.history.first().map(|past| past.reason.clone()).unwrap_or_default();
        let what = format!(
            "{} lets the hold of its Job with token {} go ({reason}) at {}",
            entry.object.name(),
            hold.1,
            self.now
        );
        self.judge_suspension(entry.object.namespace(), &hold, &what);
        if before["ending"].is_null() && reason != "Expired" {
            self.oracle.counts.jobs_released += 1;
            if self.cluster.runs_under(&hold) {
                self.oracle.violated(format!("{what} at once, and a pod of it runs"));
            }
        }
        self.note(format_args!("{what}, nonce {nonce}"));
    }

    /// Checks the Job of a hold that ends.
    ///
    /// The Job must be suspended or finished, unless a user started it.
    fn judge_suspension(&mut self, namespace: &str, hold: &JobHold, what: &str) {
        let Some(job) = self.job_with(namespace, &hold.0).filter(|_| !self.is_refused()) else { return };
        let is_at_work = !is_suspended(&job) && !has_finished(&job) && !job.is_deleting();
        if is_at_work && template_token(&job) == Some(hold.1) && !self.oracle.jobs.by_hand.contains(job.uid()) {
            self.oracle.violated(format!("{what}, and Job {} is not suspended", job.name()));
        }
    }
}
