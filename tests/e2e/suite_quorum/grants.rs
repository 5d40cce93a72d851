//! The passwords of a client, and the copy of its Secret in its namespace, end with the client.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::{
    bench::Bench,
    foreign::Client,
    locks::SOON,
    poll,
    quorums::{Quorum, clients_with},
};

const MAX_TTL: Duration = Duration::from_secs(3);
/// The interval between two checks of the copies.
const COPY_LIMIT: Duration = Duration::from_secs(120);
const COPY: &str = "q-client-ci";

/// The clients of the quorum, and `ci` with this namespace and prefix.
async fn with_ci(bench: &Bench, ci: Option<(&str, &str)>) -> anyhow::Result<()> {
    let ci = ci.map(|(namespace, prefix)| json!({"name": "ci", "namespace": namespace, "keyPrefix": prefix}));
    bench.patch("rq", "q", &json!({"spec": {"clients": clients_with(bench, ci)}}).to_string()).await
}

/// Waits for the first URL in the Secret of `ci` that differs from `before`.
async fn url(bench: &Bench, before: &str) -> anyhow::Result<String> {
    poll::until(COPY_LIMIT, "the Secret of ci has new passwords", || async {
        let secret = bench.api::<Secret>().get_opt(COPY).await?;
        let urls = secret.and_then(|secret| secret.data?.remove("urls"));
        let urls = urls.map(|urls| String::from_utf8(urls.0)).transpose()?;
        let first = urls.and_then(|urls| urls.lines().next().map(str::to_owned));
        Ok(first.filter(|first| first != before))
    })
    .await
}

async fn gone(bench: &Bench) -> anyhow::Result<()> {
    let is_gone = || async { Ok(bench.api::<Secret>().get_opt(COPY).await?.is_none().then_some(())) };
    poll::until(COPY_LIMIT, "the copy of ci's Secret goes", is_gone).await
}

/// Waits until the member gives this reply to a SET below the prefix.
async fn answers(client: &Client, url: &str, prefix: &str, answer: &str) -> anyhow::Result<()> {
    let command = format!("redis-cli --no-auth-warning -u {url} SET {prefix}job v PX 1000 2>&1 || true");
    let is_it = || async { Ok(client.shell(&command).await?.contains(answer).then_some(())) };
    poll::until(SOON, &format!("{answer} for {prefix}"), is_it).await
}

pub(crate) async fn credentials_and_copies_end_with_their_client(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    Bench::beside(&bench, "ci", async |other| {
        let prefix = format!("{}/", other.namespace);
        with_ci(&bench, Some((&other.namespace, &prefix))).await?;
        let first = url(other, "").await?;
        answers(&client, &first, &prefix, "OK").await?;
        let copies = quorum.recorder.last()?.object.status.context("no status")?.client_copies;
        ensure!(copies.len() == 1 && copies[0].namespace == other.namespace, "{copies:?}");

        // The client gets another prefix, is removed, and is added again as at first.
        let narrower = format!("{prefix}a/");
        with_ci(&bench, Some((&other.namespace, &narrower))).await?;
        let second = url(other, &first).await?;
        answers(&client, &second, &narrower, "OK").await?;
        answers(&client, &first, &narrower, "WRONGPASS").await?;
        with_ci(&bench, None).await?;
        gone(other).await?;
        gone(&bench).await?;
        answers(&client, &second, &narrower, "WRONGPASS").await?;
        with_ci(&bench, Some((&other.namespace, &prefix))).await?;
        let third = url(other, &second).await?;
        answers(&client, &third, &prefix, "OK").await?;
        ensure!(third != first, "the first passwords are valid again");
        answers(&client, &first, &prefix, "WRONGPASS").await?;

        // The client moves to the quorum's own namespace.
        let own = format!("{}/", bench.namespace);
        with_ci(&bench, Some((&bench.namespace, &own))).await?;
        gone(other).await?;
        answers(&client, &url(&bench, &third).await?, &own, "OK").await?;
        answers(&client, &third, &prefix, "WRONGPASS").await
    })
    .await
}
