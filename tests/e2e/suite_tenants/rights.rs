//! The rights of the operator's service account.
//!
//! All of them are documented, and the admission policies limit them to quorums.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use redlock_operator::api::RedisQuorum;
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    operators, poll,
};

const TABLE: &str = "| who | where | what | verbs | why |";

type Rights = BTreeMap<String, BTreeSet<String>>;

/// The operator's rights in the whole cluster, from the tables of docs/security.md.
///
/// Two of the tables apply to the cluster of the tests: the first one and the one for Jobs. The second one is for an operator in few
/// namespaces, and the last one for `leaseGate.enabled`.
fn documented(places: &[&str]) -> anyhow::Result<Rights> {
    let text = include_str!("../../../docs/security.md");
    let tables: Vec<&str> = text.split(TABLE).collect();
    let [_, always, _narrow, jobs, _leases] = tables.as_slice() else {
        anyhow::bail!("docs/security.md has other tables of rights")
    };
    let mut rights = Rights::new();
    let rows = |table: &&'static str| table.trim_start().lines().skip(1).take_while(|line| line.starts_with('|'));
    for row in [always, jobs].into_iter().flat_map(rows) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        // The operator of the tests runs quorums in all namespaces. Its Lease is in one namespace.
        let is_there = places.contains(&cells[1]) || cells[1] == "redlock-system" && !cells[2].starts_with("leases");
        if cells[0] == format!("account {}", operators::NAME) && is_there {
            rights.entry(as_asked(cells[2])).or_default().extend(cells[3].split(' ').map(str::to_owned));
        }
    }
    Ok(rights)
}

/// Formats a resource like the API server.
///
/// A subresource is after the group: `locks.example.com/status`.
fn as_asked(what: &str) -> String {
    let (resource, names) = what.split_once(' ').map_or((what, ""), |(resource, names)| (resource, names));
    let resource = match resource.split_once('/').map(|(whole, part)| (whole, part.split_once('.'))) {
        Some((whole, Some((part, group)))) => format!("{whole}.{group}/{part}"),
        _ => resource.to_owned(),
    };
    format!("{resource} {names}").trim_end().to_owned()
}

/// The rights of an account in a namespace by the API server, by resource (and names).
async fn rights_of(bench: &Bench, account: &str, namespace: &str) -> anyhow::Result<Rights> {
    let list = ["--as", account, "auth", "can-i", "--list", "--no-headers", "-n", namespace];
    let text = bench.cluster.kubectl(&list).await?;
    let mut rights = Rights::new();
    for line in text.lines().filter(|line| !line.starts_with(' ')) {
        let (resource, lists) = line.split_once(' ').with_context(|| format!("not a right: {line}"))?;
        let lists: Vec<&str> = lists.split('[').skip(1).map(|list| list.trim().trim_end_matches(']')).collect();
        let [_urls, names, verbs] = lists.as_slice() else { anyhow::bail!("not a right: {line}") };
        let what = if names.is_empty() { resource.to_owned() } else { format!("{resource} {names}") };
        rights.entry(what).or_default().extend(verbs.split(' ').map(str::to_owned));
    }
    Ok(rights)
}

pub(crate) async fn the_operators_account_has_only_the_documented_rights(bench: Bench) -> anyhow::Result<()> {
    let own = bench.cluster.operator_namespace.clone();
    for (namespace, places) in
        [(bench.namespace.as_str(), &["everywhere"][..]), (&own, &["everywhere", "redlock-system"])]
    {
        let anybody = format!("system:serviceaccount:{own}:another-account");
        let everybodys = rights_of(&bench, &anybody, namespace).await?;
        let mut granted = rights_of(&bench, &operators::account(&bench.cluster), namespace).await?;
        granted.retain(|what, verbs| everybodys.get(what) != Some(verbs));
        let documented = documented(places)?;
        ensure!(documented.len() > 10, "{documented:?}");
        ensure!(granted == documented, "in {namespace}\ngranted:    {granted:?}\ndocumented: {documented:?}");
    }
    Ok(())
}

/// The metadata of the operator's own objects, for a quorum that does not exist.
fn like_ours(name: &str) -> Value {
    json!({"name": name, "labels": {"redlock-operator.io/quorum": "q"}, "ownerReferences": [{
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum", "name": "q", "controller": true,
        "uid": "00000000-0000-0000-0000-000000000000"}]})
}

/// A StatefulSet that is valid for a member except for this change.
fn stateful_set(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = json!({"automountServiceAccountToken": false,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "containers": [{"name": "redis", "image": "x",
        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}}]});
    change(&mut pod);
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": like_ours("q-0"), "spec": {
        "serviceName": "q-0", "replicas": 0, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}})
}

/// Objects that the operator's account cannot create, and a text of the refusal.
fn forbidden() -> Vec<(Value, &'static str)> {
    let secret = |metadata: Value, type_: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_});
    let service =
        |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": like_ours("q-0"), "spec": spec});
    let mut token = like_ours("q-token");
    token["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
    let selector = json!({"redlock-operator.io/member": "q-0"});
    let elsewhere = json!({"type": "ExternalName", "externalName": "example.com", "selector": selector});
    let with_addresses = json!({"ports": [{"port": 1}], "externalIPs": ["192.0.2.1"], "selector": selector});
    let network_policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": like_ours("q"), "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": like_ours("q"),
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "shop"}}}});
    let quorum = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum",
        "metadata": {"name": "q"}, "spec": {}});
    let mut of_others = like_ours("q-auth");
    of_others["labels"] = json!({});
    let mut of_a_tool = like_ours("q-cluster");
    of_a_tool["labels"]["argocd.argoproj.io/secret-type"] = json!("cluster");
    let mut of_another_owner = like_ours("q-auth");
    of_another_owner["ownerReferences"][0]["name"] = json!("another");
    vec![
        (secret(token, "kubernetes.io/service-account-token"), "type Opaque"),
        (secret(json!({"name": "theirs"}), "Opaque"), "with its name"),
        (secret(of_others, "Opaque"), "with its name"),
        (secret(like_ours("other"), "Opaque"), "with its name"),
        (secret(like_ours("quota-of-others"), "Opaque"), "with its name"),
        (secret(of_another_owner, "Opaque"), "with its name"),
        (secret(of_a_tool, "Opaque"), "labels or annotations of other programs"),
        (service(elsewhere), "external names"),
        (service(with_addresses), "external names"),
        (service(json!({"ports": [{"port": 1}], "selector": {"app": "shop"}})), "those of members"),
        (stateful_set(|pod| pod["automountServiceAccountToken"] = json!(true)), "no service account token"),
        (stateful_set(|pod| pod["serviceAccountName"] = json!("builder")), "no service account but default"),
        (stateful_set(|pod| pod["priorityClassName"] = json!("system-node-critical")), "priority class"),
        (stateful_set(|pod| pod["hostNetwork"] = json!(true)), "of their node"),
        (stateful_set(|pod| pod["volumes"] = json!([{"name": "x", "hostPath": {"path": "/"}}])), "of their node"),
        (stateful_set(|pod| pod["volumes"] = json!([{"name": "x", "projected": {"sources": []}}])), "of their node"),
        (stateful_set(|pod| pod["containers"][0]["securityContext"] = json!({"privileged": true})), "restricted"),
        (stateful_set(|pod| pod["containers"][0]["securityContext"]["runAsNonRoot"] = json!(false)), "restricted"),
        (stateful_set(|pod| pod["securityContext"] = json!({})), "restricted"),
        (network_policy, "those of members"),
        (budget, "those of members"),
        (quorum, "default quorum"),
    ]
}

/// Runs kubectl as the operator's account.
///
/// A policy with this text must refuse it.
async fn refused(bench: &Bench, arguments: &[&str], input: &str, text: &str) -> anyhow::Result<()> {
    let account = operators::account(&bench.cluster);
    let arguments = [arguments, &["--as", &account, "--dry-run=server"]].concat();
    let error = bench.kubectl_fails(&arguments, input).await?;
    let is_by_policy = error.contains("ValidatingAdmissionPolicy") && error.contains(text);
    ensure!(is_by_policy, "no {text:?} in the error of kubectl {} {input}: {error}", arguments.join(" "));
    Ok(())
}

pub(crate) async fn the_operators_account_writes_only_objects_of_a_quorum(bench: Bench) -> anyhow::Result<()> {
    let fine = stateful_set(|_| ()).to_string();
    // The quorum has no managed members, so that the objects below do not exist.
    let spec = json!({"members": 0, "external": [{"name": "vm", "address": "192.0.2.1:6379"}]});
    bench.create::<RedisQuorum>(json!({"metadata": {"name": "q"}, "spec": spec})).await?;
    let account = operators::account(&bench.cluster);
    let create = ["create", "-f", "-", "--as", &account, "--dry-run=server"];
    poll::until(SOON, "a StatefulSet of a quorum passes", async || {
        let output = bench.kubectl_output(&create, &fine).await?;
        Ok(output.status.success().then_some(()))
    })
    .await?;
    for (object, word) in forbidden() {
        refused(&bench, &["create", "-f", "-"], &object.to_string(), word).await?;
    }

    bench.kubectl(&["create", "secret", "generic", "theirs", "--from-literal=a=b"]).await?;
    let patch = json!({"metadata": like_ours("theirs")}).to_string();
    for arguments in
        [&["patch", "secret", "theirs", "--type=merge", "--patch", &patch][..], &["delete", "secret", "theirs"]]
    {
        refused(&bench, arguments, "", "only objects of a RedisQuorum").await?;
    }
    let _lock = Lock::take(&bench, claim("mine", "k", None, std::time::Duration::from_secs(4))).await?;
    let spec = r#"{"spec":{"suspend":true}}"#;
    refused(&bench, &["patch", "dlock", "mine", "--type=merge", "--patch", spec], "", "specification").await?;
    refused(&bench, &["delete", "dlock", "mine"], "", "ttlAfterFinished").await
}
