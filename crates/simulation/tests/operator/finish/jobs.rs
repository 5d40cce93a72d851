//! Checks the end of a run for Jobs that hold locks: none is stuck.

use redlock_api::JOB_LOCK_ANNOTATION;
use serde_json::json;

use crate::oracle::has_finished;
use crate::world::World;
use redlock_simulation::kube::api::{Kind, Shared};

/// Whether the Job is suspended, has that condition, and has no pod that can run.
fn is_at_rest(job: &Shared) -> bool {
    let conditions = job.value["status"]["conditions"].as_array().into_iter().flatten();
    let mut suspended = conditions.filter(|found| found["type"] == "Suspended" && found["status"] == "True");
    let status = &job.value["status"];
    job.value["spec"]["suspend"] == json!(true) && suspended.next().is_some() && status["active"].as_u64() == Some(0)
}

impl World {
    fn has_pod_that_runs(&self, job: &Shared) -> bool {
        let owners = [job.uid().to_owned()];
        self.cluster.runs_for(&owners)
    }

    /// Whether a Job waits only for its lock.
    pub(super) fn can_be_started(&self, namespace: &str, name: &str, uid: Option<&str>) -> bool {
        let job = self.api.server.get(Kind::Job, namespace, name);
        job.is_some_and(|job| {
            let is_it = uid.is_none_or(|uid| uid == job.uid()) && !job.is_deleting() && !has_finished(&job);
            is_it && is_at_rest(&job) && !self.has_pod_that_runs(&job)
        })
    }

    /// Holds of Jobs that do not work, and Jobs that wait for a free lock.
    pub(super) fn unrest_of_jobs(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let locks: Vec<&Shared> = self.api.server.objects(Kind::DistributedLock).collect();
        for lock in &locks {
            let (name, holder) = (lock.name(), &lock.value["status"]["holder"]);
            let Some(job_name) = holder["jobName"].as_str() else { continue };
            let job = self.api.server.get(Kind::Job, lock.namespace(), job_name);
            let job = job.filter(|job| holder["jobUID"] == job.uid());
            let why = match &job {
                None => "is gone",
                Some(job) if has_finished(job) => "has finished",
                Some(job) if job.value["spec"]["suspend"] == json!(true) => "is suspended",
                Some(_) => continue,
            };
            wrong.push(format!(
                "{name} is held for Job {job_name}, which {why}: {}",
                lock.value["status"]["conditions"]
            ));
        }
        for job in self.api.server.objects(Kind::Job) {
            let asks = job.annotation(JOB_LOCK_ANNOTATION).is_some_and(|key| !key.is_empty())
                && !has_finished(job)
                && !job.is_deleting();
            let has_claim = locks.iter().any(|lock| lock.value["spec"]["claim"]["jobUID"] == job.uid());
            if asks && job.value["spec"]["suspend"] == json!(true) && !has_claim {
                wrong.push(format!("Job {} asks for a lock and has no claim", job.name()));
            }
        }
        wrong
    }
}
