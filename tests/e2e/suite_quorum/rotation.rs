//! All passwords are rotated while locks are held and clients use the old ones.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Secret;
use redlock_operator::api::PasswordStage;

use super::helpers::{check_one_at_a_time, pod_uids, quorum_and_lock, reason_after, rotate, run_ids, settled_after};
use crate::{
    bench::Bench,
    foreign::Client,
    history::check_held_throughout,
    locks::SOON,
    operators,
    quorums::{CLIENT_SECRET, client_urls},
};

const MAX_TTL: Duration = Duration::from_secs(3);
const TTL: Duration = Duration::from_secs(3);

/// Checks whether every member accepts the passwords in these URLs.
async fn check_all(bench: &Bench, client: &Client, urls: &[String], are_valid: bool, when: &str) -> anyhow::Result<()> {
    for url in urls {
        let command = format!("redis-cli --no-auth-warning -u {url} SET {}/foreign v PX 1000 2>&1", bench.namespace);
        let answer = client.shell(&format!("{command} || true")).await?;
        ensure!(if are_valid { answer == "OK" } else { answer.contains("WRONGPASS") }, "{when}: {answer}");
    }
    Ok(())
}

pub(crate) async fn passwords_are_rotated_and_no_lock_is_lost(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let client = Client::start(&quorum).await?;
    let (before, pods, old) = (quorum.recorder.last()?.object, pod_uids(&bench, 3).await?, client_urls(&bench).await?);

    let (mark, start) = (quorum.recorder.mark(), bench.now());
    rotate(&quorum, "first", Some(PasswordStage::Switched)).await?;
    bench.figures.add("new passwords are accepted by every member", bench.now().since(start));
    let message = reason_after(&quorum, mark, SOON, "Progressing", "RotatingPasswords").await?;
    ensure!(message.starts_with("new passwords: "), "{message}");

    // Clients can continue with the old passwords, and the Secret has the new ones.
    let secrets = bench.record::<Secret>(CLIENT_SECRET).await?;
    let newer = |secret: &Secret| {
        let urls = secret.data.as_ref().and_then(|data| data.get("urls")).map(|urls| urls.0.clone());
        urls.is_some_and(|urls| urls != (old.join("\n") + "\n").into_bytes())
    };
    secrets.until(SOON, "the client's Secret has new passwords", |version| newer(&version.object)).await?;
    let new = client_urls(&bench).await?;
    ensure!(old.iter().all(|url| !new.contains(url)), "a member has its old password in the client's Secret");
    check_all(&bench, &client, &old, true, "old passwords").await?;
    check_all(&bench, &client, &new, true, "new passwords").await?;

    // Another leader continues the rotation.
    let leases = operators::watch_leader(&bench.cluster).await?;
    let leader = operators::current(&leases)?;
    operators::delete(&bench.cluster, &leader.pod).await?;
    operators::until_next_term(&leases, &leader).await?;
    check_all(&bench, &client, &old, true, "old passwords before `finish`").await?;

    let mark = quorum.recorder.mark();
    rotate(&quorum, "finish", None).await?;
    settled_after(&quorum, mark, SOON).await?;
    check_all(&bench, &client, &old, false, "old passwords after `finish`").await?;
    check_all(&bench, &client, &new, true, "new passwords after `finish`").await?;

    let last = quorum.recorder.last()?;
    ensure!(run_ids(&last.object) == run_ids(&before) && pod_uids(&bench, 3).await? == pods, "a member was restarted");
    check_one_at_a_time(&quorum, mark)?;
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    operators::all_available(&bench.cluster).await
}
