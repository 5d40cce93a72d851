//! Runs the command.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::bench::Bench;

/// The result of the command.
pub(super) struct Ran {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

/// Runs `redlock` in the test's namespace, and returns its result even if it fails.
pub(super) async fn redlock(bench: &Bench, arguments: &[&str]) -> anyhow::Result<Ran> {
    let output = bench.cluster.redlock(arguments).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().context("redlock was killed")?;
    Ok(Ran { code, out: text(&output.stdout), err: text(&output.stderr) })
}

/// Runs the command, which must succeed, and returns its output.
pub(super) async fn prints(bench: &Bench, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = redlock(bench, arguments).await?;
    ensure!(ran.code == 0, "redlock {}: {} {}{}", arguments.join(" "), ran.code, ran.out, ran.err);
    Ok(ran.out)
}

/// Runs the command with `-o json`.
pub(super) async fn json(bench: &Bench, arguments: &[&str]) -> anyhow::Result<Value> {
    let arguments = [arguments, &["-o", "json"]].concat();
    let out = prints(bench, &arguments).await?;
    serde_json::from_str(&out).with_context(|| out)
}
