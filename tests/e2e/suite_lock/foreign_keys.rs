//! Keys of other clients that never expire, or are no Redlock keys.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::DistributedLock;

use crate::{
    bench::Bench,
    foreign::Client,
    locks::{Lock, SOON, claim, message_of, reason_of},
    quorums::Quorum,
    record::Version,
    suite_causes::surfaces::lock_names,
};

const MAX_TTL: Duration = Duration::from_secs(4);

pub(crate) async fn foreign_keys_that_never_end_are_reported_and_never_deleted(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    // The key of a client, and the text that the message has to contain.
    let cases = [
        ("endless", "SET KEY some-value", "time to live"),
        ("timestamp", "SET KEY 1795284168.123", "timestamp"),
        ("long", "SET KEY some-value PX 600000", "maxTTL"),
        // This is Redisson's first command. It would set a time to live afterwards.
        ("hash", "HINCRBY KEY 8743c9c0:1 1", "a hash"),
    ];
    let mut locks = Vec::new();
    for (name, write, ..) in cases {
        let write = write.replace("KEY", &format!("{}/{name}", bench.namespace));
        let answer = client.shell(&format!("redis 0 {write}; redis 1 {write}")).await?;
        ensure!(answer == "OK\nOK" || answer == "1\n1", "{name}: {answer}");
        locks.push(Lock::create(&bench, claim(name, name, Some("q"), MAX_TTL)).await?);
    }
    for (lock, (_, _, word)) in locks.iter().zip(cases) {
        let other = lock.reason("HeldByOther", SOON).await?;
        let message = message_of(&other.object, "Held");
        ensure!(message.contains(word), "{}: the message has no {word:?}: {message}", lock.name);
        ensure!(!message.contains("some-value"), "the message has the value in it: {message}");
    }
    lock_names(&bench, "long", "HeldByOther", &["outside this operator"]).await?;
    // The wait is three ttls, which is longer than the longest lock of this quorum.
    let endless = locks.first().context("no lock")?;
    let command = format!("DEL {}/endless", bench.namespace);
    let is_unready = |version: &Version<DistributedLock>| {
        reason_of(&version.object, "Ready") == Some("KeyNeverExpires")
            && message_of(&version.object, "Ready").contains(&command)
    };
    endless.recorder.until(3 * MAX_TTL + SOON, "not ready, with the command", is_unready).await?;
    for lock in &locks {
        let key = format!("{}/{}", bench.namespace, lock.name);
        let left = client.shell(&format!("redis 0 EXISTS {key}; redis 1 EXISTS {key}")).await?;
        ensure!(left == "1\n1", "{key}: the key was deleted: {left}");
        client.shell(&format!("redis 0 DEL {key}; redis 1 DEL {key}")).await?;
        lock.held(SOON).await?;
    }
    Ok(())
}
