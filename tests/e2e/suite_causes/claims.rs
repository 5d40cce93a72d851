//! Claims that wait or are refused.

use std::time::Duration;

use serde_json::json;

use super::surfaces::{doctor_names, lock_names};
use crate::{
    bench::Bench,
    foreign::Client,
    locks::{Lock, SOON, claim},
    quorums::{Quorum, manifest},
    suite_cli::support::two_claims,
    suite_lock::support::{IDLE, POD_LIMIT, next_second, pod_claim, run, with, worker},
};

const TTL: Duration = Duration::from_secs(3);
const MAX_TTL: Duration = Duration::from_secs(4);

pub(crate) async fn a_claim_that_queues_names_the_holder(bench: Bench) -> anyhow::Result<()> {
    let _claims = two_claims(&bench).await?;
    lock_names(&bench, "second", "Queued", &["\"first\""]).await
}

pub(crate) async fn a_key_of_a_foreign_client_is_named(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let client = Client::start(&quorum).await?;
    let key = format!("{}/job", bench.namespace);
    for member in 0..3 {
        client.redis(member, &["SET", &key, "foreign", "NX", "PX", "3900"]).await?;
    }
    let script = format!(
        "nohup sh -c 'end=$(($(date +%s) + 90)); while [ $(date +%s) -lt $end ]; do n=0; while read -r url; do \
         redis-cli --no-auth-warning -u $url SET {key} foreign PX 3900; done </client/urls; sleep 1; done' >/dev/null 2>&1 &"
    );
    client.shell(&script).await?;
    let _lock = Lock::create(&bench, claim("app", "job", Some("q"), TTL)).await?;
    lock_names(&bench, "app", "HeldByOther", &["outside this operator"]).await
}

pub(crate) async fn a_min_hold_that_keeps_the_lock_is_named(bench: Bench) -> anyhow::Result<()> {
    run(&bench, worker(&bench, "app-0", "app", IDLE)).await?;
    let lock = with(pod_claim("app", "job", "app-0", TTL), json!({"minHold": "3m"}));
    let lock = Lock::create(&bench, lock).await?;
    lock.held(POD_LIMIT).await?;
    bench.kubectl(&["delete", "pod", "app-0"]).await?;
    lock_names(&bench, "app", "Held", &["minHold keeps the lock"]).await
}

pub(crate) async fn a_lock_delay_is_named_with_its_end(bench: Bench) -> anyhow::Result<()> {
    let mut first = claim("first", "job", None, TTL);
    first["spec"]["claim"]["heartbeat"] = json!("1s");
    let first = Lock::create(&bench, with(first, json!({"lockDelay": "20s"}))).await?;
    first.held(SOON).await?;
    let second = with(claim("second", "job", None, TTL), json!({"lockDelay": "20s"}));
    let _second = Lock::create(&bench, second).await?;
    lock_names(&bench, "second", "LockDelay", &["\"first\"", "lockDelay"]).await
}

pub(crate) async fn a_suspended_lock_is_named(bench: Bench) -> anyhow::Result<()> {
    let _lock = Lock::create(&bench, with(claim("app", "job", None, TTL), json!({"suspend": true}))).await?;
    lock_names(&bench, "app", "Suspended", &["spec.suspend"]).await
}

pub(crate) async fn a_ttl_above_the_maximum_names_both(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::create(&bench, manifest(&bench, "q", MAX_TTL)).await?;
    let _lock = Lock::create(&bench, claim("app", "job", Some("q"), Duration::from_secs(9))).await?;
    lock_names(&bench, "app", "TTLTooLong", &["9s", "4s"]).await?;
    doctor_names(&bench, &["TTLTooLong"]).await
}

pub(crate) async fn a_quorum_that_does_not_exist_is_named(bench: Bench) -> anyhow::Result<()> {
    let _lock = Lock::create(&bench, claim("app", "job", Some("absent"), TTL)).await?;
    lock_names(&bench, "app", "QuorumNotFound", &["absent"]).await?;
    doctor_names(&bench, &["QuorumNotFound"]).await
}

pub(crate) async fn a_namespace_that_the_quorum_refuses_is_named(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::create(&bench, manifest(&bench, "q", MAX_TTL)).await?;
    bench
        .beside("causes-refused", async |other| {
            let mut lock = claim("app", "job", Some("q"), TTL);
            lock["spec"]["quorumRef"]["namespace"] = json!(bench.namespace);
            let _lock = Lock::create(other, lock).await?;
            lock_names(other, "app", "NamespaceNotAllowed", &["allowedNamespaces"]).await
        })
        .await
}

pub(crate) async fn another_number_of_slots_is_named(bench: Bench) -> anyhow::Result<()> {
    let first = Lock::create(&bench, with(claim("first", "job", None, TTL), json!({"slots": 2}))).await?;
    first.held(SOON).await?;
    next_second(&bench).await;
    let _second = Lock::create(&bench, with(claim("second", "job", None, TTL), json!({"slots": 3}))).await?;
    lock_names(&bench, "second", "KeyShapeConflict", &["slots", "first"]).await
}
