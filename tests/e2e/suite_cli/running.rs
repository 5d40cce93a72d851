//! `redlock run` with claims, from the machine of the test and in a pod, and `hold`, `acquire` and `release`.

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::ListParams};
use redlock_operator::api::DistributedLock;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::support::{succeeds, terminate};
use crate::{
    bench::Bench,
    locks::{SOON, is_held, token},
    operators, pods, poll,
};

/// The minimum ttl for the default skew of a second, which is eight times the skew.
const TTL: &str = "8s";
const TTL_MILLIS: u64 = 8_000;
const LONG: Duration = Duration::from_secs(60);

/// `redlock` with the kubeconfig of the test.
pub(super) fn redlock(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.env("KUBECONFIG", &bench.cluster.kubeconfig).args(arguments).kill_on_drop(true);
    for variable in ["REDLOCK_LOCK", "REDLOCK_SOCKET", "REDLOCK_HELD"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(super) async fn output(bench: &Bench, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(timeout(LONG, redlock(bench, arguments).output()).await.context("redlock has not ended")??)
}

/// The only claims of this test's namespace.
pub(super) async fn claims(bench: &Bench) -> anyhow::Result<Vec<DistributedLock>> {
    Ok(bench.api::<DistributedLock>().list(&ListParams::default()).await?.items)
}

pub(super) async fn held(bench: &Bench) -> anyhow::Result<DistributedLock> {
    let one = async || Ok(claims(bench).await?.into_iter().find(is_held));
    poll::until(SOON, "a claim is held", one).await
}

async fn is_free(bench: &Bench) -> anyhow::Result<bool> {
    Ok(!claims(bench).await?.iter().any(is_held))
}

/// Starts a shell script under the lock, and reads its first line.
async fn start(bench: &Bench, lock: &str, options: &[&str], script: &str) -> anyhow::Result<(Child, String)> {
    let begin = ["run", "--lock", lock, "--ttl", TTL];
    let mut child = redlock(bench, &[&begin[..], options, &["--", "sh", "-c", script]].concat()).spawn()?;
    let stdout = child.stdout.as_mut().context("no output")?;
    let mut line = String::new();
    let read =
        timeout(SOON, BufReader::new(stdout).read_line(&mut line)).await.context("the command prints nothing")?;
    ensure!(read? > 0, "the command ended immediately");
    Ok((child, line.trim().to_owned()))
}

pub(crate) async fn a_command_runs_while_its_claim_is_held(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/reindex", bench.namespace);
    let (child, text) = start(&bench, &lock, &[], "echo $REDLOCK_TOKEN; sleep 20; exit 3").await?;
    let claim = held(&bench).await?;
    ensure!(text == token(&claim)?.to_string(), "the command has token {text}");
    // The command runs for more than two ttls, which needs renewals.
    let output = timeout(LONG, child.wait_with_output()).await.context("the command has not ended")??;
    ensure!(output.status.code() == Some(3), "{output:?}");
    ensure!(is_free(&bench).await?, "the lock is held after the end of `redlock run`");
    Ok(())
}

pub(crate) async fn a_second_command_waits_or_gives_up(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/reindex", bench.namespace);
    let (mut first, _) = start(&bench, &lock, &["--identity", "first"], "echo go; sleep 600").await?;
    let refused = output(&bench, &["run", "--lock", &lock, "--ttl", TTL, "--try", "--", "true"]).await?;
    ensure!(refused.status.code() == Some(122), "{refused:?}");
    let late = output(&bench, &["run", "--lock", &lock, "--ttl", TTL, "--wait", "2s", "--", "true"]).await?;
    ensure!(late.status.code() == Some(122), "{late:?}");
    ensure!(String::from_utf8_lossy(&late.stderr).contains("place 1 in the queue"), "{late:?}");
    let second = redlock(&bench, &["run", "--lock", &lock, "--ttl", TTL, "--", "sh", "-c", "echo second"]).spawn()?;
    poll::until(SOON, "the second one waits", async || Ok((claims(&bench).await?.len() >= 2).then_some(()))).await?;
    terminate(&first).await?;
    ensure!(timeout(LONG, first.wait()).await??.code() == Some(143), "the signal was not passed on");
    let second = timeout(LONG, second.wait_with_output()).await??;
    ensure!(second.status.success() && second.stdout == b"second\n", "{second:?}");
    Ok(())
}

pub(crate) async fn a_killed_run_loses_its_claim_soon_after_its_last_heartbeat(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/reindex", bench.namespace);
    let (mut child, pid) = start(&bench, &lock, &[], "echo $$; exec sleep 600").await?;
    held(&bench).await?;
    let killed = bench.now();
    child.kill().await?;
    let gone = async || Ok((!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
    poll::until(SOON, "the command is gone", gone).await?;
    poll::until(LONG, "the lock is free", async || Ok(is_free(&bench).await?.then_some(()))).await?;
    let took = bench.now().since(killed);
    bench.figures.add("killed run: lock free after", took);
    // The limit is ttl + renewInterval + 1 s.
    let most = Duration::from_millis(TTL_MILLIS + TTL_MILLIS / 3 + 1_000);
    ensure!(took <= most, "free after {took:?}, the limit is {most:?}");
    Ok(())
}

pub(crate) async fn a_broken_lock_ends_its_command_while_it_is_still_valid(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/reindex", bench.namespace);
    let (child, pid) = start(&bench, &lock, &[], "trap '' TERM; echo $$; while :; do sleep 0.1; done").await?;
    let claim = held(&bench).await?;
    bench.break_lock(&claim.name_any(), "break", "a test").await?;
    let gone = async || {
        let alive = std::path::Path::new(&format!("/proc/{pid}")).exists();
        ensure!(!alive || !is_free(&bench).await?, "the command runs and the lock is free");
        Ok((!alive).then_some(()))
    };
    poll::until(LONG, "the command is gone", gone).await?;
    let output = timeout(LONG, child.wait_with_output()).await??;
    ensure!(output.status.code() == Some(123), "{output:?}");
    Ok(())
}

pub(crate) async fn a_pod_runs_its_command_with_the_holder_role_alone(bench: Bench) -> anyhow::Result<()> {
    bench.create_account("app", operators::HOLDER_ROLE).await?;
    let image = operators::image(&bench.cluster).await?;
    let lock = format!("{}/migration", bench.namespace);
    // The image has only `redlock`, so the command is `redlock`. It needs neither the downward API nor kubectl.
    let command =
        ["/usr/local/bin/redlock", "run", "--lock", &lock, "--ttl", TTL, "--", "/usr/local/bin/redlock", "crds"];
    let pod = json!({
        "metadata": {"name": "migration"},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "app",
            "securityContext": pods::pod_security(),
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "containers": [{
                "name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": command,
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "securityContext": pods::container_security(),
            }],
        },
    });
    let pod = bench.create::<Pod>(pod).await?;
    let text = succeeds(&bench, "migration", LONG).await?;
    ensure!(text.contains("kind: CustomResourceDefinition"), "the command has not run: {text}");
    let claims = claims(&bench).await?;
    let claim = claims.first().context("no claim")?;
    let holder = claim.spec.claim.clone().unwrap_or_default();
    ensure!(holder.pod_name.as_deref() == Some("migration") && holder.pod_uid == pod.uid(), "{holder:?}");
    let is_owned = claim.owner_references().iter().any(|owner| Some(&owner.uid) == pod.uid().as_ref());
    ensure!(is_owned, "the pod does not own the claim");
    ensure!(is_free(&bench).await?, "the lock was not released");
    Ok(())
}

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
    ensure!(!is_free(&bench).await?, "the lock was released");
    let released = output(&bench, &["release", &lock, "--fencing-token", &text]).await?;
    ensure!(released.status.success(), "{released:?}");
    ensure!(is_free(&bench).await?, "it was not released");
    Ok(())
}

pub(crate) async fn a_lock_is_held_until_the_command_is_stopped(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/maintenance", bench.namespace);
    let mut child = redlock(&bench, &["hold", "--lock", &lock]).spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.as_mut().context("no output")?;
    timeout(SOON, BufReader::new(stdout).read_line(&mut line)).await.context("no token")??;
    ensure!(line.trim() == token(&held(&bench).await?)?.to_string(), "it did not print the token");
    terminate(&child).await?;
    let ended = timeout(LONG, child.wait()).await.context("it has not ended")??;
    ensure!(ended.success(), "{ended:?}");
    ensure!(is_free(&bench).await?, "it was not released");
    Ok(())
}
