//! A read-only client.
//!
//! After it was added to a running quorum, it always reads a held lock, whatever happens to the members and to the
//! passwords. Its connections are cut when it is removed.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Secret;
use redlock_operator::api::PasswordStage;
use serde_json::json;

use super::helpers::{pod_uids, quorum_and_lock, rotate};
use super::membership::{changed, joint, resize};
use crate::{
    bench::Bench,
    foreign::Monitor,
    history::check_held_throughout,
    locks::SOON,
    poll,
    quorums::{client, clients_with},
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(4);
/// A kubelet updates a Secret in a running pod within this time.
const MOUNT_LIMIT: Duration = Duration::from_secs(150);

/// Sets the clients of the quorum, with one more that has this access.
async fn with_client(bench: &Bench, access: Option<&str>) -> anyhow::Result<()> {
    let clients = clients_with(bench, access.map(|access| client(bench, "look", access)));
    bench.patch("rq", "q", &json!({"spec": {"clients": clients}}).to_string()).await
}

/// The output of this shell script in its pod.
async fn in_pod(bench: &Bench, script: &str) -> anyhow::Result<String> {
    Ok(bench.kubectl(&["exec", "look", "--", "sh", "-c", script]).await?.trim().to_owned())
}

/// The reply of the first member to a command, with the current URL in the pod.
async fn ask(bench: &Bench, command: &str) -> anyhow::Result<String> {
    let url = "$(head -n 1 /client/urls)";
    in_pod(bench, &format!("redis-cli --no-auth-warning -u \"{url}\" {command} 2>&1 || true")).await
}

async fn check_rights(bench: &Bench, key: &str) -> anyhow::Result<()> {
    let left: i64 = ask(bench, &format!("PTTL {key}")).await?.parse()?;
    ensure!(left > 0, "a held lock has {left} ms left");
    for refused in [
        &format!("SET {key} v"),
        &format!("DEL {key}"),
        &format!("EVAL 'return 1' 1 {key}"),
        "GET other/job",
        "GET '#token'",
    ] {
        let answer = ask(bench, refused).await?;
        ensure!(answer.contains("NOPERM"), "{refused}: {answer}");
    }
    Ok(())
}

async fn urls_in_pod(bench: &Bench) -> anyhow::Result<String> {
    in_pod(bench, "cat /client/urls").await
}

/// Waits until the pod has `count` URLs that differ from `before`.
async fn other_urls(bench: &Bench, before: &str, count: usize) -> anyhow::Result<String> {
    poll::until(MOUNT_LIMIT, "the kubelet has brought the changed Secret", || async {
        let now = urls_in_pod(bench).await?;
        Ok((now != before && now.lines().count() == count).then_some(now))
    })
    .await
}

pub(crate) async fn a_reader_reads_a_held_lock_through_all_changes(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let (pods, key) = (pod_uids(&bench, 3).await?, format!("{}/job", bench.namespace));
    with_client(&bench, Some("Read")).await?;
    let reader = Monitor::of_reader(&quorum, "look", &key).await?;
    let observed = reader.until(0, SOON, "it sees the lock", |line| line.text == "seen").await?;
    let from = observed.iter().find(|line| line.text == "seen").map(|line| line.at).unwrap_or_default();
    check_rights(&bench, &key).await?;

    for (epoch, before, members) in [(2, 3, 5), (3, 5, 3)] {
        let (mark, urls) = (resize(&quorum, members).await?, urls_in_pod(&bench).await?);
        joint(&quorum, mark, before, members).await?;
        let both = bench.record::<Secret>("q-client-look").await?;
        let names_both = |version: &Version<Secret>| {
            version.object.data.as_ref().is_some_and(|data| data.contains_key("formerUrls"))
        };
        both.until(SOON, "the Secret names both lists", names_both).await?;
        changed(&quorum, mark, members, epoch).await?;
        other_urls(&bench, &urls, members).await?;
    }
    let old = urls_in_pod(&bench).await?;
    rotate(&quorum, "first", Some(PasswordStage::Switched)).await?;
    other_urls(&bench, &old, 3).await?;
    rotate(&quorum, "finish", None).await?;
    ensure!(pod_uids(&bench, 3).await? == pods, "a member was restarted");

    let lines = reader.until(bench.wall().0, SOON, "it goes on", |line| line.text == "seen").await?;
    let gaps: Vec<_> = lines.iter().filter(|line| line.at >= from && line.text != "seen").collect();
    ensure!(gaps.is_empty(), "{} gaps in {} readings, such as {:?}", gaps.len(), lines.len(), gaps.first());
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");

    // With write access the client is another user, and the earlier Secret grants no access.
    let before = urls_in_pod(&bench).await?;
    let ping =
        format!("redis-cli --no-auth-warning -u {} PING 2>&1 || true", before.lines().next().unwrap_or_default());
    with_client(&bench, Some("ReadWrite")).await?;
    let refused = async || Ok(in_pod(&bench, &ping).await?.contains("WRONGPASS").then_some(()));
    poll::until(SOON, "the user that only looks is refused", refused).await?;
    let secret = bench.record::<Secret>("q-client-look").await?;
    secret.until(SOON, "the client has a Secret", |version| !version.gone).await?;
    with_client(&bench, None).await?;
    secret.until(SOON, "the Secret of a removed client goes", |version| version.gone).await.map(drop)
}
