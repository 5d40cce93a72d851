//! Authenticated holders: with the optional policy a pod claims only for itself.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::{Api, Client, ResourceExt, api::PostParams};
use redlock_operator::api::DistributedLock;
use serde_json::{Value, json};

use super::requests::{client_of, pod_of};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
    operators, poll,
};

const TTL: Duration = Duration::from_secs(4);

/// The policy as the chart renders it when it is switched on.
async fn policy(bench: &Bench) -> anyhow::Result<String> {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/redlock-operator");
    let switch = ["--set", "admissionPolicies.authenticatedHolders=true", "--kube-version", "1.30.0"];
    let only = ["--show-only", "templates/admission-requests.yaml", "--namespace", &bench.cluster.operator_namespace];
    let output = bench.cluster.helm(&[&["template", operators::NAME, chart], &only[..], &switch[..]].concat()).await?;
    let text = String::from_utf8(output.stdout)?;
    let documents: Vec<&str> = text.split("\n---\n").filter(|part| part.contains("redlock-operator-holders")).collect();
    ensure!(documents.len() == 2, "no policy in:\n{text}");
    Ok(documents.join("\n---\n"))
}

async fn kubectl(bench: &Bench, arguments: &[&str], input: &str) -> anyhow::Result<()> {
    let output = bench.cluster.kubectl_output(arguments, input).await?;
    ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Whether a claim may be made; what is said if not.
async fn claims(bench: &Bench, client: &Client, holder: Value) -> anyhow::Result<Result<(), String>> {
    let mut lock = claim("tried", "k", None, TTL);
    lock["spec"]["claim"] = holder;
    let api: Api<DistributedLock> = Api::namespaced(client.clone(), &bench.namespace);
    let only_asked = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&only_asked, &serde_json::from_value(lock)?).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn a_pod_claims_only_for_itself_where_that_is_asked_for(bench: Bench) -> anyhow::Result<()> {
    let policy = policy(&bench).await?;
    kubectl(&bench, &["apply", "-f", "-"], &policy).await?;
    let result = with_the_policy(&bench).await;
    // It is for all namespaces, those of the tests that follow included.
    let removed = kubectl(&bench, &["delete", "-f", "-"], &policy).await;
    result.and(removed)
}

async fn with_the_policy(bench: &Bench) -> anyhow::Result<()> {
    for (account, role) in [("app", "holder"), ("scheduler", "holder"), ("scheduler", "claim-for-others")] {
        if role == "holder" {
            bench.kubectl(&["create", "serviceaccount", account]).await?;
        }
        let subject = format!("--serviceaccount={}:{account}", bench.namespace);
        let role_flag = format!("--clusterrole=redlock-operator-{role}");
        bench.kubectl(&["create", "rolebinding", &format!("{account}-{role}"), &role_flag, &subject]).await?;
    }
    let pod = pod_of(bench, "app-0", "app", "app").await?;
    let other = pod_of(bench, "app-1", "app", "app").await?;
    let (me, it) = (pod.uid().context("no UID")?, other.uid().context("no UID")?);
    let own = client_of(bench, "app", Some(&pod)).await?;
    poll::until(SOON, "the policy works", async || {
        Ok(claims(bench, &own, json!({"identity": "anybody"})).await?.err().map(drop))
    })
    .await?;
    for holder in [
        json!({"identity": "anybody"}),
        json!({"podName": "app-0"}),
        json!({"podName": "app-1", "podUID": it}),
        json!({"podName": "app-0", "podUID": it}),
        json!({"podName": "app-1", "podUID": me}),
    ] {
        let said = claims(bench, &own, holder.clone()).await?.err().unwrap_or_default();
        ensure!(said.contains("a pod claims for itself"), "{holder}: {said:?}");
    }
    let itself = json!({"podName": "app-0", "podUID": me});
    let unbound = client_of(bench, "app", None).await?;
    ensure!(claims(bench, &unbound, itself.clone()).await?.is_err(), "a token without a pod claims for one");
    ensure!(claims(bench, &own, itself.clone()).await? == Ok(()), "a pod cannot claim for itself");
    let scheduler = client_of(bench, "scheduler", None).await?;
    for holder in [json!({"identity": "anybody"}), itself.clone()] {
        ensure!(claims(bench, &scheduler, holder.clone()).await? == Ok(()), "claim-for-others: {holder}");
    }
    // And such a claim is held.
    let mut lock = claim("held", "held", None, TTL);
    lock["spec"]["claim"] = itself;
    let recorder = bench.record::<DistributedLock>("held").await?;
    let api: Api<DistributedLock> = Api::namespaced(own, &bench.namespace);
    api.create(&PostParams::default(), &serde_json::from_value(lock)?).await?;
    let lock = Lock { bench: bench.clone(), name: "held".into(), recorder };
    lock.held(SOON).await.map(drop)
}
