//! Runs the command.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim},
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

/// Runs the command with `-o json`.
pub(crate) async fn json(bench: &Bench, arguments: &[&str]) -> anyhow::Result<Value> {
    let arguments = [arguments, &["-o", "json"]].concat();
    let out = prints(bench, &arguments).await?;
    serde_json::from_str(&out).with_context(|| out)
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
