//! A quorum is deleted.
//!
//! Its condition reports what is still held, none of its remaining processes can vote, and its successor gives larger
//! tokens.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::RedisQuorum;

use super::helpers::{condition, delay, quorum_and_lock, reason_after};
use crate::{
    bench::Bench,
    foreign::{Client, Line, Monitor},
    locks::{Lock, SOON, claim, status, token},
    poll,
    quorums::Quorum,
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) async fn a_quorum_made_again_under_its_name_gives_larger_tokens(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let before = token(&lock.recorder.last()?.object)?;
    bench.delete::<RedisQuorum>("q").await?;
    quorum.recorder.until_gone(LIMIT).await?;
    let versions = lock.recorder.versions();
    let ended = versions.iter().filter_map(|v| status(&v.object).valid_until).max().context("no validUntil")?;
    Quorum::ready(&bench, "q", MAX_TTL).await?;
    let next = Lock::create(&bench, claim("next", "job", Some("q"), TTL)).await?;
    let held = next.held(SOON).await?.object;
    ensure!(token(&held)? > before, "token {} after {before}", token(&held)?);
    let acquired = status(&held).acquired_at.context("no acquiredAt")?;
    ensure!(acquired >= ended, "acquired at {acquired}, but the hold before was valid until {ended}");
    next.remove().await?;
    lock.remove().await
}

pub(crate) async fn a_deleted_quorum_names_its_held_locks_and_answers_only_ping(bench: Bench) -> anyhow::Result<()> {
    // The members run for this time after they are closed, which is enough to check them.
    let max_ttl = Duration::from_secs(15);
    let (quorum, lock) = quorum_and_lock(&bench, max_ttl, TTL).await?;
    let client = Client::start(&quorum).await?;
    // Each member has one earlier connection that continues to send commands. The log has the replies.
    let mut before = Vec::new();
    for member in 0..3 {
        let url = format!("$(sed -n {}p /client/urls)", member + 1);
        let key = format!("{}/old-{member}", bench.namespace);
        let commands = format!("while :; do echo PING; echo SET {key} x PX 100; sleep 0.2; done");
        let script = format!("({commands}) | redis-cli --no-auth-warning -u \"{url}\" 2>&1; echo cut; sleep 3600");
        before.push(Monitor::run(&quorum, &format!("old-{member}"), &script).await?);
    }
    for monitor in &before {
        monitor.until(0, SOON, "it may set keys", |line| line.text == "OK").await?;
    }
    let mark = quorum.recorder.mark();
    bench.delete::<RedisQuorum>("q").await?;
    let message = reason_after(&quorum, mark, SOON, "Ready", "Deleting").await?;
    ensure!(message.contains(&format!("{}/job", bench.namespace)), "the held lock is not named: {message}");
    let closed = |v: &Version<RedisQuorum>| condition(v, "Ready").2.matches("is closed").count() == 3;
    quorum.recorder.until_after(mark, SOON, "all members are closed", closed).await?;
    let since = bench.wall().0;
    for (member, monitor) in before.iter().enumerate() {
        let refused = |line: &Line| line.text == "cut" || line.text.contains("NOPERM");
        let lines = monitor.until(since, SOON, "the old connection is cut or refused", refused).await;
        let lines = match lines {
            Ok(lines) => lines,
            // The connection was cut before `since`, so no more lines arrive.
            Err(error) => monitor.lines().await.ok().filter(|l| l.iter().any(refused)).ok_or(error)?,
        };
        let voted = lines.iter().find(|line| line.at > since && line.text == "OK");
        ensure!(voted.is_none(), "member {member} took a key on an old connection: {voted:?}");
        let key = format!("{}/new", bench.namespace);
        ensure!(client.redis(member, &["PING"]).await? == "PONG", "a closed member does not answer PING");
        for command in
            [&["SET", &key, "x", "NX", "PX", "100"][..], &["GET", &key], &["EVAL", "return 1", "0"], &["INFO"]]
        {
            let answer = client.redis(member, command).await?;
            ensure!(answer.contains("NOPERM"), "member {member} answers {command:?} with {answer}");
        }
    }
    let events = bench.kubectl(&["get", "events", "-o", "jsonpath={range .items[*]}{.reason}{'\\n'}{end}"]).await?;
    ensure!(events.contains("DeletedWithLocks"), "no Event names the lost locks: {events}");
    // No member answers for the lock's key, so the lock is deleted only when no member can have the key.
    lock.delete().await?;
    lock.recorder.until_gone(delay(max_ttl) + SOON).await?;
    quorum.recorder.until_gone(LIMIT).await.map(drop)
}

/// A script that has written keeps a member busy, so the leader cannot close it.
pub(crate) async fn a_quorum_with_a_busy_member_can_be_deleted(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    let script = format!("redis.call('SET', '{}/busy', 1) while true do end", bench.namespace);
    let url = "$(sed -n 1p /client/urls)";
    let command =
        format!("redis-cli --no-auth-warning -u \"{url}\" EVAL \"{script}\" 1 {}/busy; sleep 3600", bench.namespace);
    let _monitor = Monitor::run(&quorum, "busy", &command).await?;
    let is_busy = async || Ok(client.redis(0, &["PING"]).await?.contains("BUSY").then_some(()));
    poll::until(SOON, "the member is busy", is_busy).await?;
    bench.delete::<RedisQuorum>("q").await?;
    quorum.recorder.until_gone(LIMIT).await.map(drop)
}

/// All objects are deleted at the same time, so the Redis pods can end first.
pub(crate) async fn a_namespace_with_held_locks_can_be_deleted(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    bench.kubectl(&["delete", "statefulsets,pods", "--all", "--wait=false"]).await?;
    let start = bench.now();
    // This is the regular end of a test, but here all objects are in use.
    bench.close().await?;
    bench.figures.add("namespace with a quorum and a held lock deleted", bench.now().since(start));
    lock.recorder.until_gone(SOON).await?;
    quorum.recorder.until_gone(SOON).await.map(drop)
}
