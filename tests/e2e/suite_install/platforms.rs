//! The chart on clusters with special rules, each time in an empty one.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;

use super::{CHART, empty, images};
use crate::{
    bench::Bench,
    cluster::Cluster,
    locks::{Lock, SOON, claim, token},
    operators,
};

/// The first user ID that OpenShift assigns to a namespace.
const FIRST_USER: u32 = 1_000_680_000;
const USERS: u32 = 10_000;

/// Installs into a namespace with Pod Security `restricted`, and waits like a user.
async fn install(cluster: &Cluster, settings: &[String]) -> anyhow::Result<()> {
    let namespace = cluster.operator_namespace.as_str();
    cluster.kubectl(&["create", "namespace", namespace]).await?;
    cluster.kubectl(&["label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"]).await?;
    let mut arguments = vec!["install", operators::NAME, CHART, "--wait", "--timeout", "170s"];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting.as_str()]));
    cluster.helm(namespace, &arguments).await.map(drop)
}

/// Checks that `helm test` succeeds, prints its result, and leaves no object.
async fn test_of_the_release(cluster: &Cluster) -> anyhow::Result<()> {
    let locks = ["get", "distributedlocks", "--all-namespaces", "--output", "name"];
    let before = cluster.kubectl(&locks).await?;
    let output = cluster.helm(&cluster.operator_namespace, &["test", operators::NAME]).await?;
    ensure!(output.contains("Succeeded"), "{output}");
    ensure!(cluster.kubectl(&locks).await? == before, "locks are left");
    let name = format!("{}-test", operators::NAME);
    for kind in ["pod", "serviceaccount", "role", "rolebinding"] {
        let left =
            cluster.kubectl(&["-n", &cluster.operator_namespace, "get", kind, &name, "--ignore-not-found"]).await?;
        ensure!(left.is_empty(), "the release test left objects: {left}");
    }
    Ok(())
}

/// Checks that a claim right after `helm install --wait` is granted without the wait of a fence.
async fn a_lock_at_once(bench: &Bench) -> anyhow::Result<()> {
    let begun = bench.now();
    let lock = Lock::create(bench, claim("first", "first", None, std::time::Duration::from_secs(5))).await?;
    ensure!(token(&lock.held(SOON).await?.object)? > 0);
    bench.figures.add("helm install --wait has ended -> first claim Held", bench.now().since(begun));
    lock.remove().await
}

pub(crate) async fn default_values_meet_restricted_pods_and_grant_a_lock_at_once(bench: Bench) -> anyhow::Result<()> {
    let test = async {
        let images = images(&bench.cluster).await?;
        empty(&bench.cluster).await?;
        install(&bench.cluster, &images).await?;
        a_lock_at_once(&bench).await?;
        test_of_the_release(&bench.cluster).await
    };
    operators::then_as_before(&bench.cluster, test).await
}

/// A policy that refuses pods like OpenShift, if their users are not those of the namespace.
fn policy(namespace: &str, name: &str) -> String {
    let last = FIRST_USER + USERS - 1;
    let in_range = |field: &str| {
        let id = format!("object.spec.?securityContext.?{field}.orValue(0)");
        json!({"expression": format!("{id} >= {FIRST_USER} && {id} <= {last}"), "message": format!("{field} is not of this namespace")})
    };
    let no_other = json!({"expression": "object.spec.containers.all(c, !has(c.securityContext.runAsUser))",
        "message": "a container has a user of its own"});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
            "validations": [in_range("runAsUser"), in_range("fsGroup"), no_other]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}},
    ]})
    .to_string()
}

/// On OpenShift the chart sets no users, and the platform adds them to the pods.
///
/// In this test the chart sets the users that the platform would choose, and a policy refuses every other user.
pub(crate) async fn random_users_as_on_openshift_run_everything(bench: Bench) -> anyhow::Result<()> {
    let cluster = &bench.cluster;
    let name = "e2e-openshift";
    let test = async {
        let user = FIRST_USER + rand::random::<u32>() % USERS;
        let mut settings = images(cluster).await?;
        for place in ["podSecurityContext", "defaultQuorum.spec.pod.securityContext"] {
            settings.extend(["runAsUser", "fsGroup"].map(|field| format!("{place}.{field}={user}")));
        }
        settings.push("podSecurityContext.runAsGroup=null".into());
        empty(cluster).await?;
        cluster.apply(&policy(&cluster.operator_namespace, name)).await?;
        install(cluster, &settings).await?;
        a_lock_at_once(&bench).await?;
        test_of_the_release(cluster).await?;
        let pods = cluster.operator_api::<Pod>().list(&ListParams::default()).await?.items;
        ensure!(pods.len() >= 5, "only {} pods", pods.len());
        for pod in &pods {
            let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()).context("no context")?;
            ensure!(context.run_as_user == Some(user.into()), "{}: {:?}", pod.name_any(), context.run_as_user);
        }
        Ok(())
    };
    let result = test.await;
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        cluster.kubectl(&["delete", kind, name, "--ignore-not-found"]).await?;
    }
    let again = async {
        empty(cluster).await?;
        result
    };
    operators::then_as_before(cluster, again).await
}
