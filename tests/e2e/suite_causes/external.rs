//! External masters that cannot vote.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use redlock_operator::quorum::model::tls::issue;
use serde_json::json;

use super::surfaces::quorum_names;
use crate::{bench::Bench, masters::Masters};

const MAX_TTL: Duration = Duration::from_secs(4);

/// Creates a quorum of three masters, where the last one has this address, and checks the cause.
async fn with_last(bench: &Bench, masters: &Masters, last: String, cause: &[&str]) -> anyhow::Result<()> {
    let addresses = [masters.address(0), masters.address(1), last];
    let _quorum = masters.create(bench, masters.manifest("q", 0, &addresses, MAX_TTL)).await?;
    quorum_names(bench, "q", "", &[&["vm-2"], cause].concat()).await
}

/// Creates a quorum of three masters, where the last one is misconfigured, and checks the cause.
async fn configured(bench: &Bench, edit: &str, cause: &[&str]) -> anyhow::Result<()> {
    let masters = Masters::start(bench, 3).await?;
    masters.configure(2, edit).await?;
    with_last(bench, &masters, masters.address(2), cause).await
}

pub(crate) async fn a_name_that_does_not_resolve_is_named(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 2).await?;
    let last = format!("absent.{}.svc:7000", bench.namespace);
    with_last(&bench, &masters, last.clone(), &[last.trim_end_matches(":7000"), "does not resolve"]).await
}

pub(crate) async fn a_closed_port_is_named(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 2).await?;
    with_last(&bench, &masters, masters.address(5), &["connection refused"]).await
}

pub(crate) async fn a_wrong_password_is_named(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 3).await?;
    let secret = json!({
        "metadata": {"name": "masters-q", "labels": {"redlock-operator.io/quorum": "q"}},
        "stringData": {"username": "redlock", "password": "wrong"},
    });
    bench.create::<Secret>(secret).await?;
    with_last(&bench, &masters, masters.address(2), &["WRONGPASS", "masters-q"]).await
}

pub(crate) async fn a_right_that_is_missing_is_named(bench: Bench) -> anyhow::Result<()> {
    configured(&bench, "sed -i '/^user redlock/s/$/ -set -del/' $conf", &["rights for votes", "+set +del"]).await
}

pub(crate) async fn a_certificate_for_another_name_is_named(bench: Bench) -> anyhow::Result<()> {
    let now = bench.wall().0 / 1_000;
    let authority = issue::authority("masters", now)?;
    let masters = Masters::start_tls(&bench, 3, &authority).await?;
    let ca = json!({"metadata": {"name": "ca", "labels": {"redlock-operator.io/quorum": "q"}},
        "stringData": {"ca.crt": authority.certificate}});
    bench.create::<Secret>(ca).await?;
    let addresses = [masters.address(0), masters.address(1), masters.other_address(2)];
    let mut manifest = masters.manifest("q", 0, &addresses, MAX_TTL);
    for member in manifest["spec"]["external"].as_array_mut().into_iter().flatten() {
        member["tls"] = json!({"secretRef": {"name": "ca"}});
    }
    let _quorum = masters.create(&bench, manifest).await?;
    quorum_names(&bench, "q", "", &["vm-2", "certificate", "not valid for name"]).await
}

pub(crate) async fn a_master_that_evicts_is_named(bench: Bench) -> anyhow::Result<()> {
    let edit = "printf '%s\\n' 'maxmemory 100mb' 'maxmemory-policy allkeys-lru' >>$conf";
    configured(&bench, edit, &["evict", "noeviction"]).await
}

pub(crate) async fn a_replica_is_named(bench: Bench) -> anyhow::Result<()> {
    configured(&bench, "echo 'replicaof 127.0.0.1 1' >>$conf", &["this is a replica"]).await
}
