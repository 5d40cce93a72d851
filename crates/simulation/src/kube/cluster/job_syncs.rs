//! The Job controller with suspension, which acts on the state of a Job that it read before.
//!
//! The controller reads a Job, and applies its decision after a delay. In between it can create a pod of a Job that has
//! just been suspended. It writes the status last, on the version that it read. Therefore the condition Suspended is
//! true of a Job whose pods the controller knows. The pods that it deletes for a suspension count neither as failed nor
//! as succeeded.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::{ApiServer, DeleteOptions, Kind, Part, Shared, seconds};
use super::jobs::{TRACKING, number, untrack};
use super::workloads::{has_ended, pods_of};
use super::{Cluster, Place, Task, by, place};

/// Jobs that the controller read, in that state, and Jobs that it must read again.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    snapshots: BTreeMap<Place, Shared>,
    again: BTreeSet<Place>,
}

/// The pods of a Job, by state.
struct Pods {
    active: Vec<Shared>,
    /// Pods with a deletion time that have not ended.
    terminating: Vec<Shared>,
    ended: Vec<Shared>,
}

impl Pods {
    fn of(job: &Shared, api: &ApiServer) -> Self {
        let (ended, rest): (Vec<_>, Vec<_>) = pods_of(job, api).into_iter().partition(has_ended);
        let (terminating, active) = rest.into_iter().partition(|pod| pod.is_deleting());
        Self { active, terminating, ended }
    }

    /// The pods that count and are not in the status yet.
    ///
    /// With `podReplacementPolicy: Failed` a pod counts when it has ended. All pods of a finished Job count.
    fn uncounted(&self, job: &Shared, has_finished: bool) -> Vec<&Shared> {
        let terminating = self.terminating.iter().filter(|_| has_finished || !waits_for_ends(job) || job.is_deleting());
        let active = self.active.iter().filter(|_| has_finished);
        self.ended.iter().chain(terminating).chain(active).filter(|pod| is_tracked(pod)).collect()
    }
}

impl Cluster {
    pub(super) fn suspends_jobs(&self) -> bool {
        self.settings.suspends_jobs
    }

    /// The controller reads a Job.
    ///
    /// It runs one sync at a time, and reads again after it.
    pub(super) fn begin_sync(&mut self, job: &Shared, now: Millis) {
        let at = place(job.namespace(), job.name());
        if self.syncs.snapshots.contains_key(&at) {
            self.syncs.again.insert(at);
            return;
        }
        self.syncs.snapshots.insert(at.clone(), job.clone());
        self.soon(now, "sync", job.uid(), self.settings.reaction, Task::SyncJob(at));
    }

    pub(super) fn carry_out_sync(&mut self, at: &Place, api: &mut ApiServer, now: Millis) {
        let Some(job) = self.syncs.snapshots.remove(at) else { return };
        let pods = Pods::of(&job, api);
        let by = by(now, "job-controller");
        let finish = finish(&job, &pods);
        let counted = pods.uncounted(&job, finish.is_some());
        let status = self.sync(&job, &pods, (finish, &counted), api, now);
        let is_as_seen = api.get(Kind::Job, &at.0, &at.1).is_some_and(|found| found.version() == job.version());
        if is_as_seen {
            let _ = api.edit(Kind::Job, (&at.0, &at.1), Part::Status, by, |value| value["status"] = status);
            counted.into_iter().for_each(|pod| untrack(pod, api, by));
        }
        if self.syncs.again.remove(at) || !is_as_seen {
            self.soon(now, "workload", job.uid(), self.settings.reaction, Task::Workload(Kind::Job, at.clone()));
        }
    }

    /// Creates and deletes pods, and returns the new status.
    ///
    /// `finish` is the condition of a Job that has just finished. `counted` contains the pods that count now.
    fn sync(
        &mut self,
        job: &Shared,
        pods: &Pods,
        (finish, counted): (Option<&'static str>, &[&Shared]),
        api: &mut ApiServer,
        now: Millis,
    ) -> Value {
        let (spec, by) = (&job.value["spec"], by(now, "job-controller"));
        let mut status = job.value["status"].clone();
        let (succeeded, failed) = totals(job, counted);
        let suspended = spec["suspend"] == json!(true);
        let has_finished = finish.is_some() || is_finished(&status);
        let mut active = pods.active.len() as u64;
        if has_finished || suspended {
            for pod in pods.active.iter().filter(|_| !job.is_deleting()) {
                // A pod without the finalizer does not count.
                if !has_finished {
                    untrack(pod, api, by);
                }
                let options = DeleteOptions { uid: Some(pod.uid().to_owned()), ..DeleteOptions::default() };
                let _ = api.delete(Kind::Pod, (pod.namespace(), pod.name()), &options, by);
            }
            active = 0;
        } else if !job.is_deleting() {
            let terminating = if waits_for_ends(job) { pods.terminating.len() as u64 } else { 0 };
            let wanted = number(&spec["parallelism"]).min(completions(job).saturating_sub(succeeded));
            if active + terminating < wanted {
                active += u64::from(self.next_pod(job, failed, api, now));
            }
        }
        let goes_on = !has_finished && !job.is_deleting();
        set(&mut status, finish, goes_on.then_some(suspended), now);
        let terminating = pods.terminating.len() as u64;
        for (field, count) in
            [("failed", failed), ("succeeded", succeeded), ("active", active), ("terminating", terminating)]
        {
            status[field] = json!(count);
        }
        status
    }
}

/// The totals of succeeded and failed pods, including those that count now.
fn totals(job: &Shared, counted: &[&Shared]) -> (u64, u64) {
    let status = &job.value["status"];
    let news = counted.iter().filter(|pod| pod.value["status"]["phase"] == "Succeeded").count();
    (number(&status["succeeded"]) + news as u64, number(&status["failed"]) + (counted.len() - news) as u64)
}

fn completions(job: &Shared) -> u64 {
    number(&job.value["spec"]["completions"]).max(1)
}

/// The condition of a Job that finishes in this sync.
fn finish(job: &Shared, pods: &Pods) -> Option<&'static str> {
    if job.is_deleting() || is_finished(&job.value["status"]) {
        return None;
    }
    let (succeeded, failed) = totals(job, &pods.uncounted(job, false));
    let has_failed = failed > number(&job.value["spec"]["backoffLimit"]);
    if succeeded >= completions(job) { Some("Complete") } else { has_failed.then_some("Failed") }
}

fn is_finished(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let is = |found: &Value| found["status"] == "True" && found["type"] != "Suspended";
    conditions.into_iter().any(is)
}

/// Sets start time and conditions.
///
/// `suspended` is `None` if that condition does not change.
fn set(status: &mut Value, finish: Option<&str>, suspended: Option<bool>, now: Millis) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let condition = |kind: &str, is: bool| json!({"type": kind, "status": if is { "True" } else { "False" }, "lastTransitionTime": seconds(now)});
    let known = conditions.iter().position(|found| found["type"] == "Suspended");
    match (suspended, known) {
        (Some(true), None) => conditions.push(condition("Suspended", true)),
        (Some(suspended), Some(known)) if suspended != (conditions[known]["status"] == "True") => {
            conditions[known] = condition("Suspended", suspended);
            if !suspended {
                status["startTime"] = json!(seconds(now));
            }
        }
        _ => {}
    }
    if suspended == Some(false) && status["startTime"].is_null() {
        status["startTime"] = json!(seconds(now));
    }
    conditions.extend(finish.map(|kind| condition(kind, true)));
    if !conditions.is_empty() {
        status["conditions"] = json!(conditions);
    }
}

/// Whether a pod is replaced when the earlier one has ended, instead of when its deletion begins.
fn waits_for_ends(job: &Shared) -> bool {
    job.value["spec"]["podReplacementPolicy"] == "Failed"
}

fn is_tracked(pod: &Shared) -> bool {
    pod.value["metadata"]["finalizers"].to_string().contains(TRACKING)
}
