//! `redlock hold`, `acquire` and `release`.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

use super::running::{claims, held, output, redlock};
use crate::{
    bench::Bench,
    locks::{SOON, is_held, token},
};

const LONG: Duration = Duration::from_secs(30);

pub(crate) async fn a_lock_is_acquired_in_one_step_and_released_in_another(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/deploy", bench.namespace);
    let acquired = output(&bench, &["acquire", "--lock", &lock, "--max-hold", "30m"]).await?;
    ensure!(acquired.status.success(), "{acquired:?}");
    let text = String::from_utf8(acquired.stdout)?.trim().to_owned();
    let claim = held(&bench).await?;
    ensure!(text == token(&claim)?.to_string(), "it did not print the token: {text}");
    let older = (token(&claim)? - 1).to_string();
    let refused = output(&bench, &["release", &lock, "--fencing-token", &older]).await?;
    ensure!(!refused.status.success(), "a release with an older token succeeded: {refused:?}");
    ensure!(claims(&bench).await?.iter().any(is_held), "the lock was released");
    let released = output(&bench, &["release", &lock, "--fencing-token", &text]).await?;
    ensure!(released.status.success(), "{released:?}");
    ensure!(!claims(&bench).await?.iter().any(is_held), "released");
    Ok(())
}

pub(crate) async fn a_lock_is_held_until_the_command_is_stopped(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/maintenance", bench.namespace);
    let mut child = redlock(&bench, &["hold", "--lock", &lock]).spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.as_mut().context("no output")?;
    timeout(SOON, BufReader::new(stdout).read_line(&mut line)).await.context("no token")??;
    ensure!(line.trim() == token(&held(&bench).await?)?.to_string(), "it did not print the token");
    let pid = child.id().context("no process ID")?;
    ensure!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?.success(), "kill");
    let ended = timeout(LONG, child.wait()).await.context("it has not ended")??;
    ensure!(ended.success(), "{ended:?}");
    ensure!(!claims(&bench).await?.iter().any(is_held), "released");
    Ok(())
}
