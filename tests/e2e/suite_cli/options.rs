//! Options of `redlock run`, and `redlock release` for holds of all kinds.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;
use tokio::time::timeout;

use super::{
    running::{claims, held, output, redlock},
    support::{succeeds, terminate},
};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, leader, status, token},
    pods, poll,
    quorums::{CLIENT_SECRET, Quorum},
    suite_causes::surfaces::lock_names,
    suite_lock::support::{LockVersion, election, pod_claim},
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
        terminate(child).await?;
        ensure!(timeout(LONG, child.wait()).await??.code() == Some(143), "the signal was not passed on");
    }
    Ok(())
}

pub(crate) async fn a_claim_has_the_options_of_its_command(bench: Bench) -> anyhow::Result<()> {
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
    let _quorum = Quorum::ready_with(&bench, "q", MAX_TTL, json!({"tls": {"mode": "Managed"}})).await?;
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
    let from = json!([{"prefix": "REDLOCK_MEMBERS_", "secretRef": {"name": CLIENT_SECRET}}]);
    let main = json!({
        "image": bench.cluster.member_image, "command": command, "envFrom": if has_files { json!([]) } else { from },
    });
    let mut pod = pods::with_command(bench, how, CLIENT_SECRET, main).await?;
    pod["spec"]["automountServiceAccountToken"] = json!(false);
    bench.create::<Pod>(pod).await?;
    let text = succeeds(bench, how, LONG).await?;
    let token = text.lines().find_map(|line| line.strip_prefix("token "));
    token.context(text.clone())?.trim().parse().context("no number")
}

/// Releases a claim that is bound to a pod by its key, and an election by its object.
///
/// The next leader of the election follows immediately.
pub(crate) async fn a_release_hands_over_locks_of_pods(bench: Bench) -> anyhow::Result<()> {
    let deployment = pods::application("app", 2, &bench.cluster.member_image);
    bench.create::<Deployment>(deployment).await?;
    bench.kubectl(&["wait", "--for=condition=Available", "deployment/app", "--timeout=100s"]).await?;
    let list = bench.api::<Pod>().list(&ListParams::default()).await?;
    let pod = list.items.first().context("no pod")?.name_any();
    let bound = Lock::create(&bench, pod_claim("bound", "bound", &pod, MAX_TTL)).await?;
    let held = token(&bound.held(SOON).await?.object)?;
    let key = format!("{}/bound", bench.namespace);
    let released = output(&bench, &["release", &key, "--fencing-token", &held.to_string()]).await?;
    ensure!(released.status.success(), "{released:?}");
    bound.reason("Released", SOON).await?;
    lock_names(&bench, "bound", "Released", &["Released"]).await?;

    let election = Lock::create(&bench, election("scheduler", "app", MAX_TTL)).await?;
    let first = election.held(LONG).await?;
    let before = token(&first.object)?;
    let word = ["release", "dlock/scheduler", "-n", &bench.namespace, "--fencing-token"];
    let older = output(&bench, &[&word[..], &[&(before - 1).to_string()]].concat()).await?;
    ensure!(older.status.code() == Some(125), "an older token: {older:?}");
    let mark = election.recorder.versions().len();
    let asked = bench.now();
    let release = output(&bench, &[&word[..], &[&before.to_string()]].concat()).await?;
    ensure!(release.status.success(), "{release:?}");
    let is_next = |v: &LockVersion| is_held(&v.object) && token(&v.object).is_ok_and(|now| now > before);
    let next = election.recorder.until_after(mark, SOON, "the next pod leads", is_next).await?;
    let took = bench.now().since(asked);
    bench.figures.add("redlock release of an election: the next one leads after", took);
    ensure!(took < MAX_TTL, "the hand-over waited for the ttl: {took:?}");
    ensure!(leader(&next.object) != leader(&first.object), "{:?}", next.object.status);
    Ok(())
}
