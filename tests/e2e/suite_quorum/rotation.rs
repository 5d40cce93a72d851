//! All passwords are rotated while locks are held and clients use the old ones.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use redlock_operator::api::{PasswordStage, RedisQuorum};

use super::helpers::{check_one_at_a_time, held_lock, pod_uids, reason_after, settled_after};
use crate::{
    bench::Bench,
    foreign::Client,
    history::check_held_throughout,
    locks::SOON,
    operators,
    quorums::{Quorum, client_urls},
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(3);
const TTL: Duration = Duration::from_secs(3);
const STAGE_LIMIT: Duration = Duration::from_secs(60);

fn stage(version: &Version<RedisQuorum>) -> Option<PasswordStage> {
    Some(version.object.status.as_ref()?.password_rotation.as_ref()?.stage)
}

fn run_ids(quorum: &RedisQuorum) -> Vec<Option<String>> {
    let status = quorum.status.clone().unwrap_or_default();
    status.members.into_iter().map(|member| member.run_id).collect()
}

async fn annotate(bench: &Bench, text: &str) -> anyhow::Result<()> {
    let annotation = format!("redlock-operator.io/rotate-passwords={text}");
    bench.kubectl(&["annotate", "--overwrite", "rq", "q", &annotation]).await.map(drop)
}

/// The reply of each member to a SET with these URLs.
async fn try_all(client: &Client, bench: &Bench, urls: &[String]) -> anyhow::Result<Vec<String>> {
    let mut answers = Vec::new();
    for url in urls {
        let command = format!("redis-cli --no-auth-warning -u {url} SET {}/foreign v PX 1000 2>&1", bench.namespace);
        answers.push(client.shell(&format!("{command} || true")).await?);
    }
    Ok(answers)
}

pub(crate) async fn passwords_are_rotated_and_no_lock_is_lost(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = held_lock(&bench, TTL).await?;
    let client = Client::start(&quorum).await?;
    let (before, pods, old) = (quorum.recorder.last()?.object, pod_uids(&bench, 3).await?, client_urls(&bench).await?);

    let (mark, start) = (quorum.recorder.mark(), bench.now());
    annotate(&bench, "first").await?;
    let switched = |version: &Version<RedisQuorum>| stage(version) == Some(PasswordStage::Switched);
    quorum.recorder.until_after(mark, STAGE_LIMIT, "every member accepts both passwords", switched).await?;
    bench.figures.add("new passwords are accepted by every member", bench.now().since(start));
    let message = reason_after(&quorum, mark, SOON, "Progressing", "RotatingPasswords").await?;
    ensure!(message.starts_with("new passwords: "), "{message}");

    // Clients can continue with the old passwords, and the Secret has the new ones.
    let secrets = bench.record::<Secret>("q-client-outside").await?;
    let newer = |secret: &Secret| {
        let urls = secret.data.as_ref().and_then(|data| data.get("urls")).map(|urls| urls.0.clone());
        urls.is_some_and(|urls| urls != (old.join("\n") + "\n").into_bytes())
    };
    secrets.until(SOON, "the client's Secret has new passwords", |version| newer(&version.object)).await?;
    let new = client_urls(&bench).await?;
    ensure!(old.iter().all(|url| !new.contains(url)), "a member has its old password in the client's Secret");
    for (what, urls) in [("old", &old), ("new", &new)] {
        let answers = try_all(&client, &bench, urls).await?;
        ensure!(answers.iter().all(|answer| answer == "OK"), "with the {what} passwords: {answers:?}");
    }

    // Another leader continues the rotation.
    let leases = operators::watch_leader(&bench.cluster).await?;
    let leader = operators::current(&leases)?;
    let operators: Api<Pod> = Api::namespaced(bench.cluster.client.clone(), &bench.cluster.operator_namespace);
    operators.delete(&leader.pod, &kube::api::DeleteParams::default()).await?;
    operators::until_next_term(&leases, &leader).await?;
    let answers = try_all(&client, &bench, &old).await?;
    ensure!(answers.iter().all(|answer| answer == "OK"), "with the old passwords before `finish`: {answers:?}");

    let mark = quorum.recorder.mark();
    annotate(&bench, "finish").await?;
    let over = |version: &Version<RedisQuorum>| stage(version).is_none();
    quorum.recorder.until_after(mark, STAGE_LIMIT, "the rotation is over", over).await?;
    settled_after(&quorum, mark, SOON).await?;
    let answers = try_all(&client, &bench, &old).await?;
    ensure!(answers.iter().all(|answer| answer.contains("WRONGPASS")), "old passwords are accepted: {answers:?}");
    let answers = try_all(&client, &bench, &new).await?;
    ensure!(answers.iter().all(|answer| answer == "OK"), "with the new passwords: {answers:?}");

    let last = quorum.recorder.last()?;
    ensure!(run_ids(&last.object) == run_ids(&before) && pod_uids(&bench, 3).await? == pods, "a member was restarted");
    check_one_at_a_time(&quorum, mark)?;
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    operators::all_available(&bench.cluster).await
}
