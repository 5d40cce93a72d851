//! Jobs that run under a lock by an annotation, or by a claim that names them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use redlock_operator::api::{
    DistributedLock,
    jobs::{has_condition, is_suspended},
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, message_of, reason_of, status, token, with},
    operators,
    pods::{container, pod_security},
    poll,
    record::{Recorder, Version},
    suite_lock::support::{IDLE, LockVersion, works_after_sigterm},
};

/// The limit from the start of a Job to the end of its pod's work.
///
/// The image is already on the node.
const JOB_LIMIT: Duration = Duration::from_secs(60);

const TTL: Duration = Duration::from_secs(4);

type JobVersion = Version<Job>;

/// A suspended Job with these annotations below `redlock-operator.io/`.
///
/// Its pod runs this script with its token in `TOKEN`.
fn job(bench: &Bench, name: &str, annotations: &[(&str, &str)], script: &str) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(name, value)| (format!("redlock-operator.io/{name}"), json!(value))).collect();
    let token = json!({"fieldRef": {"fieldPath": "metadata.annotations['redlock-operator.io/token']"}});
    let mut main = container(bench, "main", script);
    main["env"] = json!([{"name": "TOKEN", "valueFrom": token}]);
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"suspend": true, "backoffLimit": 4, "template": {"metadata": {"labels": {"job": name}}, "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 6, "automountServiceAccountToken": false,
            "securityContext": pod_security(), "containers": [main]}}},
    })
}

/// Waits until a Job was started and then suspended.
async fn stopped(job: &Recorder<Job>, limit: Duration) -> anyhow::Result<()> {
    let is_stopped = |v: &JobVersion| is_suspended(&v.object) && template_token(&v.object).is_some();
    job.until(limit, "suspended again", is_stopped).await.map(drop)
}

/// Waits until a Job is complete.
async fn complete(job: &Recorder<Job>) -> anyhow::Result<JobVersion> {
    job.until(JOB_LIMIT, "Complete", |v| has_condition(&v.object, "Complete")).await
}

/// Waits until a claim has ended for this reason.
async fn finished(claim: &Recorder<DistributedLock>, reason: &str, limit: Duration) -> anyhow::Result<LockVersion> {
    let is_finished = |v: &LockVersion| reason_of(&v.object, "Finished") == Some(reason);
    claim.until(limit, &format!("Finished with reason {reason}"), is_finished).await
}

fn template_token(job: &Job) -> Option<i64> {
    let metadata = job.spec.as_ref()?.template.metadata.as_ref()?;
    metadata.annotations.as_ref()?.get("redlock-operator.io/token")?.parse().ok()
}

/// The claims of a Job.
async fn claims(bench: &Bench, job: &str) -> anyhow::Result<Vec<DistributedLock>> {
    let locks = bench.api::<DistributedLock>().list(&ListParams::default()).await?.items;
    let is_of_it =
        |lock: &DistributedLock| lock.spec.claim.as_ref().is_some_and(|claim| claim.job_name.as_deref() == Some(job));
    Ok(locks.into_iter().filter(is_of_it).collect())
}

/// The claim of a Job, watched from the first version that the test observes.
async fn claim_of(bench: &Bench, job: &str) -> anyhow::Result<Recorder<DistributedLock>> {
    let found = async || Ok(claims(bench, job).await?.into_iter().next().map(|lock| lock.name_any()));
    let name = poll::until(SOON, "the operator creates a claim for the Job", found).await?;
    bench.record::<DistributedLock>(&name).await
}

async fn create(bench: &Bench, manifest: Value) -> anyhow::Result<Recorder<Job>> {
    let name = manifest["metadata"]["name"].as_str().context("a Job without a name")?.to_owned();
    bench.create::<Job>(manifest).await?;
    bench.record::<Job>(&name).await
}

async fn pods_of(bench: &Bench, job: &str) -> anyhow::Result<Recorder<Pod>> {
    Recorder::labelled(bench.api(), &format!("job={job}")).await
}

fn main_of(pod: &Pod) -> Option<&k8s_openapi::api::core::v1::ContainerState> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()
}

fn runs(version: &Version<Pod>) -> bool {
    main_of(&version.object).is_some_and(|state| state.running.is_some())
}

/// Start and end of the container, by the kubelet, in seconds.
fn times(pod: &Pod) -> Option<(i64, i64)> {
    let ended = main_of(pod)?.terminated.as_ref()?;
    Some((ended.started_at.as_ref()?.0.as_second(), ended.finished_at.as_ref()?.0.as_second()))
}

/// The messages of the Events on a Job with this reason.
async fn reported(bench: &Bench, job: &str, reason: &str) -> anyhow::Result<String> {
    let selector = format!("reportingComponent=redlock-operator,reason={reason}");
    let path = "jsonpath={range .items[*]}{.involvedObject.name} {.message}\n{end}";
    let arguments = ["get", "events", "--field-selector", &selector, "-o", path];
    let line = async || {
        let text = bench.kubectl(&arguments).await?;
        Ok(text.lines().find_map(|line| line.strip_prefix(&format!("{job} "))).map(str::to_owned))
    };
    poll::until(SOON, &format!("an Event {reason} about Job {job}"), line).await
}

pub(crate) async fn jobs_on_one_key_run_one_after_the_other(bench: Bench) -> anyhow::Result<()> {
    let script = "echo token $TOKEN; sleep 4";
    let annotations = [("lock", "reindex"), ("ttl", "4s")];
    let mut jobs = Vec::new();
    for name in ["first", "second", "third"] {
        let pods = pods_of(&bench, name).await?;
        let job = create(&bench, job(&bench, name, &annotations, script)).await?;
        jobs.push((name, job, claim_of(&bench, name).await?, pods));
    }
    let (mut runs, mut tokens) = (Vec::new(), Vec::new());
    for (name, job, claim, pods) in &jobs {
        let complete = complete(job).await?;
        let held = claim.versions().into_iter().find(|v| is_held(&v.object)).context("the claim was never held")?;
        let token = token(&held.object)?;
        let used = template_token(&complete.object);
        ensure!(used == Some(token), "{name}: {used:?}, held with {token}");
        let created = pods.versions().first().and_then(|v| v.object.creation_timestamp()).context("no pod")?;
        let acquired = status(&held.object).acquired_at.context("never acquired")?.as_millis();
        // The API server writes whole seconds.
        ensure!(
            created.0.as_second() >= acquired / 1_000,
            "{name}: a pod was created at {created:?}, before the lock at {acquired}"
        );
        let said = bench.kubectl(&["logs", &format!("job/{name}")]).await?;
        ensure!(said.trim() == format!("token {token}"), "{name} printed {said:?}");
        let freed = finished(claim, "Released", SOON).await?;
        ensure!(status(&freed.object).holder.is_none(), "{name}: {:?}", freed.object.status);
        bench.figures.add("Job complete: lock free after", freed.at.since(complete.at));
        let ended = pods.versions().iter().rev().find_map(|v| times(&v.object)).context("no end of the pod")?;
        runs.push(ended);
        tokens.push(token);
    }
    ensure!(tokens.is_sorted() && tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
    ensure!(runs.windows(2).all(|two| two[0].1 <= two[1].0), "the Jobs ran at the same time: {runs:?}");
    Ok(())
}

pub(crate) async fn a_claim_that_names_a_job_starts_it(bench: Bench) -> anyhow::Result<()> {
    let job = create(&bench, job(&bench, "by-hand", &[("lock", "")], "sleep 2")).await?;
    let by_job = |name: &str| with(claim(name, "by-hand", None, TTL), json!({"claim": {"jobName": "by-hand"}}));
    let lock = Lock::create(&bench, by_job("mine")).await?;
    let held = lock.held(SOON).await?;
    let holder = status(&held.object).holder.context("no holder")?;
    ensure!(holder.job_name.as_deref() == Some("by-hand") && holder.identity == "by-hand", "{holder:?}");
    complete(&job).await?;
    finished(&lock.recorder, "Released", SOON).await?;
    // A finished Job cannot be started again.
    let again = Lock::create(&bench, by_job("again")).await?;
    let refused = again.reason("NoCandidate", SOON).await?;
    let message = message_of(&refused.object, "Held");
    ensure!(message.contains("has finished"), "{message}");
    Ok(())
}

pub(crate) async fn a_job_whose_pod_is_in_doubt_runs_again_with_a_larger_token(bench: Bench) -> anyhow::Result<()> {
    let pods = pods_of(&bench, "doubted").await?;
    // Each pod works for eight seconds, and then ends successfully.
    let script = "trap 'exit 1' TERM; test -e /dev/null; i=0; while [ $i -lt 80 ]; do sleep 0.1; i=$((i+1)); done";
    let job = create(&bench, job(&bench, "doubted", &[("lock", "doubted"), ("ttl", "4s")], script)).await?;
    let claim = claim_of(&bench, "doubted").await?;
    let first = claim.until(SOON, "Held", |v| is_held(&v.object)).await?;
    let first_token = token(&first.object)?;
    let pod = pods.until(JOB_LIMIT, "the pod runs", runs).await?;
    let mark = claim.mark();
    // Without the Job controller's finalizer the pod vanishes immediately, before the kubelet reports its end.
    let name = pod.object.name_any();
    bench.patch("pod", &name, r#"{"metadata":{"finalizers":null}}"#).await?;
    bench.kubectl(&["delete", "pod", &name, "--grace-period=0", "--force", "--wait=false"]).await?;
    let is_stopping = |v: &LockVersion| status(&v.object).stopping.is_some();
    let stopping = claim.until_after(mark, SOON, "its Job is being stopped", is_stopping).await?;
    ensure!(is_held(&stopping.object), "the lock must be held until the Job is stopped");
    stopped(&job, SOON).await?;
    let again = |v: &LockVersion| token(&v.object).is_ok_and(|token| token > first_token);
    let second = claim.until_after(mark, JOB_LIMIT, "held again with a larger token", again).await?;
    let past = status(&second.object).history;
    ensure!(past.first().is_some_and(|past| past.reason == "HolderGone"), "{past:?}");
    ensure!(status(&second.object).transitions == 2, "{:?}", second.object.status);
    let complete = complete(&job).await?;
    ensure!(template_token(&complete.object) == Some(token(&second.object)?), "another token");
    finished(&claim, "Released", JOB_LIMIT).await?;
    for version in pods.versions() {
        let token = version.object.annotations().get("redlock-operator.io/token");
        let (is_in_doubt, has_first) =
            (version.object.uid() == pod.object.uid(), token == Some(&first_token.to_string()));
        ensure!(is_in_doubt == has_first, "only the pod in doubt has the first token: {token:?}");
    }
    Ok(())
}

pub(crate) async fn a_job_at_its_max_hold_keeps_the_lock_until_its_pod_ends(bench: Bench) -> anyhow::Result<()> {
    let pods = pods_of(&bench, "long").await?;
    // It works through four of its six seconds of grace.
    let annotations = [("lock", "long"), ("ttl", "4s"), ("max-hold", "8s")];
    let long = create(&bench, job(&bench, "long", &annotations, &works_after_sigterm(Duration::from_secs(4)))).await?;
    let claim = claim_of(&bench, "long").await?;
    claim.until(SOON, "Held", |v| is_held(&v.object)).await?;
    let next = create(&bench, job(&bench, "next", &[("lock", "long"), ("ttl", "4s")], "true")).await?;
    pods.until(JOB_LIMIT, "the pod runs", runs).await?;
    stopped(&long, JOB_LIMIT).await?;
    let finished = finished(&claim, "MaxHoldReached", JOB_LIMIT).await?;
    let ended = |v: &Version<Pod>| v.gone || main_of(&v.object).is_some_and(|state| state.terminated.is_some());
    let ended = pods.until(SOON, "the container has ended", ended).await?;
    ensure!(finished.at > ended.at, "the lock was free {:?} before the pod ended", ended.at.since(finished.at));
    // The published validities must cover the pod's whole work.
    let held: Vec<_> = claim.versions().into_iter().filter(|v| is_held(&v.object)).collect();
    let valid = held.last().and_then(|v| status(&v.object).valid_until).context("never held")?;
    let early = ended.wall.0 - valid.as_millis();
    ensure!(early <= 0, "its validity ended {early} ms before the pod");
    complete(&next).await?;
    ensure!(reported(&bench, "long", "LockEnded").await?.contains("stays suspended"), "the Event has no next step");
    ensure!(is_suspended(&long.last()?.object), "the Job was started again");
    Ok(())
}

pub(crate) async fn a_job_is_deleted_after_its_wait_timeout_only_on_request(bench: Bench) -> anyhow::Result<()> {
    let holder = Lock::create(&bench, claim("holder", "busy", None, TTL)).await?;
    holder.held(SOON).await?;
    let waits = [("lock", "busy"), ("ttl", "4s"), ("wait-timeout", "2s")];
    let stays = create(&bench, job(&bench, "stays", &waits, "true")).await?;
    let goes =
        create(&bench, job(&bench, "goes", &[&waits[..], &[("on-wait-timeout", "Delete")]].concat(), "true")).await?;
    goes.until_gone(JOB_LIMIT).await?;
    for (name, next) in [("goes", "deletes it"), ("stays", "stays suspended")] {
        ensure!(reported(&bench, name, "LockWaitTimeout").await?.contains(next), "no {next:?} in the Event on {name}");
    }
    ensure!(is_suspended(&stays.last()?.object), "it was started without its lock");
    // The claim of the deleted Job is deleted with it.
    let none = async || Ok(claims(&bench, "goes").await?.is_empty().then_some(()));
    poll::until(JOB_LIMIT, "the claim of the deleted Job is gone", none).await?;
    // Without its claim the Job waits again.
    let claim = claims(&bench, "stays").await?.pop().context("no claim")?.name_any();
    holder.remove().await?;
    bench.delete::<DistributedLock>(&claim).await?;
    complete(&stays).await.map(drop)
}

pub(crate) async fn a_job_with_another_manager_is_left_alone(bench: Bench) -> anyhow::Result<()> {
    let annotations = [("lock", "theirs")];
    let mut queued = job(&bench, "queued", &annotations, "true");
    queued["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "batch"});
    let mut managed = job(&bench, "managed", &annotations, "true");
    managed["spec"]["managedBy"] = json!("example.com/other");
    let mut runs = job(&bench, "runs", &[], "sleep 3600");
    runs["spec"]["suspend"] = json!(false);
    for (name, manifest, word) in
        [("queued", queued, "queue-name"), ("managed", managed, "managedBy"), ("runs", runs, "suspend: true")]
    {
        let seen = create(&bench, manifest).await?;
        // A running Job cannot be created with the annotation, but it can get the annotation later.
        bench.kubectl(&["annotate", "job", name, "redlock-operator.io/lock=theirs", "--overwrite"]).await?;
        let said = reported(&bench, name, "LockNotStarted").await?;
        ensure!(said.contains(word), "{name}: {said}");
        ensure!(claims(&bench, name).await?.is_empty(), "{name} has a claim");
        let ours = seen.versions().into_iter().any(|v| {
            v.object.annotations().contains_key("redlock-operator.io/stopping") || template_token(&v.object).is_some()
        });
        ensure!(!ours, "{name} was written to");
    }
    let wrong = create(&bench, job(&bench, "wrong", &[("lock", "theirs"), ("ttl", "ten")], "true")).await?;
    ensure!(reported(&bench, "wrong", "LockAnnotationInvalid").await?.contains("redlock-operator.io/ttl"), "which one");
    bench.kubectl(&["annotate", "job", "wrong", "redlock-operator.io/ttl=4s", "--overwrite"]).await?;
    complete(&wrong).await.map(drop)
}

pub(crate) async fn a_job_that_another_client_suspends_is_left_alone(bench: Bench) -> anyhow::Result<()> {
    let pods = pods_of(&bench, "paused").await?;
    let seen = create(&bench, job(&bench, "paused", &[("lock", "paused"), ("ttl", "4s")], IDLE)).await?;
    let claim = claim_of(&bench, "paused").await?;
    pods.until(JOB_LIMIT, "the pod runs", runs).await?;
    bench.patch("job", "paused", r#"{"spec":{"suspend":true}}"#).await?;
    let finished = finished(&claim, "Released", JOB_LIMIT).await?;
    let message = message_of(&finished.object, "Finished");
    ensure!(message.contains("Another client"), "{message}");
    ensure!(reported(&bench, "paused", "LockEnded").await?.contains("Delete the claim"), "the Event has no next step");
    ensure!(is_suspended(&seen.last()?.object), "it was started again");
    // A user deletes the claim, and the Job runs again.
    let mark = seen.mark();
    bench.delete::<DistributedLock>(&finished.object.name_any()).await?;
    let first = seen.versions().iter().find_map(|v| template_token(&v.object));
    let again = |v: &JobVersion| !is_suspended(&v.object) && template_token(&v.object) > first;
    seen.until_after(mark.saturating_sub(1), JOB_LIMIT, "runs again with a larger token", again).await.map(drop)
}

pub(crate) async fn the_operator_can_change_no_other_field_of_jobs(bench: Bench) -> anyhow::Result<()> {
    bench.create::<Job>(job(&bench, "theirs", &[("lock", ""), ("ttl", "4s")], "true")).await?;
    bench.create::<Job>(job(&bench, "of-others", &[("ttl", "4s")], "true")).await?;
    let mut asks = job(&bench, "asks", &[("lock", "none"), ("on-wait-timeout", "Delete")], "true");
    asks["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "batch"});
    bench.create::<Job>(asks).await?;
    bench.patch("job", "asks", r#"{"spec":{"suspend":false}}"#).await?;
    let account = operators::account(&bench.cluster);
    let patch = ["--as", account.as_str(), "patch", "--type=merge", "job", "theirs", "-p"];
    for (change, expected) in [
        (r#"{"spec":{"parallelism":3}}"#, "suspend and podReplacementPolicy"),
        (r#"{"spec":{"backoffLimit":0}}"#, "suspend and podReplacementPolicy"),
        (r#"{"spec":{"activeDeadlineSeconds":1}}"#, "suspend and podReplacementPolicy"),
        (r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#, "pod template"),
        (r#"{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}"#, "pod template"),
        (r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}"#, "pod template"),
        (r#"{"metadata":{"annotations":{"redlock-operator.io/ttl":"9s"}}}"#, "redlock-operator.io/stopping"),
        (r#"{"metadata":{"labels":{"a":"b"}}}"#, "labels, finalizers or owners"),
        (r#"{"metadata":{"finalizers":["example.com/a"]}}"#, "labels, finalizers or owners"),
    ] {
        bench.refuses(&[&patch[..], &[change]].concat(), "", expected).await?;
    }
    let mut config = bench.cluster.config.clone();
    config.auth_info.impersonate = Some(account.clone());
    let jobs = Api::<Job>::namespaced(Client::try_from(config)?, &bench.namespace);
    let status = json!({"status": {"startTime": null, "failed": 7}});
    let refused = jobs.patch_status("theirs", &PatchParams::default(), &Patch::Merge(status)).await;
    let said = refused.err().context("the status was changed")?.to_string();
    ensure!(said.contains("removal of startTime"), "{said}");
    for name in ["theirs", "asks"] {
        bench.refuses(&["--as", &account, "delete", "job", name], "", "can delete no Jobs").await?;
    }
    let start = r#"{"spec":{"suspend":false}}"#;
    let of_others = ["--as", &account, "patch", "--type=merge", "job", "of-others", "-p", start];
    bench.refuses(&of_others, "", "only Jobs with the annotation").await?;
    let mut claim = claim("x", "x", None, TTL);
    claim["apiVersion"] = json!("redlock-operator.io/v1alpha1");
    claim["kind"] = json!("DistributedLock");
    bench.refuses(&["--as", &account, "create", "-f", "-"], &claim.to_string(), "claims of Jobs").await?;
    // The account has the rights that it needs.
    for change in [start, r#"{"spec":{"suspend":true}}"#] {
        bench.kubectl(&[&patch[..], &[change]].concat()).await?;
    }
    Ok(())
}
