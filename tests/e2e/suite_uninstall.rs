//! The end of the operator.
//!
//! `helm uninstall` fails while locks are held. Otherwise it succeeds, even without Redis. Each test installs the
//! operator again.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::{
    api::apps::v1::Deployment, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::Api;
use redlock_operator::api::RedisQuorum;

use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, claim},
    operators,
    quorums::{self, Quorum},
    runner::{Test, tests},
};

pub(crate) const TESTS: &[Test] = tests![
    anywhere self::uninstalling_is_refused_while_locks_are_held,
    anywhere self::uninstalling_ends_without_redis_and_keeps_the_objects,
];

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);

async fn uninstall(bench: &Bench) -> anyhow::Result<(bool, String)> {
    let namespace = &bench.cluster.operator_namespace;
    let output = bench.cluster.helm(&["uninstall", operators::NAME, "--namespace", namespace, "--wait"]).await?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
}

pub(crate) async fn uninstalling_is_refused_while_locks_are_held(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = Lock::create(&bench, claim("job", "job", Some("q"), TTL)).await?;
    lock.held(SOON).await?;
    let (ended, text) = uninstall(&bench).await?;
    ensure!(!ended, "uninstalled while a lock was held: {text}");
    ensure!(
        text.contains(&format!("kubectl delete dlock -n {} job", bench.namespace)),
        "the message has no reason and command: {text}"
    );
    operators::all_available(&bench.cluster).await?;
    check_held_throughout(&lock.recorder.versions())?;
    lock.remove().await
}

pub(crate) async fn uninstalling_ends_without_redis_and_keeps_the_objects(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let waiting = Lock::create(&bench, claim("no-quorum", "job", Some("none"), TTL)).await?;
    bench.kubectl(&["delete", "statefulsets,pods", "--all", "--wait=false"]).await?;
    let result = ends_and_keeps(&bench, &quorum, &waiting).await;
    bench.cluster.deploy().await?;
    quorums::default_is_ready(&bench.cluster).await?;
    result
}

async fn ends_and_keeps(bench: &Bench, quorum: &Quorum, waiting: &Lock) -> anyhow::Result<()> {
    let (ended, text) = uninstall(bench).await?;
    ensure!(ended, "helm uninstall failed: {text}");
    let deployments: Api<Deployment> = Api::namespaced(bench.cluster.client.clone(), &bench.cluster.operator_namespace);
    ensure!(deployments.get_opt(operators::NAME).await?.is_none(), "the operator is still there");
    let crds: Api<CustomResourceDefinition> = Api::all(bench.cluster.client.clone());
    ensure!(crds.get_opt("redisquorums.redlock-operator.io").await?.is_some(), "the kinds were deleted with all locks");
    // No operator removes finalizers now, so none must delay the deletion.
    waiting.remove().await?;
    bench.delete::<RedisQuorum>("q").await?;
    quorum.recorder.until_gone(SOON).await.context("the quorum stays")?;
    Ok(())
}
