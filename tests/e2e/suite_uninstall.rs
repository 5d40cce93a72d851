//! The end of the operator: `helm uninstall` succeeds without Redis, and the objects stay.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::{
    api::apps::v1::Deployment, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::Api;
use redlock_operator::api::RedisQuorum;

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    operators,
    quorums::Quorum,
    runner::{Test, tests},
};

pub(crate) const TESTS: &[Test] = tests![anywhere self::uninstalling_ends_without_redis_and_keeps_the_objects];

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn uninstalling_ends_without_redis_and_keeps_the_objects(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let waiting = Lock::create(&bench, claim("no-quorum", "job", Some("none"), TTL)).await?;
    bench.kubectl(&["delete", "statefulsets,pods", "--all", "--wait=false"]).await?;
    let test = async {
        let namespace = &bench.cluster.operator_namespace;
        bench.cluster.helm(namespace, &["uninstall", operators::NAME, "--wait"]).await?;
        let deployment = bench.cluster.operator_api::<Deployment>().get_opt(operators::NAME).await?;
        ensure!(deployment.is_none(), "the operator is still there");
        let kinds = Api::<CustomResourceDefinition>::all(bench.cluster.client.clone());
        let quorums = kinds.get_opt("redisquorums.redlock-operator.io").await?;
        ensure!(quorums.is_some(), "the kinds were deleted with all locks");
        // No operator removes finalizers now, so none must delay the deletion.
        waiting.remove().await?;
        bench.delete::<RedisQuorum>("q").await?;
        quorum.recorder.until_gone(SOON).await.context("the quorum stays").map(drop)
    };
    operators::then_as_before(&bench.cluster, test).await
}
