//! Options of `redlock run`, and `redlock release` for holds of all kinds.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::{process::Command, time::timeout};

use super::running::{claims, held, output, redlock};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, status, token},
    pods, poll,
    quorums::Quorum,
};

const TTL: &str = "8s";
const MAX_TTL: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn as_many_commands_run_at_a_time_as_there_are_slots(bench: Bench) -> anyhow::Result<()> {
    let lock = format!("{}/reindex", bench.namespace);
    let begin = ["run", "--lock", &lock, "--ttl", TTL, "--slots", "2"];
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(redlock(&bench, &[&begin[..], &["--", "sleep", "600"]].concat()).spawn()?);
    }
    let two = async || Ok((claims(&bench).await?.iter().filter(|claim| is_held(claim)).count() == 2).then_some(()));
    poll::until(SOON, "two hold the lock", two).await?;
    let third = output(&bench, &[&begin[..], &["--try", "--", "true"]].concat()).await?;
    ensure!(third.status.code() == Some(122), "{third:?}");
    for child in &mut running {
        let pid = child.id().context("no process ID")?;
        ensure!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?.success(), "kill");
        ensure!(timeout(LONG, child.wait()).await??.code() == Some(143), "the signal was not passed on");
    }
    Ok(())
}

pub(crate) async fn a_claim_has_what_the_command_was_told(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = format!("{}/reindex", bench.namespace);
    let message =
        ["--min-hold", "15s", "--max-hold", "1h", "--priority", "-3", "--quorum", "q", "--identity", "night shift"];
    let ran =
        output(&bench, &[&["run", "--lock", &lock, "--ttl", TTL][..], &message, &["--", "true"]].concat()).await?;
    ensure!(ran.status.success(), "{ran:?}");
    // `redlock run` does not wait for the end of minHold, but the next claim gets the lock only then.
    let claim = held(&bench).await.context("minHold has not passed")?;
    let (spec, holder) = (&claim.spec, status(&claim).holder.unwrap_or_default());
    ensure!(spec.priority == -3 && holder.identity == "night shift", "{spec:?} {holder:?}");
    ensure!(spec.quorum_ref.as_ref().is_some_and(|quorum| quorum.name == "q"), "{spec:?}");
    let refused =
        output(&bench, &["run", "--lock", &lock, "--ttl", TTL, "--quorum", "q", "--try", "--", "true"]).await?;
    ensure!(refused.status.code() == Some(122), "{refused:?}");
    let next = output(&bench, &["run", "--lock", &lock, "--ttl", TTL, "--quorum", "q", "--", "true"]).await?;
    ensure!(next.status.success(), "{next:?}");
    let ended = bench.api().get(&claim.name_any()).await?;
    let past = status(&ended).history.into_iter().next().context("no history")?;
    ensure!(past.reason == "Released", "{past:?}");
    Ok(())
}

/// The pods have a client's Secret as files or as variables.
///
/// Their tokens rise together with those of claims.
pub(crate) async fn a_pod_takes_locks_from_the_members_with_rising_tokens(bench: Bench) -> anyhow::Result<()> {
    let mut manifest = crate::quorums::manifest(&bench, "q", MAX_TTL);
    manifest["spec"]["tls"] = json!({"mode": "Managed"});
    let _quorum = Quorum::ready_as(&bench, manifest, MAX_TTL).await?;
    let by_claim = async |name: &str| {
        let lock = Lock::create(&bench, claim(name, "direct", Some("q"), MAX_TTL)).await?;
        let token = token(&lock.held(LONG).await?.object)?;
        lock.remove().await?;
        anyhow::Ok(token)
    };
    let before = by_claim("before").await?;
    let files = direct(&bench, "files").await?;
    let variables = direct(&bench, "variables").await?;
    let after = by_claim("after").await?;
    ensure!(before < files && files < variables && variables < after, "{before} {files} {variables} {after}");
    Ok(())
}

/// The token of a pod that takes the lock from the members, without rights in the cluster.
async fn direct(bench: &Bench, how: &str) -> anyhow::Result<i64> {
    let lock = format!("{}/direct", bench.namespace);
    let has_files = how == "files";
    let run = ["/redlock/redlock", "run", "--direct", "--lock", &lock, "--wait", "30s"];
    let files = if has_files { &["--members-secret", "/client"][..] } else { &[] };
    // The container starts `redlock` without a shell, because a shell drops variables whose names have a dot.
    let command = [&run[..], files, &["--", "sh", "-c", "echo token $REDLOCK_TOKEN"]].concat();
    let from = json!([{"prefix": "REDLOCK_MEMBERS_", "secretRef": {"name": "q-client-outside"}}]);
    let main = json!({
        "image": bench.cluster.member_image, "command": command, "envFrom": if has_files { json!([]) } else { from },
    });
    let mut pod = pods::with_command(bench, how, "q-client-outside", main).await?;
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    bench.create::<Pod>(pod).await?;
    let pods: Api<Pod> = bench.api();
    let ended = async || {
        let status = pods.get(how).await?.status.unwrap_or_default();
        Ok(status.phase.filter(|phase| ["Succeeded", "Failed"].contains(&phase.as_str())))
    };
    let phase = poll::until(LONG, "the pod has ended", ended).await?;
    let text = bench.kubectl(&["logs", how]).await?;
    ensure!(phase == "Succeeded", "{phase}: {text}");
    let token = text.lines().find_map(|line| line.strip_prefix("token "));
    token.context(text.clone())?.trim().parse().context("no number")
}

/// Releases a claim that is bound to a pod by its key, and an election by its object.
///
/// The next leader of the election follows immediately.
pub(crate) async fn a_release_hands_over_what_pods_hold(bench: Bench) -> anyhow::Result<()> {
    let deployment = pods::application("app", 2, &bench.cluster.member_image);
    bench.create::<k8s_openapi::api::apps::v1::Deployment>(deployment).await?;
    bench.kubectl(&["wait", "--for=condition=Available", "deployment/app", "--timeout=100s"]).await?;
    let list = bench.api::<Pod>().list(&kube::api::ListParams::default()).await?;
    let pod = list.items.first().context("no pod")?.name_any();
    let mut bound = claim("bound", "bound", None, MAX_TTL);
    bound["spec"]["claim"] = json!({"podName": pod});
    let bound = Lock::create(&bench, bound).await?;
    let held = token(&bound.held(SOON).await?.object)?;
    let key = format!("{}/bound", bench.namespace);
    let released = output(&bench, &["release", &key, "--fencing-token", &held.to_string()]).await?;
    ensure!(released.status.success(), "{released:?}");
    bound.reason("Released", SOON).await?;

    let election = json!({"metadata": {"name": "scheduler"}, "spec": {"ttl": "10s", "election": {"selector": {"matchLabels": {"app": "app"}}}}});
    let election = Lock::create(&bench, election).await?;
    let first = election.held(LONG).await?;
    let (leader, before) = (status(&first.object).holder.unwrap_or_default(), token(&first.object)?);
    let word = ["release", "dlock/scheduler", "-n", &bench.namespace, "--fencing-token"];
    let older = output(&bench, &[&word[..], &[&(before - 1).to_string()]].concat()).await?;
    ensure!(older.status.code() == Some(125), "an older token: {older:?}");
    let mark = election.recorder.versions().len();
    let asked = bench.now();
    let mut release = redlock(&bench, &[&word[..], &[&before.to_string()]].concat());
    let release = timeout(LONG, release.stdout(Stdio::null()).output()).await??;
    ensure!(release.status.success(), "{release:?}");
    let is_next = |version: &crate::record::Version<_>| {
        is_held(&version.object) && token(&version.object).is_ok_and(|now| now > before)
    };
    let next = election.recorder.until_after(mark, SOON, "the next pod leads", is_next).await?;
    let took = bench.now().since(asked);
    bench.figures.add("redlock release of an election: the next one leads after", took);
    ensure!(took < MAX_TTL, "the hand-over waited for the ttl: {took:?}");
    ensure!(
        status(&next.object).holder.is_some_and(|holder| holder.pod_name != leader.pod_name),
        "{:?}",
        next.object.status
    );
    Ok(())
}
