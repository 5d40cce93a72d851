//! Claims that have ended, each with its reason.

use std::time::Duration;

use serde_json::json;

use super::surfaces::lock_names;
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, token},
    suite_lock::support::{IDLE, POD_LIMIT, finished, next_second, pod_claim, run, with, worker},
};

const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn a_released_claim_is_named(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("app", "job", None, TTL)).await?;
    let token = token(&lock.held(SOON).await?.object)?.to_string();
    let release = ["release", "dlock/app", "--fencing-token", &token, "-n", &bench.namespace];
    let output = bench.cluster.redlock(&release).await?;
    anyhow::ensure!(output.status.success(), "{output:?}");
    finished(&lock, "Released", SOON).await?;
    lock_names(&bench, "app", "Released", &["Released"]).await
}

pub(crate) async fn a_claim_that_waited_too_long_says_so(bench: Bench) -> anyhow::Result<()> {
    let first = Lock::create(&bench, claim("first", "job", None, TTL)).await?;
    first.held(SOON).await?;
    next_second(&bench).await;
    let second = with(claim("second", "job", None, TTL), json!({"waitTimeout": "2s"}));
    let second = Lock::create(&bench, second).await?;
    finished(&second, "WaitTimeout", SOON).await?;
    lock_names(&bench, "second", "WaitTimeout", &["WaitTimeout", "2s"]).await
}

pub(crate) async fn a_claim_that_held_for_its_maximum_says_so(bench: Bench) -> anyhow::Result<()> {
    let lock = with(claim("app", "job", None, TTL), json!({"maxHold": "4s"}));
    let lock = Lock::create(&bench, lock).await?;
    finished(&lock, "MaxHoldReached", 2 * SOON).await?;
    lock_names(&bench, "app", "MaxHoldReached", &["MaxHoldReached", "maxHold"]).await
}

pub(crate) async fn a_broken_claim_names_who_broke_it_and_why(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("app", "job", None, TTL)).await?;
    lock.held(SOON).await?;
    bench.break_lock("app", "break", "the printer burns").await?;
    finished(&lock, "Broken", 2 * SOON).await?;
    let me = bench.cluster.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
    lock_names(&bench, "app", "Broken", &["the printer burns", me.trim()]).await
}

pub(crate) async fn a_claim_whose_heartbeat_stopped_says_so(bench: Bench) -> anyhow::Result<()> {
    let mut lock = claim("app", "job", None, TTL);
    lock["spec"]["claim"]["heartbeat"] = json!("1s");
    let lock = Lock::create(&bench, lock).await?;
    finished(&lock, "HolderUnhealthy", 3 * SOON).await?;
    lock_names(&bench, "app", "HolderUnhealthy", &["heartbeat"]).await
}

pub(crate) async fn a_claim_whose_pod_is_gone_says_so(bench: Bench) -> anyhow::Result<()> {
    run(&bench, worker(&bench, "app-0", "app", IDLE)).await?;
    let lock = Lock::create(&bench, pod_claim("app", "job", "app-0", TTL)).await?;
    lock.held(POD_LIMIT).await?;
    bench.kubectl(&["delete", "pod", "app-0"]).await?;
    finished(&lock, "HolderGone", 3 * SOON).await?;
    lock_names(&bench, "app", "HolderGone", &["app-0"]).await
}
