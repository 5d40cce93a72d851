//! Jobs of one scheduled time in several clusters.
//!
//! Two installations of the operator, each for one namespace, share masters.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::ResourceExt;
use redlock_operator::api::jobs::{has_condition, is_suspended};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    masters::Masters,
    pods::{container, pod_security},
    poll,
    record::Recorder,
    suite_tenants::installations::{install, with_second},
};

const MAX_TTL: Duration = Duration::from_secs(6);
/// A scheduled time occurs each minute.
///
/// At the first time only one of the CronJobs can exist. The limit also covers the wait of a Job.
const LIMIT: Duration = Duration::from_secs(240);
/// Recorded Jobs, by name, and whether each was started.
type Started = BTreeMap<String, bool>;

pub(crate) async fn a_cron_job_in_two_clusters_runs_in_one_of_them(bench: Bench) -> anyhow::Result<()> {
    with_second(&bench, side_by_side(&bench)).await
}

async fn side_by_side(bench: &Bench) -> anyhow::Result<()> {
    install(bench, &["jobs.enabled=true", "defaultQuorum.create=false"]).await?;
    let masters = Masters::start(bench, 3).await?;
    let addresses: Vec<_> = (0..3).map(|index| masters.address(index)).collect();
    let quorum = masters.manifest("q", 0, &addresses, MAX_TTL);
    bench
        .beside("cluster", async |other| {
            let _quorums = (masters.ready(bench, quorum.clone()).await?, masters.ready(other, quorum).await?);
            let observed = [jobs_of(bench).await?, jobs_of(other).await?];
            check_scheduled_times_run_once(&observed, [bench, other], "q").await
        })
        .await
}

/// Creates a CronJob in both clusters and checks that each scheduled time runs in one of them.
pub(crate) async fn check_scheduled_times_run_once(
    observed: &[Recorder<Job>; 2],
    clusters: [&Bench; 2],
    quorum: &str,
) -> anyhow::Result<()> {
    for cluster in clusters {
        cluster.create::<CronJob>(cron_job(cluster, quorum)).await?;
    }
    let dealt_with = async || both(observed);
    let (here, there) = poll::until(LIMIT, "a scheduled time was dealt with in both clusters", dealt_with).await?;
    ensure!(here != there, "not exactly one cluster ran the scheduled time: here {here}, there {there}");
    // No scheduled time must run in both clusters.
    let (here, there) = (started(&observed[0]), started(&observed[1]));
    let twice: Vec<_> = here.iter().filter(|(name, ran)| **ran && there.get(*name) == Some(&true)).collect();
    ensure!(twice.is_empty(), "these ran in both clusters: {twice:?}");
    Ok(())
}

pub(crate) async fn jobs_of(bench: &Bench) -> anyhow::Result<Recorder<Job>> {
    Recorder::labelled(bench.api(), "app=nightly").await
}

/// A CronJob that runs every minute, at most once in both clusters.
///
/// Jobs that never got the lock are deleted.
fn cron_job(bench: &Bench, quorum: &str) -> Value {
    json!({
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "jobTemplate": {
            "metadata": {"labels": {"app": "nightly"}, "annotations": {
                "redlock-operator.io/lock": "nightly/{job}", "redlock-operator.io/quorum": quorum, "redlock-operator.io/ttl": "4s",
                "redlock-operator.io/min-hold": "50s", "redlock-operator.io/wait-timeout": "15s",
                "redlock-operator.io/on-wait-timeout": "Delete"}},
            "spec": {"suspend": true, "template": {"spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": false, "securityContext": pod_security(),
                "containers": [container(bench, "main", "true")]}}}}},
    })
}

/// Whether each recorded Job was ever started.
fn started(observed: &Recorder<Job>) -> Started {
    let mut jobs = Started::new();
    for version in observed.versions() {
        *jobs.entry(version.object.name_any()).or_default() |= !is_suspended(&version.object);
    }
    jobs
}

/// Whether a Job has ended: complete, or deleted.
fn is_over(observed: &Recorder<Job>, name: &str) -> bool {
    let versions = observed.versions();
    let last = versions.iter().rfind(|version| version.object.name_any() == name);
    last.is_some_and(|last| last.gone || has_condition(&last.object, "Complete"))
}

/// The first scheduled time whose Jobs have ended in both clusters, and whether each has run.
fn both(observed: &[Recorder<Job>; 2]) -> anyhow::Result<Option<(bool, bool)>> {
    let (here, there) = (started(&observed[0]), started(&observed[1]));
    let name =
        here.keys().find(|name| there.contains_key(*name) && observed.iter().all(|observed| is_over(observed, name)));
    let Some(name) = name else { return Ok(None) };
    let of = |jobs: &Started| jobs.get(name).copied().context("it was there a moment ago");
    Ok(Some((of(&here)?, of(&there)?)))
}
