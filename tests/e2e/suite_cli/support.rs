//! Runs the command.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, status},
    operators::HOLDER_ROLE,
    quorums::{Quorum, client, clients_with},
    record::Version,
    suite_lock::support::next_second,
};

const TTL: Duration = Duration::from_secs(10);

/// The result of the command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `redlock` in the test's namespace, and returns its result even if it fails.
pub(crate) async fn redlock(bench: &Bench, arguments: &[&str]) -> anyhow::Result<Ran> {
    let output = bench.cluster.redlock(arguments).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().context("redlock was killed")?;
    Ok(Ran { code, out: text(&output.stdout), err: text(&output.stderr) })
}

/// Runs the command, which must succeed, and returns its output.
pub(crate) async fn prints(bench: &Bench, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = redlock(bench, arguments).await?;
    ensure!(ran.code == 0, "redlock {}: {} {}{}", arguments.join(" "), ran.code, ran.out, ran.err);
    Ok(ran.out)
}

/// Runs the command, which must end with exit code 125 and this error.
pub(crate) async fn fails(bench: &Bench, arguments: &[&str], error: &str) -> anyhow::Result<()> {
    let ran = redlock(bench, arguments).await?;
    ensure!(ran.code == 125 && ran.err.contains(error), "redlock {}: {} {}", arguments.join(" "), ran.code, ran.err);
    Ok(())
}

/// Runs the command with `-o json`.
pub(crate) async fn json(bench: &Bench, arguments: &[&str]) -> anyhow::Result<Value> {
    let arguments = [arguments, &["-o", "json"]].concat();
    let out = prints(bench, &arguments).await?;
    serde_json::from_str(&out).with_context(|| out)
}

/// Sends SIGTERM to a process.
pub(super) async fn terminate(child: &Child) -> anyhow::Result<()> {
    let pid = child.id().context("no process ID")?.to_string();
    ensure!(Command::new("kill").args(["-TERM", &pid]).status().await?.success(), "kill");
    Ok(())
}

/// Waits until a pod that runs once has succeeded, and returns its log.
pub(super) async fn succeeds(bench: &Bench, pod: &str, limit: Duration) -> anyhow::Result<String> {
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let has_ended = |v: &Version<Pod>| ["Succeeded", "Failed"].contains(&phase(&v.object).as_str());
    let ended = bench.record::<Pod>(pod).await?.until(limit, "the pod has ended", has_ended).await?;
    let log = bench.kubectl(&["logs", pod]).await?;
    ensure!(phase(&ended.object) == "Succeeded", "{pod} has failed: {log}");
    Ok(log)
}

/// Waits until the newest hold in the history has ended for this reason, in a version after `mark`.
pub(super) async fn hold_ended(lock: &Lock, mark: usize, reason: &str) -> anyhow::Result<()> {
    let has_ended = |v: &Version<_>| status(&v.object).history.first().is_some_and(|past| past.reason == reason);
    lock.recorder.until_after(mark, SOON, &format!("the hold ended as {reason}"), has_ended).await.map(drop)
}

/// The quorum `q` with a read-only client `look`, and an account `app` with the role of holders.
pub(super) async fn quorum_with_reader(bench: &Bench, max_ttl: Duration) -> anyhow::Result<Quorum> {
    bench.create_account("app", HOLDER_ROLE).await?;
    let clients = clients_with(bench, Some(client(bench, "look", "Read")));
    Quorum::ready_with(bench, "q", max_ttl, serde_json::json!({"clients": clients})).await
}

/// `first` holds the key `reindex`, and `second` waits for it.
pub(crate) async fn two_claims(bench: &Bench) -> anyhow::Result<(Lock, Lock)> {
    let first = Lock::create(bench, claim("first", "reindex", None, TTL)).await?;
    first.held(SOON).await?;
    next_second(bench).await;
    let second = Lock::create(bench, claim("second", "reindex", None, TTL)).await?;
    second.reason("Queued", SOON).await?;
    Ok((first, second))
}
