//! Requests that the API server refuses, and Jobs that cannot have their lock.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::batch::v1::Job;
use redlock_operator::job::model::claim_name;
use serde_json::{Value, json};

use super::{
    policy::Policy,
    surfaces::{event_names, lock_names},
    webhook::Webhook,
};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, status, with},
    pods::{container, pod_security},
    suite_lock::support::{IDLE, POD_LIMIT, election, run, worker},
};

const TTL: Duration = Duration::from_secs(3);

fn job(bench: &Bench, more: Value) -> Value {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "work", "annotations": {"redlock-operator.io/lock": "work"}},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never",
            "securityContext": pod_security(),
            "containers": [container(bench, "work", "true")],
        }}},
    });
    with(job, more)
}

pub(crate) async fn a_job_that_is_not_suspended_is_refused(bench: Bench) -> anyhow::Result<()> {
    let job = job(&bench, json!({"suspend": false}));
    let template = json!({"metadata": {"annotations": job["metadata"]["annotations"]}, "spec": job["spec"]});
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "work"},
        "spec": {"schedule": "* * * * *", "jobTemplate": template},
    });
    for refused in [job, cron] {
        let message = bench.refused(&refused.to_string()).await?;
        ensure!(message.contains("suspend: true"), "{message}");
    }
    Ok(())
}

pub(crate) async fn a_job_that_another_controller_runs_is_named(bench: Bench) -> anyhow::Result<()> {
    let job = job(&bench, json!({"managedBy": "example.com/queue"})).to_string();
    let applied = bench.kubectl_output(&["apply", "-f", "-"], &job).await?;
    let message = String::from_utf8_lossy(&applied.stderr).into_owned();
    if applied.status.success() {
        event_names(&bench, "work", &["example.com/queue"]).await
    } else {
        ensure!(message.contains("managedBy"), "{message}");
        Ok(())
    }
}

pub(crate) async fn a_policy_that_refuses_the_label_is_named(bench: Bench) -> anyhow::Result<()> {
    run(&bench, worker(&bench, "app-0", "app", IDLE)).await?;
    let policy = Policy {
        group: "",
        operation: "UPDATE",
        resource: "pods",
        admits: "object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({})",
        message: "labels of pods are final",
    };
    let test = async {
        let mut lock = election("app", "app", TTL);
        lock["spec"]["election"]["leaderLabel"] = json!(true);
        let lock = Lock::create(&bench, lock).await?;
        lock.held(POD_LIMIT + SOON).await?;
        event_names(&bench, "app", &["app-0", policy.message]).await?;
        lock_names(&bench, "app", "Held", &[policy.message]).await
    };
    policy.during(&bench, &["label", "pod", "app-0", "other=true"], "", test).await
}

/// Runs a test while a policy refuses updates of Jobs, such as this value of `suspend`.
async fn while_refused(
    bench: &Bench,
    suspend: bool,
    admits: &str,
    message: &str,
    test: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut other = job(bench, json!({"suspend": !suspend}));
    other["metadata"] = json!({"name": "other"});
    bench.create::<Job>(other).await?;
    let patch = json!({"spec": {"suspend": suspend}}).to_string();
    let policy = Policy { group: "batch", operation: "UPDATE", resource: "jobs", admits, message };
    policy.during(bench, &["patch", "job", "other", "-p", &patch], "", test).await
}

pub(crate) async fn a_policy_that_refuses_the_start_of_a_job_is_named(bench: Bench) -> anyhow::Result<()> {
    let test = async {
        let created = bench.create::<Job>(job(&bench, json!({}))).await?;
        let claim = claim_name(&created);
        event_names(&bench, &claim, &["JobNotStarted", "Jobs start by hand"]).await?;
        lock_names(&bench, &claim, "Held", &["Jobs start by hand"]).await
    };
    let admits = "object.spec.?suspend.orValue(false) == oldObject.spec.?suspend.orValue(false)";
    while_refused(&bench, false, admits, "Jobs start by hand", test).await
}

pub(crate) async fn a_policy_that_refuses_the_end_of_a_job_is_named(bench: Bench) -> anyhow::Result<()> {
    let mut work = job(&bench, json!({}));
    work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(2);
    work["spec"]["template"]["spec"]["containers"] = json!([container(&bench, "work", IDLE)]);
    let claim = claim_name(&bench.create::<Job>(work).await?);
    lock_names(&bench, &claim, "Held", &["work"]).await?;
    let test = async {
        bench.kubectl(&["annotate", "dlock", &claim, "redlock-operator.io/step-down=test"]).await?;
        lock_names(&bench, &claim, "", &["Jobs run to their end"]).await?;
        event_names(&bench, &claim, &["JobNotSuspended", "Jobs run to their end"]).await
    };
    let admits = "!object.spec.?suspend.orValue(false) || oldObject.spec.?suspend.orValue(false)";
    while_refused(&bench, true, admits, "Jobs run to their end", test).await
}

pub(crate) async fn a_policy_that_refuses_metadata_delays_no_renewal(bench: Bench) -> anyhow::Result<()> {
    let release = "redlock-operator.io/release";
    let mut waiting = with(claim("waiting", "waiting", None, TTL), json!({"suspend": true}));
    waiting["metadata"]["annotations"] = json!({release: "1"});
    Lock::create(&bench, waiting).await?;
    let has = |object: &str| format!("\"{release}\" in {object}.metadata.?annotations.orValue({{}})");
    let policy = Policy {
        group: "redlock-operator.io",
        operation: "UPDATE",
        resource: "distributedlocks",
        admits: &format!("!({}) || {}", has("oldObject"), has("object")),
        message: "annotations are final",
    };
    let test = async {
        let lock = Lock::take(&bench, claim("held", "held", None, TTL)).await?;
        bench.kubectl(&["annotate", "dlock", "held", &format!("{release}=1")]).await?;
        event_names(&bench, "held", &["MetadataRefused", policy.message]).await?;
        lock_names(&bench, "held", "Held", &[policy.message]).await?;
        let published = status(&lock.recorder.last()?.object).valid_until;
        lock.recorder.until(SOON, "a later validity", |v| status(&v.object).valid_until > published).await.map(drop)
    };
    policy.during(&bench, &["annotate", "dlock", "waiting", &format!("{release}-")], "", test).await
}

pub(crate) async fn a_webhook_that_removes_the_finalizer_is_named(bench: Bench) -> anyhow::Result<()> {
    let webhook = Webhook::start(&bench).await?;
    let named = async {
        let _lock = Lock::create(&bench, claim("waiting", "waiting", None, TTL)).await?;
        lock_names(&bench, "waiting", "Pending", &["an admission webhook or policy undid this change"]).await?;
        let start = bench.now();
        for _ in 0..3 {
            webhook.next_request().await?;
        }
        let took = bench.now().since(start);
        ensure!(took > Duration::from_secs(1), "the operator repeats the write three times within {took:?}");
        Ok(())
    };
    let named = named.await;
    webhook.delete().await?;
    named
}
