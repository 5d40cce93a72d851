//! Each alert of the chart fires by its fault and clears after it, in a real Prometheus.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use redlock_operator::{
    api::DistributedLock,
    quorum::model::tls::{authority::CERTIFICATE_LIFE, issue},
};
use serde_json::{Value, json};

use super::{CHART, prometheus::Prometheus, surfaces::doctor_names};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held},
    operators, poll,
    quorums::{Quorum, is_ready},
    record::Version,
    suite_lock::support::{election, next_second},
    suite_quorum::helpers::set_certificate,
};

const TTL: Duration = Duration::from_secs(3);
const MAX_TTL: Duration = Duration::from_secs(4);
const START_LIMIT: Duration = Duration::from_secs(90);
const DAY: i64 = 86_400;

pub(crate) async fn a_missing_operator_leader_alerts_and_the_doctor_names_it(bench: Bench) -> anyhow::Result<()> {
    const ALERT: &str = "RedlockNoOperatorLeader";
    let prometheus = Prometheus::start(&bench).await?;
    prometheus.clears_after_first_scrape(ALERT).await?;
    operators::while_stopped(&bench.cluster, async {
        doctor_names(&bench, &["operator", "no lock is granted without a leader"]).await?;
        prometheus.until_fires(ALERT, None).await
    })
    .await?;
    prometheus.until_clears(ALERT, None).await
}

pub(crate) async fn an_election_without_a_leader_alerts(bench: Bench) -> anyhow::Result<()> {
    let prometheus = Prometheus::start(&bench).await?;
    prometheus.is_silent("RedlockElectionWithoutLeader").await?;
    let lock = Lock::create(&bench, election("app", "app", TTL)).await?;
    prometheus.until_fires("RedlockElectionWithoutLeader", None).await?;
    lock.remove().await?;
    prometheus.until_clears("RedlockElectionWithoutLeader", None).await
}

pub(crate) async fn a_lost_lock_and_a_quorum_that_cannot_grant_alert(bench: Bench) -> anyhow::Result<()> {
    let prometheus = Prometheus::start(&bench).await?;
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = Lock::take(&bench, claim("app", "job", Some("q"), TTL)).await?;
    prometheus.is_silent("RedlockLockLost").await?;
    prometheus.until_clears("RedlockQuorumCannotGrant", Some(&bench.namespace)).await?;
    let mut frozen = Vec::new();
    for member in ["q-0-0", "q-1-0"] {
        frozen.push(bench.cluster.faults.freeze(&bench.namespace, member, "redis").await?);
    }
    let fired = prometheus.until_fires("RedlockQuorumCannotGrant", Some(&bench.namespace)).await;
    let is_lost = |version: &Version<DistributedLock>| !is_held(&version.object);
    let lost = lock.recorder.until(TTL + SOON, "the validity has run out", is_lost).await;
    for member in frozen {
        bench.cluster.faults.end(member).await?;
    }
    fired?;
    lost?;
    // The operator reports the loss when a majority has confirmed the end of the hold.
    prometheus.until_fires("RedlockLockLost", None).await?;
    quorum.recorder.until(START_LIMIT, "Ready", is_ready).await?;
    prometheus.until_clears("RedlockQuorumCannotGrant", Some(&bench.namespace)).await?;
    prometheus.until_clears("RedlockLockLost", None).await
}

pub(crate) async fn a_member_that_does_not_vote_and_no_reserve_alert(bench: Bench) -> anyhow::Result<()> {
    const ALERTS: [&str; 2] = ["RedlockMemberDoesNotVote", "RedlockQuorumOneFailureFromStopping"];
    let prometheus = Prometheus::start(&bench).await?;
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    // A new quorum has too few votes during its start.
    for alert in ALERTS {
        prometheus.until_clears(alert, Some(&bench.namespace)).await?;
    }
    bench.create::<ResourceQuota>(json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})).await?;
    bench.kubectl(&["delete", "pod", "q-1-0", "--wait=false"]).await?;
    for alert in ALERTS {
        prometheus.until_fires(alert, Some(&bench.namespace)).await?;
    }
    bench.kubectl(&["delete", "resourcequota", "few"]).await?;
    for alert in ALERTS {
        prometheus.until_clears(alert, Some(&bench.namespace)).await?;
    }
    Ok(())
}

pub(crate) async fn a_certificate_that_expires_soon_alerts(bench: Bench) -> anyhow::Result<()> {
    const ALERT: &str = "RedlockCertificateExpires";
    let prometheus = Prometheus::start(&bench).await?;
    let now = bench.wall().0 / 1_000;
    let names: Vec<String> = (0..3).map(|index| format!("q-{index}.{}.svc", bench.namespace)).collect();
    let authority = issue::authority("q", now)?;
    let expires_soon = issue::certificate(&authority, &names, now - CERTIFICATE_LIFE + 10 * DAY)?;
    set_certificate(&bench, &expires_soon, &authority).await?;
    let spec = json!({"tls": {"mode": "Secret", "secretRef": {"name": "cert"}}});
    Quorum::ready_with(&bench, "q", MAX_TTL, spec).await?;
    prometheus.until_fires(ALERT, Some(&bench.namespace)).await?;
    set_certificate(&bench, &issue::certificate(&authority, &names, now)?, &authority).await?;
    prometheus.until_clears(ALERT, Some(&bench.namespace)).await
}

pub(crate) async fn a_claim_that_waits_long_alerts(bench: Bench) -> anyhow::Result<()> {
    const ALERT: &str = "RedlockLockWaitsLong";
    let prometheus = Prometheus::start(&bench).await?;
    let first = Lock::take(&bench, claim("first", "job", None, TTL)).await?;
    next_second(&bench).await;
    prometheus.is_silent(ALERT).await?;
    let second = Lock::create(&bench, claim("second", "job", None, TTL)).await?;
    prometheus.until_fires(ALERT, None).await?;
    first.remove().await?;
    second.held(SOON).await?;
    prometheus.until_clears(ALERT, None).await
}

/// Queries of the dashboard, from the JSON file of the chart.
fn queries() -> anyhow::Result<Vec<String>> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| collect(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
            _ => {}
        }
    }
    let path = std::path::Path::new(CHART).join("files/dashboard.json");
    let mut found = Vec::new();
    collect(&serde_json::from_str(&std::fs::read_to_string(path)?)?, &mut found);
    Ok(found)
}

/// The test creates a lock that changes hands, and a quorum whose members are fenced.
pub(crate) async fn each_query_of_the_dashboard_returns_data(bench: Bench) -> anyhow::Result<()> {
    let queries = queries()?;
    ensure!(queries.len() > 10, "{queries:?}");
    let prometheus = Prometheus::start(&bench).await?;
    let _starting = Quorum::create_with(&bench, "q", Duration::from_secs(60), json!({})).await?;
    for name in ["first", "second"] {
        let lock = Lock::take(&bench, claim(name, "job", None, TTL)).await?;
        lock.remove().await?;
    }
    let _holder = Lock::create(&bench, claim("holder", "job", None, TTL)).await?;
    let _waiter = Lock::create(&bench, claim("waiter", "job", None, TTL)).await?;
    for query in queries {
        let returns = async || Ok((!prometheus.query(&query).await?.is_empty()).then_some(()));
        poll::until(Duration::from_secs(90), &query, returns).await.context("a query of the dashboard without data")?;
    }
    Ok(())
}
