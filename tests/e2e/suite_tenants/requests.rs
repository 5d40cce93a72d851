//! The rights on the annotations that release or break a lock.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use redlock_operator::api::DistributedLock;
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, reason_of, token},
    operators::HOLDER_ROLE,
    suite_lock::support::{IDLE, LockVersion, check_waited, election, finished, past, pod_claim, run, worker},
};

const TTL: Duration = Duration::from_secs(4);
const SLACK: Duration = Duration::from_secs(2);
const NEIGHBOUR: &str = "e2e-neighbour";

/// A pod with a service account of its own.
///
/// The test requests the token like its kubelet.
pub(super) async fn pod_of(bench: &Bench, name: &str, app: &str, account: &str) -> anyhow::Result<Pod> {
    let mut pod = worker(bench, name, app, IDLE);
    pod["spec"]["serviceAccountName"] = json!(account);
    Ok(run(bench, pod).await?.last()?.object)
}

/// A client with the token of this account, bound to this pod if there is one.
pub(super) async fn client_of(bench: &Bench, account: &str, pod: Option<&Pod>) -> anyhow::Result<Client> {
    let mut arguments = vec!["create".to_owned(), "token".to_owned(), account.to_owned()];
    if let Some(pod) = pod {
        arguments.push("--bound-object-kind=Pod".into());
        arguments.push(format!("--bound-object-name={}", pod.name_any()));
        arguments.push(format!("--bound-object-uid={}", pod.uid().unwrap_or_default()));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let token = bench.kubectl(&arguments).await?;
    let mut config = bench.cluster.config.clone();
    config.auth_info = serde_json::from_value(json!({"token": token.trim()}))?;
    Ok(Client::try_from(config)?)
}

async fn annotate(bench: &Bench, client: &Client, lock: &str, annotations: Value) -> Result<(), kube::Error> {
    let api: Api<DistributedLock> = Api::namespaced(client.clone(), &bench.namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    api.patch(lock, &PatchParams::default(), &patch).await.map(drop)
}

/// Checks that the neighbour's request is refused.
async fn neighbour_is_refused(bench: &Bench, arguments: &[&str], input: &str, word: &str) -> anyhow::Result<()> {
    bench.refuses(&[&["--as", NEIGHBOUR], arguments].concat(), input, word).await
}

/// Checks that the neighbour cannot use any of the ways to end a hold immediately.
async fn the_neighbour_tries_everything(bench: &Bench, lock: &Lock) -> anyhow::Result<()> {
    let name = lock.name.as_str();
    let word = format!("redlock-operator.io/release={}", token(&lock.recorder.last()?.object)?);
    neighbour_is_refused(bench, &["annotate", "dlock", name, &word], "", "the holder sets release").await?;
    for how in ["break", "break-force"] {
        let break_it = format!("redlock-operator.io/{how}=mine");
        neighbour_is_refused(bench, &["annotate", "dlock", name, &break_it], "", "the verb break").await?;
        let signed = format!("redlock-operator.io/{how}={NEIGHBOUR}: mine");
        neighbour_is_refused(bench, &["annotate", "dlock", name, &signed], "", "the verb break").await?;
    }
    // Another claim with the annotation at its creation.
    let mut other = claim("other", "another-key", None, TTL);
    other["apiVersion"] = json!("redlock-operator.io/v1alpha1");
    other["kind"] = json!("DistributedLock");
    other["metadata"]["annotations"] = json!({"redlock-operator.io/break-force": "mine"});
    neighbour_is_refused(bench, &["create", "-f", "-"], &other.to_string(), "the verb break").await?;
    // The neighbour changes the claim's holder into a free identity, which every user who can delete the claim can release.
    let text = r#"{"spec":{"claim":{"identity":"mine","podName":null}}}"#;
    let patch = ["patch", "dlock", name, "--type=merge", "--patch", text];
    if lock.recorder.last()?.object.spec.claim.is_some() {
        neighbour_is_refused(bench, &patch, "", "cannot be changed").await?;
    }
    let status = r#"{"status":{"holder":null}}"#;
    let patch = ["patch", "dlock", name, "--subresource=status", "--type=merge", "--patch", status];
    neighbour_is_refused(bench, &patch, "", "cannot patch resource").await
}

pub(crate) async fn a_neighbour_cannot_free_a_working_holders_lock(bench: Bench) -> anyhow::Result<()> {
    let user = format!("--user={NEIGHBOUR}");
    bench.kubectl(&["create", "rolebinding", "neighbour", "--clusterrole=edit", &user]).await?;
    for account in ["app", "other"] {
        bench.create_account(account, HOLDER_ROLE).await?;
    }
    let pod = pod_of(&bench, "app-0", "app", "app").await?;
    let twin = pod_of(&bench, "app-1", "twin", "app").await?;
    let bound = Lock::create(&bench, pod_claim("bound", "bound", "app-0", TTL)).await?;
    let elected = Lock::create(&bench, election("elected", "app", TTL)).await?;
    for lock in [&bound, &elected] {
        let held = token(&lock.held(SOON).await?.object)?;
        the_neighbour_tries_everything(&bench, lock).await?;
        // Neither another pod of the same account nor a token of that account without a pod can release the lock.
        let word = json!({"redlock-operator.io/release": held.to_string()});
        for pod in [Some(&twin), None] {
            let refused = annotate(&bench, &client_of(&bench, "app", pod).await?, &lock.name, word.clone()).await;
            let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
            ensure!(said.contains("the holder sets release"), "{}: {said}", lock.name);
        }
        ensure!(is_held(&lock.recorder.last()?.object), "{} is no longer held", lock.name);
        ensure!(token(&lock.recorder.last()?.object)? == held, "{} has another holder", lock.name);
    }
    // An editor can stop the renewals by deleting the claim, but cannot shorten the validity.
    let next = Lock::queue(&bench, claim("next", "bound", None, TTL)).await?;
    let held = token(&bound.recorder.last()?.object)?;
    bench.kubectl(&["delete", "dlock", "bound", "--wait=false", &format!("--as={NEIGHBOUR}")]).await?;
    check_waited(&bound, held, &next.held(TTL + SOON).await?, Duration::ZERO, SLACK)?;
    // The holder can release the lock with its own token.
    let held = token(&elected.recorder.last()?.object)?;
    let mark = elected.recorder.mark();
    let word = json!({"redlock-operator.io/release": held.to_string()});
    annotate(&bench, &client_of(&bench, "app", Some(&pod)).await?, "elected", word).await?;
    let over =
        |v: &LockVersion| past(v).is_ok_and(|past| past.fencing_token == Some(held) && past.reason == "Released");
    elected.recorder.until_after(mark, SOON, "released by its holder", over).await?;
    // A user who can delete a claim with a free identity can release it.
    let word = format!("redlock-operator.io/release={}", token(&next.recorder.last()?.object)?);
    bench.kubectl(&["annotate", "dlock", "next", &word, &format!("--as={NEIGHBOUR}")]).await?;
    finished(&next, "Released", SOON).await.map(drop)
}

pub(crate) async fn a_user_who_breaks_a_lock_needs_the_permission_and_is_named(bench: Bench) -> anyhow::Result<()> {
    let breaker = "e2e-breaker";
    for role in ["edit", "redlock-operator-break"] {
        let arguments = ["create", "rolebinding", role, &format!("--clusterrole={role}"), &format!("--user={breaker}")];
        bench.kubectl(&arguments).await?;
    }
    let lock = Lock::take(&bench, claim("stuck", "stuck", None, TTL)).await?;
    for value in ["it hangs", "somebody-else: it hangs", "e2e-breaker it hangs"] {
        let why = format!("redlock-operator.io/break={value}");
        let says_what = format!("Set the annotation to {breaker}: <reason>");
        bench.refuses(&["--as", breaker, "annotate", "dlock", "stuck", &why], "", &says_what).await?;
    }
    let why = format!("redlock-operator.io/break={breaker}: it hangs");
    bench.kubectl(&["--as", breaker, "annotate", "dlock", "stuck", &why]).await?;
    // No user can write another name there while the lock is ending.
    let other = r#"{"metadata":{"annotations":{"redlock-operator.io/break":"local-admin: it hangs"}}}"#;
    let replace = ["--as", breaker, "patch", "dlock", "stuck", "--type=merge", "--patch", other];
    bench.refuses(&replace, "", "name the user who breaks the lock").await?;
    let end = finished(&lock, "Broken", TTL + SOON).await?;
    let message = past(&end)?.message.context("no message in the history")?;
    ensure!(message.contains(&format!("{breaker}: it hangs")), "{message}");
    ensure!(reason_of(&end.object, "Held") == Some("Broken"), "{:?}", end.object.status);
    Ok(())
}
