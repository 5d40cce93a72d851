//! The Job controller: pods with retries, and the finalizer by which it counts them.
//!
//! Seeds whose Jobs hold locks use [`super::job_syncs`], which suspends Jobs like the real controller. Other seeds keep
//! this one, so their histories do not change.

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::{ApiServer, DeleteOptions, Kind, Part, Shared, millis, seconds};
use super::workloads::{from_template, has_ended, pods_of};
use super::{Cluster, Task, by, place};

pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

impl Cluster {
    pub(super) fn job(&mut self, job: &Shared, api: &mut ApiServer, now: Millis) {
        let by = by(now, "job-controller");
        let mut status = job.value["status"].clone();
        if !status.is_object() {
            status = json!({});
        }
        let (mut failed, mut succeeded) = (number(&status["failed"]), number(&status["succeeded"]));
        for pod in pods_of(job, api) {
            let is_tracked = pod.value["metadata"]["finalizers"].to_string().contains(TRACKING);
            if !is_tracked || !(has_ended(&pod) || pod.is_deleting()) {
                continue;
            }
            // A pod with a deletion time counts as failed, even if its containers succeed.
            match pod.value["status"]["phase"].as_str() {
                Some("Succeeded") => succeeded += 1,
                _ => failed += 1,
            }
            untrack(&pod, api, by);
        }
        let active: Vec<_> =
            pods_of(job, api).into_iter().filter(|pod| !pod.is_deleting() && !has_ended(pod)).collect();
        let spec = &job.value["spec"];
        let is_finished = status["conditions"].to_string().contains("\"True\"");
        let finish = match () {
            () if is_finished || job.is_deleting() => None,
            () if succeeded >= number(&spec["completions"]).max(1) => Some("Complete"),
            () if failed > number(&spec["backoffLimit"]) => Some("Failed"),
            () => None,
        };
        let stops = spec["suspend"] == json!(true) || is_finished || finish == Some("Failed");
        let missing = number(&spec["parallelism"]).min(number(&spec["completions"]).max(1).saturating_sub(succeeded));
        if stops {
            for pod in &active {
                let options = DeleteOptions { uid: Some(pod.uid().to_owned()), ..DeleteOptions::default() };
                let _ = api.delete(Kind::Pod, (pod.namespace(), pod.name()), &options, by);
            }
        } else if finish.is_none() && !job.is_deleting() && (active.len() as u64) < missing {
            self.next_pod(job, failed, api, now);
        }
        status["failed"] = json!(failed);
        status["succeeded"] = json!(succeeded);
        status["active"] = json!(if stops { 0 } else { active.len() });
        if let Some(type_) = finish {
            status["conditions"] = json!([{"type": type_, "status": "True", "lastTransitionTime": seconds(now)}]);
        }
        let _ = api.edit(Kind::Job, (job.namespace(), job.name()), Part::Status, by, |value| value["status"] = status);
    }

    /// Creates the next pod after a delay that grows with failures.
    ///
    /// Returns whether it created one.
    pub(super) fn next_pod(&mut self, job: &Shared, failed: u64, api: &mut ApiServer, now: Millis) -> bool {
        let by = by(now, "job-controller");
        let newest = pods_of(job, api)
            .iter()
            .filter_map(|pod| millis(pod.value["metadata"]["creationTimestamp"].as_str()?))
            .max();
        let pause = if failed == 0 { 0 } else { self.settings.job_backoff << (failed - 1).min(6) };
        if let Some(newest) = newest
            && failed > 0
            && now < newest + pause
        {
            self.at(newest + pause, Task::Workload(Kind::Job, place(job.namespace(), job.name())));
            return false;
        }
        let mut pod = from_template(job, Kind::Job, &[]);
        pod["metadata"]["generateName"] = json!(format!("{}-", job.name()));
        pod["metadata"]["finalizers"] = json!([TRACKING]);
        if pod["spec"]["restartPolicy"] == "Always" {
            pod["spec"]["restartPolicy"] = json!("Never");
        }
        api.create(Kind::Pod, job.namespace(), pod, by).is_ok()
    }
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// Removes the finalizer of a pod that is counted, or whose Job is gone.
pub(super) fn untrack(pod: &Shared, api: &mut ApiServer, by: super::super::api::By<'_>) {
    let _ = api.edit(Kind::Pod, (pod.namespace(), pod.name()), Part::Main, by, |value| {
        if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != TRACKING);
        }
    });
}
