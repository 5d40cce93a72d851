//! Redlock clients without any knowledge of Kubernetes contend for the same keys.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    bench::Bench,
    foreign::Client,
    locks::{Lock, SOON, claim, message_of},
    quorums::Quorum,
};

const MAX_TTL: Duration = Duration::from_secs(5);
const FOREIGN_TTL: Duration = Duration::from_secs(4);

pub(crate) async fn a_client_outside_and_a_claim_exclude_each_other(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    let key = format!("{}/job", bench.namespace);
    let take = format!("SET {key} foreign-value NX PX {}", FOREIGN_TTL.as_millis());

    // Two of three members are a majority.
    let taking = bench.now();
    let answers = client.shell(&format!("redis 0 {take}; redis 2 {take}")).await?;
    ensure!(answers == "OK\nOK", "{answers}");
    let lock = Lock::create(&bench, claim("job", "job", Some("q"), Duration::from_secs(3))).await?;
    let other = lock.reason("HeldByOther", SOON).await?;
    let message = message_of(&other.object, "Held");
    ensure!(message.contains(&key) && !message.contains("foreign-value"), "the message: {message}");
    let held = lock.held(FOREIGN_TTL + SOON).await?;
    let waited = held.at.since(taking);
    ensure!(waited >= FOREIGN_TTL, "the claim was held {waited:?} after the foreign client took the lock");
    ensure!(waited < FOREIGN_TTL + Duration::from_secs(2), "the claim was held only after {waited:?}");

    // The grant needed only a majority. On the third member the next renewal sets the key.
    lock.fully_voted(SOON).await?;
    let answers = client.shell(&format!("for m in 0 1 2; do redis $m {take}; done; echo end")).await?;
    ensure!(!answers.contains("OK"), "a foreign client took a key that a claim holds: {answers}");
    lock.remove().await?;
    let answers = client.shell(&format!("for m in 0 1 2; do redis $m {take}; done")).await?;
    ensure!(answers == "OK\nOK\nOK", "a deleted claim left a key: {answers}");
    Ok(())
}
