//! TLS between operator, clients and members.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::{api::RedisQuorum, quorum::model::tls::issue};
use serde_json::json;

use super::helpers::{
    check_one_at_a_time, condition, held_lock, pod_uids, quorum_and_lock, reason_after, run_ids, set_certificate,
    settled_after,
};
use crate::{
    bench::Bench,
    foreign::Client,
    history::check_held_throughout,
    locks::SOON,
    poll,
    quorums::{Quorum, is_ready},
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(3);
const TTL: Duration = Duration::from_secs(3);
const START_LIMIT: Duration = Duration::from_secs(90);
const ROLLOUT_LIMIT: Duration = Duration::from_secs(120);
/// A kubelet updates a Secret in its pods within about a minute.
const KUBELET_LIMIT: Duration = Duration::from_secs(150);

fn is_tls_ready(version: &Version<RedisQuorum>) -> bool {
    condition(version, "TLSReady").0 == "True"
}

/// Checks that a plain `PING` to every member gets no answer.
async fn check_plain_is_refused(quorum: &Quorum, client: &Client) -> anyhow::Result<()> {
    for index in 0..3 {
        let host = format!("{}.{}.svc", quorum.member(index), quorum.bench.namespace);
        let told = client.shell(&format!("timeout 3 redis-cli -h {host} PING 2>&1 || true")).await?;
        ensure!(!told.contains("PONG") && !told.contains("NOAUTH"), "plain TCP was answered: {told}");
    }
    Ok(())
}

/// Whether a peer with these authorities accepts the certificate of this member with this name.
async fn accepts(bench: &Bench, address: &str, name: &str, authorities: &str) -> anyhow::Result<bool> {
    let script = format!(
        "echo QUIT | timeout 5 openssl s_client -connect {address} -servername {name} -verify_hostname {name} \
         -verify_return_error -CAfile <(cat <<'END'\n{authorities}END\n) >/dev/null 2>&1 && echo yes || echo no"
    );
    Ok(bench.cluster.faults.beside_the_control_plane(&script).await?.trim() == "yes")
}

pub(crate) async fn a_managed_certificate_has_the_name_and_plain_tcp_is_refused(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready_with(&bench, "q", MAX_TTL, json!({"tls": {"mode": "Managed"}})).await?;
    quorum.recorder.until(SOON, "TLSReady", is_tls_ready).await?;
    let lock = held_lock(&bench, TTL).await?;

    let client = Client::start(&quorum).await?;
    let urls = client.shell("cut -d: -f1 /client/urls | sort -u").await?;
    ensure!(urls == "rediss", "the client's urls are of {urls:?}");
    let key = format!("{}/foreign", bench.namespace);
    for index in 0..3 {
        let told = client.redis(index, &["SET", &key, "v", "NX", "PX", "2000"]).await?;
        ensure!(told == "OK", "member {index}: {told}");
    }
    check_plain_is_refused(&quorum, &client).await?;

    let authorities = client.shell("cat /client/ca.crt").await? + "\n";
    let pod = bench.api::<Pod>().get("q-0-0").await?;
    let address = format!("{}:6379", pod.status.and_then(|status| status.pod_ip).context("no pod IP")?);
    let name = |member: &str| format!("{member}.{}.svc", bench.namespace);
    ensure!(accepts(&bench, &address, &name("q-0"), &authorities).await?, "the right name was refused");
    ensure!(!accepts(&bench, &address, &name("other"), &authorities).await?, "a wrong name was accepted");
    let stranger = issue::authority("q", bench.wall().0 / 1000)?.certificate;
    ensure!(!accepts(&bench, &address, &name("q-0"), &stranger).await?, "another authority was accepted");
    check_held_throughout(&lock.recorder.versions()).map(drop)
}

pub(crate) async fn a_certificate_that_is_replaced_is_served_without_a_restart(bench: Bench) -> anyhow::Result<()> {
    let now = bench.wall().0 / 1000;
    let names: Vec<String> = (0..3).map(|index| format!("q-{index}.{}.svc", bench.namespace)).collect();
    let first = issue::authority("first", now)?;
    let spec = json!({"tls": {"mode": "Secret", "secretRef": {"name": "cert"}}});
    let quorum = Quorum::create_with(&bench, "q", MAX_TTL, spec).await?;
    let missing = reason_after(&quorum, 0, SOON, "Ready", "CertificateInvalid").await?;
    ensure!(missing.contains("Secret cert") && missing.contains(&names[2]), "{missing}");
    set_certificate(&bench, &issue::certificate(&first, &names, now)?, &first).await?;
    let begun = |version: &Version<RedisQuorum>| is_ready(version) && is_tls_ready(version);
    let before = quorum.recorder.until(START_LIMIT, "Ready and TLSReady", begun).await?;
    let served = condition(&before, "TLSReady").2;
    let lock = held_lock(&bench, TTL).await?;

    // The authority changes with the certificate, which is the harder case.
    let second = issue::authority("second", now)?;
    let (mark, start) = (quorum.recorder.mark(), bench.now());
    set_certificate(&bench, &issue::certificate(&second, &names, now)?, &second).await?;
    let is_new = |version: &Version<RedisQuorum>| is_tls_ready(version) && condition(version, "TLSReady").2 != served;
    let after = quorum.recorder.until_after(mark, KUBELET_LIMIT, "the new certificate is served", is_new).await?;
    bench.figures.add("a replaced certificate is served", bench.now().since(start));
    ensure!(run_ids(&before.object) == run_ids(&after.object), "a member was restarted");
    check_one_at_a_time(&quorum, mark)?;

    // The operator does not use a certificate without the names, and keeps the old one.
    let mark = quorum.recorder.mark();
    set_certificate(&bench, &issue::certificate(&second, &["elsewhere".to_owned()], now)?, &second).await?;
    let refused = reason_after(&quorum, mark, SOON * 2, "TLSReady", "CertificateInvalid").await?;
    ensure!(refused.contains("does not prove the name q-0"), "{refused}");
    lock.renewed(SOON).await?;
    ensure!(run_ids(&quorum.recorder.last()?.object) == run_ids(&before.object), "a member was restarted");
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    Ok(())
}

pub(crate) async fn tls_is_switched_on_and_off_and_no_lock_is_lost(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let client = Client::start(&quorum).await?;
    let mut before = pod_uids(&bench, 3).await?;

    // Without a certificate the quorum does not start.
    let mark = quorum.recorder.mark();
    let missing = r#"{"spec":{"tls":{"mode":"Secret","secretRef":{"name":"missing"}}}}"#;
    bench.patch("rq", "q", missing).await?;
    let refused = reason_after(&quorum, mark, SOON, "Ready", "CertificateInvalid").await?;
    ensure!(refused.contains("Secret missing, which spec.tls.secretRef names, does not exist"), "{refused}");
    let same = || async { Ok(pod_uids(&bench, 3).await? == before) };
    poll::stays(TTL, "no member is replaced without a certificate", same).await?;

    for mode in ["Managed", "Disabled"] {
        let mark = quorum.recorder.mark();
        let tls = json!({"spec": {"tls": {"mode": mode, "secretRef": null}}});
        bench.patch("rq", "q", &tls.to_string()).await?;
        reason_after(&quorum, mark, SOON, "Progressing", "Updating").await?;
        settled_after(&quorum, quorum.recorder.mark().saturating_sub(1), ROLLOUT_LIMIT).await?;
        check_one_at_a_time(&quorum, mark)?;
        let after = pod_uids(&bench, 3).await?;
        ensure!(after.iter().all(|uid| !before.contains(uid)), "{mode}: not every member was replaced");
        before = after;
        if mode == "Managed" {
            quorum.recorder.until_after(mark, SOON, "TLSReady", is_tls_ready).await?;
            check_plain_is_refused(&quorum, &client).await?;
        }
    }
    ensure!(condition(&quorum.recorder.last()?, "TLSReady").0.is_empty(), "the condition TLSReady is still there");
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    Ok(())
}
