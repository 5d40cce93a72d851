//! A library and a claim contend for one key, in both directions.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    foreign::Client,
    libraries::{LIBRARIES, Library, LockClient, Login, REDISSON},
    locks::{Lock, SOON, claim, is_held, message_of, status, token},
    quorums::Quorum,
};

const MAX_TTL: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn every_library_and_a_claim_exclude_each_other(bench: Bench) -> anyhow::Result<()> {
    all_libraries(&bench, json!({})).await
}

pub(crate) async fn every_library_and_a_claim_exclude_each_other_over_tls(bench: Bench) -> anyhow::Result<()> {
    all_libraries(&bench, json!({"tls": {"mode": "Managed"}})).await
}

async fn all_libraries(bench: &Bench, fields: Value) -> anyhow::Result<()> {
    let tls = fields["tls"].is_object();
    let quorum = Quorum::ready_with(bench, "q", MAX_TTL, fields).await?;
    let Login { urls, ca } = Login::of(&quorum).await?;
    ensure!(
        urls.lines().all(|url| url.starts_with("rediss://") == tls) && ca.is_some() == tls,
        "the Secret does not match the TLS setting"
    );
    let redis = Client::start(&quorum).await?;
    for library in LIBRARIES {
        let mut client = LockClient::start(&quorum, library).await?;
        outside_first(bench, &redis, &mut client).await.with_context(|| format!("{} first", library.name))?;
        inside_first(bench, &redis, &mut client).await.with_context(|| format!("a claim before {}", library.name))?;
    }
    Ok(())
}

/// The operator reports a client's hold, and waits until the client releases it.
async fn outside_first(bench: &Bench, redis: &Client, client: &mut LockClient) -> anyhow::Result<()> {
    let Library { name, extends } = client.library;
    let (object, name) = (format!("after-{name}"), format!("outside-{name}"));
    let key = bench.key(&name);
    let held = client.acquire_within(SOON, &key, MAX_TTL).await?;
    // The client has the key on all members, except for one that was too slow for the library.
    let present = format!("for m in 0 1 2; do redis $m EXISTS {key}; done");
    let set = redis.shell(&present).await?;
    ensure!(set.matches('1').count() >= 2, "the client holds by {set:?}");
    let lock = Lock::create(bench, claim(&object, &name, Some("q"), TTL)).await?;
    let other = lock.reason("HeldByOther", SOON).await?;
    let message = message_of(&other.object, "Held");
    ensure!(message.contains(&key), "the message: {message}");
    ensure!(message.contains("a hash") == (client.library == REDISSON), "the message: {message}");
    if extends {
        let extended = client.extend(MAX_TTL).await?;
        ensure!(extended.until > held.until, "the extension has not made {held:?} longer: {extended:?}");
    }
    let left = redis.shell(&present).await?;
    ensure!(left == set, "the client's key was on {set:?}, and is on {left:?}");
    let released = bench.wall().0;
    client.release().await?;
    let held = lock.held(SOON).await?;
    let acquired = status(&held.object).acquired_at.context("no acquiredAt")?.as_millis();
    ensure!(acquired >= released, "acquired {} ms before the client released", released - acquired);
    lock.remove().await
}

/// Checks that the client cannot take a key that a claim holds, and does not change the key.
async fn inside_first(bench: &Bench, redis: &Client, client: &mut LockClient) -> anyhow::Result<()> {
    let name = format!("inside-{}", client.library.name);
    let key = bench.key(&name);
    let lock = Lock::create(bench, claim(&name, &name, Some("q"), TTL)).await?;
    lock.held(SOON).await?;
    let before = lock.fully_voted(SOON).await?;
    let values = format!("for m in 0 1 2; do redis $m GET {key}; done");
    let value = redis.shell(&values).await?;
    for _ in 0..3 {
        let got = client.acquire(&key, TTL).await?;
        ensure!(got.is_none(), "a client took what a claim holds: {got:?}");
    }
    ensure!(!client.example(&key).await?, "the example of docs/clients.md took what a claim holds");
    let after = redis.shell(&values).await?;
    ensure!(value == after && value.lines().count() == 3, "the claim's keys were {value:?} and are {after:?}");
    let now = lock.recorder.last()?;
    ensure!(is_held(&now.object), "the claim has lost its lock");
    ensure!(token(&before.object)? == token(&now.object)?, "the claim was granted the lock again");
    lock.remove().await?;
    client.acquire_within(SOON, &key, TTL).await?;
    client.release().await?;
    ensure!(client.example(&key).await?, "the example of docs/clients.md does not take a free lock");
    Ok(())
}
