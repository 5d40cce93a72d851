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
    locks::{Lock, SOON, claim, status},
    suite_lock::support::{IDLE, POD_LIMIT, container, election, run, worker},
};

const TTL: Duration = Duration::from_secs(3);

fn job(bench: &Bench, more: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "work", "annotations": {"redlock-operator.io/lock": "work"}},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never",
            "securityContext": crate::pods::pod_security(),
            "containers": [container(bench, "work", "true")],
        }}},
    });
    if let (Some(spec), Value::Object(more)) = (job["spec"].as_object_mut(), more) {
        spec.extend(more);
    }
    job
}

pub(crate) async fn a_job_that_is_not_suspended_is_refused(bench: Bench) -> anyhow::Result<()> {
    let message = bench.refused(&job(&bench, json!({"suspend": false})).to_string()).await?;
    ensure!(message.contains("suspend: true"), "{message}");
    let job = job(&bench, json!({"suspend": false}));
    let template = json!({"metadata": {"annotations": job["metadata"]["annotations"]}, "spec": job["spec"]});
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "work"},
        "spec": {"schedule": "* * * * *", "jobTemplate": template},
    });
    let message = bench.refused(&cron.to_string()).await?;
    ensure!(message.contains("suspend: true"), "{message}");
    Ok(())
}

pub(crate) async fn a_job_that_another_controller_runs_is_named(bench: Bench) -> anyhow::Result<()> {
    let job = job(&bench, json!({"managedBy": "example.com/queue"})).to_string();
    let applied = bench.cluster.kubectl_output(&["-n", &bench.namespace, "apply", "-f", "-"], &job).await?;
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
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]});
    let expression = "object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({})";
    let label = ["-n", &bench.namespace, "label", "pod", "app-0", "other=true", "--dry-run=server"];
    let probe = async || bench.cluster.kubectl_output(&label, "").await;
    let policy = Policy::create(&bench, rule, expression, "labels of pods are final", probe).await?;
    let mut lock = election("app", "app", TTL);
    lock["spec"]["election"]["leaderLabel"] = json!(true);
    let lock = Lock::create(&bench, lock).await?;
    let named = async {
        lock.held(POD_LIMIT + SOON).await?;
        event_names(&bench, "app", &["app-0", "labels of pods are final"]).await?;
        lock_names(&bench, "app", "Held", &["labels of pods are final"]).await
    };
    let named = named.await;
    policy.delete().await?;
    named
}

/// Creates a policy on updates of Jobs, and waits until it refuses this value of `suspend` for a Job of its own.
async fn refuse_suspend<'a>(
    bench: &'a Bench,
    suspend: bool,
    expression: &str,
    message: &str,
) -> anyhow::Result<Policy<'a>> {
    let mut other = job(bench, json!({"suspend": !suspend}));
    other["metadata"] = json!({"name": "other"});
    bench.create::<Job>(other).await?;
    let rule = json!({"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["jobs"]});
    let patch = json!({"spec": {"suspend": suspend}}).to_string();
    let change = ["-n", &bench.namespace, "patch", "job", "other", "-p", &patch, "--dry-run=server"];
    let probe = async || bench.cluster.kubectl_output(&change, "").await;
    Policy::create(bench, rule, expression, message, probe).await
}

pub(crate) async fn a_policy_that_refuses_the_start_of_a_job_is_named(bench: Bench) -> anyhow::Result<()> {
    let expression = "object.spec.?suspend.orValue(false) == oldObject.spec.?suspend.orValue(false)";
    let policy = refuse_suspend(&bench, false, expression, "Jobs start by hand").await?;
    let named = async {
        let created = bench.create::<Job>(job(&bench, json!({}))).await?;
        let claim = claim_name(&created);
        event_names(&bench, &claim, &["JobNotStarted", "Jobs start by hand"]).await?;
        lock_names(&bench, &claim, "Held", &["Jobs start by hand"]).await
    };
    let named = named.await;
    policy.delete().await?;
    named
}

pub(crate) async fn a_policy_that_refuses_the_end_of_a_job_is_named(bench: Bench) -> anyhow::Result<()> {
    let mut work = job(&bench, json!({}));
    work["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(2);
    work["spec"]["template"]["spec"]["containers"] = json!([container(&bench, "work", IDLE)]);
    let claim = claim_name(&bench.create::<Job>(work).await?);
    lock_names(&bench, &claim, "Held", &["work"]).await?;
    let expression = "!object.spec.?suspend.orValue(false) || oldObject.spec.?suspend.orValue(false)";
    let policy = refuse_suspend(&bench, true, expression, "Jobs run to their end").await?;
    let named = async {
        bench.kubectl(&["annotate", "dlock", &claim, "redlock-operator.io/step-down=test"]).await?;
        lock_names(&bench, &claim, "", &["Jobs run to their end"]).await?;
        event_names(&bench, &claim, &["JobNotSuspended", "Jobs run to their end"]).await
    };
    let named = named.await;
    policy.delete().await?;
    named
}

pub(crate) async fn a_policy_that_refuses_metadata_delays_no_renewal(bench: Bench) -> anyhow::Result<()> {
    let release = "redlock-operator.io/release";
    let mut waiting = claim("waiting", "waiting", None, TTL);
    waiting["spec"]["suspend"] = json!(true);
    waiting["metadata"]["annotations"] = json!({release: "1"});
    Lock::create(&bench, waiting).await?;
    let rule = json!({"apiGroups": ["redlock-operator.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["distributedlocks"]});
    let has = |object: &str| format!("\"{release}\" in {object}.metadata.?annotations.orValue({{}})");
    let expression = format!("!({}) || {}", has("oldObject"), has("object"));
    let removal = format!("{release}-");
    let remove = ["-n", &bench.namespace, "annotate", "dlock", "waiting", &removal, "--dry-run=server"];
    let probe = async || bench.cluster.kubectl_output(&remove, "").await;
    let policy = Policy::create(&bench, rule, &expression, "annotations are final", probe).await?;
    let named = async {
        let lock = Lock::create(&bench, claim("held", "held", None, TTL)).await?;
        lock.held(SOON).await?;
        let stale = format!("{release}=1");
        bench.kubectl(&["annotate", "dlock", "held", &stale]).await?;
        event_names(&bench, "held", &["MetadataRefused", "annotations are final"]).await?;
        lock_names(&bench, "held", "Held", &["annotations are final"]).await?;
        let published = status(&lock.recorder.last()?.object).valid_until;
        lock.recorder.until(SOON, "a later validity", |v| status(&v.object).valid_until > published).await.map(drop)
    };
    let named = named.await;
    policy.delete().await?;
    named
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
