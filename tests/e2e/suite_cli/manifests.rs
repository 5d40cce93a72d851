//! The manifests for applications in manifests/samples: each one separately, in an empty namespace.
//!
//! The tests replace only the names of images and the namespace.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{ResourceExt as _, api::ListParams};

use super::running::claims;
use crate::{
    bench::Bench,
    cluster::checkout,
    locks::{is_held, status},
    operators, poll,
};

const PUBLISHED: &str = concat!("ghcr.io/redlock-operator/redlock-operator:", env!("CARGO_PKG_VERSION"));
/// The application image of the samples.
///
/// The tests use Redis' image instead, which has a shell.
const APPLICATION: &str = "docker.io/library/busybox:1.36";
const LONG: Duration = Duration::from_secs(90);
/// The default ttl of `redlock run`.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// Applies one of the samples.
async fn apply(bench: &Bench, name: &str) -> anyhow::Result<()> {
    let image = operators::image(&bench.cluster).await?;
    let text = std::fs::read_to_string(checkout().join("manifests/samples").join(name))?;
    ensure!(text.contains(PUBLISHED) && text.contains(APPLICATION), "{name} has other images");
    // The images of this cluster have only `redlock` and a shell. In particular they have no kubectl.
    let text = text.replace(PUBLISHED, &image).replace(APPLICATION, &bench.cluster.member_image);
    let text = text.replace("namespace: shop", &format!("namespace: {}", bench.namespace));
    let text = text.replace("shop/", &format!("{}/", bench.namespace));
    let role = format!("name: {}", operators::HOLDER_ROLE);
    ensure!(text.matches("kind: RoleBinding").count() == 1 && text.contains(&role), "{name} binds another role");
    bench.cluster.apply(&text).await
}

/// The lines of a pod that end with a token, without the error of a container that has not started.
async fn tokens(bench: &Bench, pod: &str, words: &str) -> anyhow::Result<Vec<i64>> {
    let output = bench.kubectl_output(&["logs", pod, "-c", "main"], "").await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_prefix(words)?.trim().parse().ok()).collect())
}

async fn job_ends(bench: &Bench, name: &str) -> anyhow::Result<()> {
    poll::until(LONG, "the Job is complete", async || {
        let job = bench.api::<Job>().get(name).await?.status.unwrap_or_default();
        ensure!(
            job.failed.unwrap_or(0) == 0,
            "{name} has failed: {:?}",
            bench.kubectl(&["logs", &format!("job/{name}")]).await
        );
        Ok((job.succeeded == Some(1)).then_some(()))
    })
    .await
}

async fn pod_of(bench: &Bench, selector: &str) -> anyhow::Result<Vec<Pod>> {
    Ok(bench.api::<Pod>().list(&ListParams::default().labels(selector)).await?.items)
}

pub(crate) async fn a_migration_runs_once_from_one_manifest(bench: Bench) -> anyhow::Result<()> {
    apply(&bench, "migration.yaml").await?;
    job_ends(&bench, "migration").await?;
    let pods = pod_of(&bench, "job-name=migration").await?;
    let pod = pods.first().context("no pod")?.name_any();
    let message = tokens(&bench, &pod, "migrates with token").await?;
    ensure!(message.len() == 1, "it ran {} times", message.len());
    let claims = claims(&bench).await?;
    ensure!(claims.len() == 1 && !is_held(&claims[0]), "the lock is still held");
    let history = status(&claims[0]).history;
    ensure!(history.first().is_some_and(|past| past.reason == "Released"), "{history:?}");
    // A second application of the manifest must change nothing.
    apply(&bench, "migration.yaml").await?;
    job_ends(&bench, "migration").await?;
    ensure!(pod_of(&bench, "job-name=migration").await?.len() == 1);
    Ok(())
}

/// Two Jobs at the same time represent two clusters.
pub(crate) async fn a_cron_singleton_works_in_one_of_two_jobs(bench: Bench) -> anyhow::Result<()> {
    apply(&bench, "cron.yaml").await?;
    let names = ["first", "second"];
    for name in names {
        bench.kubectl(&["create", "job", name, "--from=cronjob/nightly"]).await?;
    }
    let mut worked = Vec::new();
    for name in names {
        job_ends(&bench, name).await?;
        let pods = pod_of(&bench, &format!("job-name={name}")).await?;
        let pod = pods.first().context("no pod")?.name_any();
        worked.extend(tokens(&bench, &pod, "works with token").await?);
    }
    ensure!(worked.len() == 1, "{} of two have worked", worked.len());
    // minHold covers the difference between schedules. A third Job, which starts later, must not work.
    bench.kubectl(&["create", "job", "third", "--from=cronjob/nightly"]).await?;
    job_ends(&bench, "third").await?;
    let answer = bench.kubectl(&["logs", "job/third", "-c", "main"]).await?;
    ensure!(!answer.contains("works with token") && answer.contains("queue"), "{answer}");
    Ok(())
}

/// The leading pod of leader.yaml with a token above this one, and its token.
async fn leads(bench: &Bench, above: i64) -> anyhow::Result<(String, i64)> {
    let one = async || {
        for pod in pod_of(bench, "app=scheduler").await? {
            let message = tokens(bench, &pod.name_any(), "leads with token").await?;
            if let Some(token) = message.into_iter().find(|token| *token > above) {
                return Ok(Some((pod.name_any(), token)));
            }
        }
        Ok(None)
    };
    poll::until(LONG, "a pod leads", one).await
}

/// Waits until one pod of leader.yaml leads and the other one waits.
async fn two_pods(bench: &Bench) -> anyhow::Result<(String, i64)> {
    apply(bench, "leader.yaml").await?;
    let leader = leads(bench, 0).await?;
    poll::until(LONG, "the other one waits", async || Ok((claims(bench).await?.len() == 2).then_some(()))).await?;
    Ok(leader)
}

/// `redlock run` has no time to release its lock, so the end of its container is the only evidence.
pub(crate) async fn a_lock_is_free_at_once_when_a_container_was_killed(bench: Bench) -> anyhow::Result<()> {
    let (leader, first) = two_pods(&bench).await?;
    let killed = bench.now();
    bench.cluster.faults.kill_container(&bench.namespace, &leader, "main").await?;
    let (next, _) = leads(&bench, first).await?;
    let took = bench.now().since(killed);
    bench.figures.add("container of redlock run killed: the next one leads after", took);
    ensure!(next != leader, "the same pod");
    ensure!(
        took < DEFAULT_TTL,
        "free after {took:?}: the operator waited for the ttl, not for the end of the container"
    );
    Ok(())
}

pub(crate) async fn a_single_pod_of_a_deployment_leads_from_a_manifest(bench: Bench) -> anyhow::Result<()> {
    let (leader, first) = two_pods(&bench).await?;
    let deleted = bench.now();
    bench.kubectl(&["delete", "pod", &leader, "--wait=false"]).await?;
    let (next, second) = leads(&bench, first).await?;
    bench.figures.add("redlock run in a Deployment: leader deleted -> next one leads", bench.now().since(deleted));
    ensure!(next != leader, "the same pod");
    // Only these two pods must have led, each with one token.
    let mut observed = BTreeSet::new();
    for pod in pod_of(&bench, "app=scheduler").await? {
        observed.extend(tokens(&bench, &pod.name_any(), "leads with token").await?);
    }
    ensure!(
        observed.iter().all(|token| [first, second].contains(token)),
        "{observed:?}, not {first} and {second} alone"
    );
    Ok(())
}
