//! Jobs that hold locks.
//!
//! Users create them suspended.

use redlock_api::{
    JOB_LOCK_ANNOTATION, JOB_MAX_HOLD_ANNOTATION, JOB_MIN_HOLD_ANNOTATION, JOB_ON_WAIT_TIMEOUT_ANNOTATION,
    JOB_QUORUM_ANNOTATION, JOB_TTL_ANNOTATION, JOB_WAIT_TIMEOUT_ANNOTATION,
};
use serde_json::{Value, json};

use super::super::api::{DeleteOptions, Kind, Propagation, Shared};
use super::super::chance::Chance as _;
use super::{DeedKind, Hands, Users, specs};

/// Maximum number of Jobs at a time.
const MOST: usize = 8;

impl Users {
    pub(super) fn act_on_locked_jobs(&mut self, kind: DeedKind, hands: &mut Hands<'_>) -> Option<String> {
        if !matches!(kind, DeedKind::LockedJob | DeedKind::NamedJob) {
            return None;
        }
        if hands.api.objects(Kind::Job).count() >= MOST {
            return tidy_up(hands);
        }
        let namespace = hands.chance.pick(&self.around.namespaces)?.clone();
        let name = self.name("locked");
        let mut job = suspended_job(&name, hands);
        if kind == DeedKind::LockedJob {
            job["metadata"]["annotations"] = self.annotations(hands);
            let annotations = job["metadata"]["annotations"].to_string();
            return Some(format!("{} {annotations}", hands.create(Kind::Job, &namespace, job).0));
        }
        // The Job's owner permits a claim of another user to start it.
        job["metadata"]["annotations"] = json!({JOB_LOCK_ANNOTATION: ""});
        let mut holder = json!({"jobName": name});
        if hands.chance.percent(25) {
            // The claim exists before its Job.
            let pause = i64::try_from(hands.chance.below(3_000)).unwrap_or_default();
            self.wish(Kind::Job, &namespace, job, hands.by.now + pause);
        } else {
            let made = hands.create(Kind::Job, &namespace, job).1?;
            if hands.chance.percent(50) {
                holder["jobUID"] = json!(made.uid());
            }
        }
        let spec = specs::claim(&self.around, &mut hands.chance, holder);
        Some(hands.create(Kind::DistributedLock, &namespace, json!({"metadata": {"name": name}, "spec": spec})).0)
    }

    fn annotations(&self, hands: &mut Hands<'_>) -> Value {
        let chance = &mut hands.chance;
        // The Job has the fields that the specification of a claim can have.
        let spec = specs::claim(&self.around, chance, json!({}));
        let mut annotations = json!({JOB_LOCK_ANNOTATION: spec["key"], JOB_TTL_ANNOTATION: spec["ttl"]});
        if chance.percent(10) {
            annotations[JOB_LOCK_ANNOTATION] = json!("x/{job}");
        }
        for (annotation, field) in [
            (JOB_MAX_HOLD_ANNOTATION, "maxHold"),
            (JOB_MIN_HOLD_ANNOTATION, "minHold"),
            (JOB_WAIT_TIMEOUT_ANNOTATION, "waitTimeout"),
        ] {
            if spec[field].is_string() {
                annotations[annotation] = spec[field].clone();
            }
        }
        if chance.percent(30) {
            annotations[JOB_ON_WAIT_TIMEOUT_ANNOTATION] = json!(if chance.percent(60) { "Delete" } else { "Suspend" });
        }
        if let Some(name) = spec["quorumRef"]["name"].as_str() {
            annotations[JOB_QUORUM_ANNOTATION] = json!(name);
        }
        annotations
    }
}

/// A Job, usually with one pod that works for some seconds.
///
/// One in twenty is created without suspension, by mistake.
fn suspended_job(name: &str, hands: &mut Hands<'_>) -> Value {
    let chance = &mut hands.chance;
    let run = if chance.percent(40) { chance.between(8_000, 25_000) } else { chance.between(300, 6_000) };
    let code = if chance.percent(25) { "1" } else { "0" };
    // With `OnFailure`, a container that always fails would restart for the whole run.
    let policy = if code == "0" && chance.percent(30) { "OnFailure" } else { "Never" };
    let annotations = json!({"simulation/run-millis": run.to_string(), "simulation/exit-code": code});
    let grace = chance.between(1, 6);
    let pod =
        json!({"restartPolicy": policy, "terminationGracePeriodSeconds": grace, "containers": [{"name": "work"}]});
    let pods = if chance.percent(20) { 2 } else { 1 };
    json!({"metadata": {"name": name}, "spec": {
        "suspend": !chance.percent(5), "backoffLimit": chance.below(3),
        "parallelism": pods, "completions": pods,
        "template": {"metadata": {"annotations": annotations}, "spec": pod}}})
}

/// Deletes a finished Job with its claim.
fn tidy_up(hands: &mut Hands<'_>) -> Option<String> {
    let finished = |job: &Shared| {
        let conditions = job.value["status"]["conditions"].as_array().into_iter().flatten();
        let mut true_ones = conditions.filter(|found| found["status"] == "True");
        !job.is_deleting() && true_ones.any(|found| found["type"] != "Suspended")
    };
    let job = hands.any(Kind::Job, finished)?;
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    Some(hands.delete(Kind::Job, &job, &options))
}
