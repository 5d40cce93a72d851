//! One lock for several namespaces.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::support::LockVersion;
use crate::{
    bench::Bench,
    foreign::Client,
    locks::{Lock, SOON, claim, message_of, reason_of, status, token, with},
    quorums::Quorum,
};

const TTL: Duration = Duration::from_secs(4);

pub(crate) async fn claims_of_two_namespaces_contend_for_one_verbatim_key(bench: Bench) -> anyhow::Result<()> {
    bench.beside("elsewhere", async |elsewhere| contend(&bench, elsewhere).await).await
}

async fn contend(bench: &Bench, elsewhere: &Bench) -> anyhow::Result<()> {
    let selector = json!({"matchLabels": {"e2e-may-lock": "true"}});
    let spec = json!({"keys": "Verbatim", "allowedNamespaces": {"from": "Selector", "selector": selector}});
    let quorum = Quorum::ready_with(bench, "q", TTL, spec).await?;
    let client = Client::start(&quorum).await?;
    // The key has the namespace's prefix, because the outside client can use only such keys.
    let key = format!("{}/shared", bench.namespace);
    let there = json!({"quorumRef": {"name": "q", "namespace": bench.namespace}});
    let claim_of = |name: &str| with(claim(name, &key, None, TTL), there.clone());
    let far = Lock::create(elsewhere, claim_of("far")).await?;
    let refused = |v: &LockVersion| reason_of(&v.object, "Accepted") == Some("NamespaceNotAllowed");
    let refused = far.recorder.until(SOON, "the selector does not match", refused).await?;
    let message = message_of(&refused.object, "Accepted");
    ensure!(message.contains("allowedNamespaces"), "the message names no remedy: {message}");

    let allow = ["label", "namespace", &elsewhere.namespace, "e2e-may-lock=true"];
    bench.cluster.kubectl(&allow).await?;
    let first = token(&far.held(SOON).await?.object)?;
    let nonce = status(&far.recorder.last()?.object).holder.and_then(|holder| holder.nonce).unwrap_or_default();
    let value = client.redis(0, &["GET", &key]).await?;
    ensure!(!nonce.is_empty() && value.starts_with(&nonce), "the key in Redis is not as written: {value:?}");

    bench.cluster.kubectl(&["label", "namespace", &bench.namespace, "e2e-may-lock=true"]).await?;
    let near = Lock::create(bench, claim_of("near")).await?;
    let queued = near.reason("Queued", SOON).await?;
    ensure!(message_of(&queued.object, "Held").contains("far"), "{:?}", status(&queued.object));
    far.remove().await?;
    ensure!(token(&near.held(SOON).await?.object)? > first, "the next token is not greater");

    near.remove().await
}
