//! Members of a quorum that do not start, and members that do not vote.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use redlock_operator::api::{MemberState, RedisQuorum};
use redlock_operator::quorum::model::plan::auth_name;
use serde_json::{Value, json};

use super::{
    policy::Policy,
    surfaces::{doctor_names, quorum_names},
};
use crate::{bench::Bench, quorums::Quorum, record::Version, suite_quorum::helpers::condition};

/// The limit until the status names a refused deletion.
const NAMED_LIMIT: Duration = Duration::from_secs(30);
const MAX_TTL: Duration = Duration::from_secs(4);
/// A ttl by which a restarted member is fenced for at least this time.
const LONG_TTL: Duration = Duration::from_secs(60);

/// Creates a quorum with these fields, and checks that each surface names the cause.
async fn does_not_start(bench: &Bench, fields: Value, reason: &str, cause: &[&str]) -> anyhow::Result<()> {
    let _quorum = Quorum::create_with(bench, "q", MAX_TTL, fields).await?;
    quorum_names(bench, "q", reason, cause).await
}

pub(crate) async fn a_bad_image_of_the_members_is_named(bench: Bench) -> anyhow::Result<()> {
    let fields = json!({"image": "registry.invalid/redis:8"});
    does_not_start(&bench, fields, "MembersStarting", &["q-0", "ErrImagePull", "registry.invalid"]).await
}

pub(crate) async fn a_wrong_pull_secret_of_the_members_is_named(bench: Bench) -> anyhow::Result<()> {
    let fields = json!({"image": "registry.invalid/redis:8", "pod": {"imagePullSecrets": [{"name": "absent"}]}});
    // The kubelet names the Secret only in an Event of the pod.
    does_not_start(&bench, fields, "MembersStarting", &["q-0", "ErrImagePull", "describe pod q-0-0"]).await
}

pub(crate) async fn members_that_no_node_takes_are_named(bench: Bench) -> anyhow::Result<()> {
    let fields = json!({"pod": {"nodeSelector": {"disk": "golden"}}});
    does_not_start(&bench, fields, "MembersStarting", &["q-0", "Unschedulable", "node affinity/selector"]).await
}

pub(crate) async fn an_image_without_redis_is_named(bench: Bench) -> anyhow::Result<()> {
    let images =
        bench.cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].status.images[*].names[0]}"]).await?;
    let pause = images.split_whitespace().find(|image| image.contains("pause")).context("no image without Redis")?;
    does_not_start(&bench, json!({"image": pause}), "MembersStarting", &["q-0", "redis-server"]).await
}

pub(crate) async fn a_quota_that_refuses_the_members_is_named(bench: Bench) -> anyhow::Result<()> {
    bench.create::<ResourceQuota>(json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}})).await?;
    does_not_start(&bench, json!({}), "MembersStarting", &["q-0", "FailedCreate", "exceeded quota: few"]).await
}

pub(crate) async fn a_quota_that_refuses_the_passwords_is_named(bench: Bench) -> anyhow::Result<()> {
    let hard = json!({"count/secrets": "0"});
    bench.create::<ResourceQuota>(json!({"metadata": {"name": "few"}, "spec": {"hard": hard}})).await?;
    does_not_start(&bench, json!({}), "InvalidSpec", &["Secret", "exceeded quota: few"]).await
}

pub(crate) async fn a_missing_priority_class_is_named(bench: Bench) -> anyhow::Result<()> {
    let fields = json!({"pod": {"priorityClassName": "absent"}});
    does_not_start(&bench, fields, "MembersStarting", &["q-0", "PriorityClass", "absent"]).await
}

pub(crate) async fn a_policy_that_refuses_the_objects_is_named(bench: Bench) -> anyhow::Result<()> {
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a"},
        "spec": {"serviceName": "a", "selector": {"matchLabels": labels}, "template": template}});
    let message = "only the platform team runs StatefulSets";
    let policy = Policy { group: "apps", operation: "CREATE", resource: "statefulsets", admits: "false", message };
    let test = async { does_not_start(&bench, json!({}), "InvalidSpec", &[message]).await };
    policy.during(&bench, &["create", "-f", "-"], &set.to_string(), test).await
}

pub(crate) async fn a_policy_that_refuses_new_passwords_is_named(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let (secret, message) = (auth_name(&quorum.name), "passwords come from the vault");
    let admits = &format!("object.metadata.name != '{secret}'");
    let policy = Policy { group: "", operation: "UPDATE", resource: "secrets", admits, message };
    let test = async {
        bench.kubectl(&["annotate", "rq", &quorum.name, "redlock-operator.io/rotate-passwords=1"]).await?;
        quorum_names(&bench, &quorum.name, "", &[message]).await
    };
    policy.during(&bench, &["annotate", "secret", &secret, "a=b"], "", test).await
}

pub(crate) async fn a_fenced_member_is_named_with_its_time(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", Duration::from_secs(20)).await?;
    bench.kubectl(&["delete", "pod", "q-1-0", "--wait=false"]).await?;
    quorum_names(&bench, &quorum.name, "MembersFenced", &["q-1", "Restarted"]).await
}

pub(crate) async fn a_quorum_that_starts_is_named_with_its_time(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::create_with(&bench, "q", LONG_TTL, json!({})).await?;
    let name = format!("RedisQuorum {}/q is starting. It grants locks from", bench.namespace);
    doctor_names(&bench, &[&name, "UTC"]).await
}

pub(crate) async fn a_quorum_without_a_majority_is_named(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    // The quota admits no pod in place of the deleted ones.
    bench.patch("rq", "q", r#"{"metadata": {"annotations": {"redlock-operator.io/rollout": "paused"}}}"#).await?;
    bench.create::<ResourceQuota>(json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}})).await?;
    for pod in ["q-0-0", "q-1-0"] {
        bench.kubectl(&["delete", "pod", pod, "--wait=false"]).await?;
    }
    quorum_names(&bench, &quorum.name, "", &["1 of 3", "q-0", "q-1", "exceeded quota: few"]).await
}

pub(crate) async fn a_member_that_does_not_answer_is_named(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let faults = &bench.cluster.faults;
    let frozen = faults.freeze(&bench.namespace, "q-1-0", "redis").await?;
    let named = quorum_names(&bench, &quorum.name, "", &["q-1", "connecting took too long"]).await;
    faults.end(frozen).await?;
    named
}

/// The member that an update would replace next still votes.
pub(crate) async fn a_policy_that_refuses_to_delete_a_member_is_named(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let message = "pods of this namespace stay";
    let policy = Policy { group: "", operation: "DELETE", resource: "pods", admits: "false", message };
    let test = async {
        bench.patch("rq", "q", r#"{"spec": {"pod": {"annotations": {"example.com/a": "b"}}}}"#).await?;
        let is_named = |version: &Version<RedisQuorum>| condition(version, "Progressing").2.contains(message);
        let status = quorum.recorder.until(NAMED_LIMIT, "Progressing names the policy", is_named).await?;
        let voting = status.object.members().iter().filter(|member| member.state == MemberState::Admitted).count();
        ensure!(voting == 3, "{voting} members vote while no pod can be replaced");
        doctor_names(&bench, &["Updating", message]).await
    };
    policy.during(&bench, &["delete", "pod", "q-0-0"], "", test).await
}
