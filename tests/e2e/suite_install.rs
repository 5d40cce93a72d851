//! The first steps of a new user: install, take a lock, elect a leader, upgrade, uninstall.
//!
//! Most of these tests remove the operator with its kinds and install it again. Therefore nothing else can run on the
//! cluster at the same time.

mod pages;
mod platforms;
mod uninstalls;
mod upgrade;

use anyhow::{Context as _, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use crate::{
    cluster::Cluster,
    operators,
    runner::{Test, tests},
};

pub(crate) const TESTS: &[Test] = tests![
    local upgrade::an_upgrade_to_another_image_keeps_fifty_held_locks,
    anywhere pages::the_first_pages_lead_to_a_leader_and_an_empty_cluster_again,
    anywhere platforms::default_values_meet_restricted_pods_and_grant_a_lock_at_once,
    anywhere platforms::random_users_as_on_openshift_run_everything,
    anywhere uninstalls::an_uninstallation_without_hooks_splits_no_lock,
    anywhere uninstalls::the_check_before_an_uninstallation_names_held_locks,
];

pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/redlock-operator");

/// The images of this cluster, as settings of the chart.
pub(crate) async fn images(cluster: &Cluster) -> anyhow::Result<Vec<String>> {
    let operator = operators::image(cluster).await?;
    let mut settings = Vec::new();
    for (value, image) in [("image", &operator), ("redis.image", &cluster.member_image)] {
        let (repository, tag) = image.rsplit_once(':').with_context(|| format!("{image} has no tag"))?;
        settings.push(format!("{value}.repository={repository}"));
        settings.push(format!("{value}.tag={tag}"));
    }
    Ok(settings)
}

/// Removes the operator, its kinds with all objects, and its namespace.
async fn empty(cluster: &Cluster) -> anyhow::Result<()> {
    let kinds = ["crd/distributedlocks.redlock-operator.io", "crd/redisquorums.redlock-operator.io"];
    cluster.kubectl(&["delete", kinds[0], kinds[1], "--ignore-not-found", "--timeout=150s"]).await?;
    let namespace = cluster.operator_namespace.as_str();
    cluster.helm(namespace, &["uninstall", operators::NAME, "--wait", "--ignore-not-found"]).await?;
    cluster.kubectl(&["delete", "namespace", namespace, "--ignore-not-found", "--timeout=150s"]).await?;
    check_empty(cluster).await
}

/// Checks that the cluster has no objects of the operator.
async fn check_empty(cluster: &Cluster) -> anyhow::Result<()> {
    let label = "--selector=app.kubernetes.io/part-of=redlock-operator";
    let kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas,\
                 roles,rolebindings,serviceaccounts,deployments,jobs,pods,secrets";
    let left = cluster.kubectl(&["get", kinds, "--all-namespaces", label, "--output", "name"]).await?;
    ensure!(left.trim().is_empty(), "left in the cluster: {left}");
    let kinds: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    for name in ["distributedlocks.redlock-operator.io", "redisquorums.redlock-operator.io"] {
        ensure!(kinds.get_opt(name).await?.is_none(), "{name} is left");
    }
    let namespace = cluster.kubectl(&["get", "namespace", &cluster.operator_namespace, "--ignore-not-found"]).await?;
    ensure!(namespace.is_empty(), "the namespace is left");
    Ok(())
}
