//! Errors that the API server cannot detect, because they depend on other objects.
//!
//! The status reports them, and they heal when these objects change.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use redlock_operator::api::DistributedLock;
use serde_json::json;

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, message_of, reason_of, with},
    operators,
    quorums::{Quorum, max_ttl_in_force},
    record::{Recorder, Version},
    suite_causes::surfaces::{doctor_names, lock_names},
};

const MAX_TTL: Duration = Duration::from_secs(3);
/// The length of a check, which is enough to detect an operator that repeats its attempts.
const QUIET: Duration = Duration::from_secs(4);
/// The maximum number of log lines for a settled lock.
///
/// The lock's Event and a few reads of other objects are allowed, but no repeated attempts.
const LINES_WHILE_QUIET: usize = 3;

pub(crate) async fn errors_from_other_objects_are_in_the_status_and_heal(bench: Bench) -> anyhow::Result<()> {
    let before = operators::restarts(&bench.cluster).await?;
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    bench.beside("refused_elsewhere", async |elsewhere| check(&bench, elsewhere, &quorum).await).await?;
    ensure!(operators::restarts(&bench.cluster).await? == before, "an operator pod was restarted");
    Ok(())
}

async fn check(bench: &Bench, elsewhere: &Bench, quorum: &Quorum) -> anyhow::Result<()> {
    let too_long = Lock::create(bench, claim("too-long", "a", Some("q"), 2 * MAX_TTL)).await?;
    let no_quorum = Lock::create(bench, claim("no-quorum", "b", Some("later"), MAX_TTL)).await?;
    let there = json!({"quorumRef": {"name": "q", "namespace": bench.namespace}});
    let not_allowed = Lock::create(elsewhere, with(claim("not-allowed", "c", None, MAX_TTL), there)).await?;

    let refusals = [
        (&too_long, "TTLTooLong", &["6s", "3s"][..]),
        (&no_quorum, "QuorumNotFound", &["later"]),
        (&not_allowed, "NamespaceNotAllowed", &["allowedNamespaces"]),
    ];
    for (lock, reason, cause) in refusals {
        let is_so = |v: &Version<_>| reason_of(&v.object, "Accepted") == Some(reason);
        let refused = lock.recorder.until(SOON, &format!("Accepted=False with reason {reason}"), is_so).await?;
        let message = message_of(&refused.object, "Accepted");
        ensure!(cause.iter().all(|part| message.contains(*part)), "{reason} does not name {cause:?}: {message}");
        ensure!(reason_of(&refused.object, "Held") == Some("NotAccepted"), "{:?}", refused.object.status);
        has_event(&lock.bench, &lock.name, reason).await?;
        lock_names(&lock.bench, &lock.name, reason, cause).await?;
    }
    doctor_names(bench, &["TTLTooLong", "QuorumNotFound"]).await?;
    stays_quiet(bench, &refusals.map(|(lock, ..)| lock)).await?;

    bench.patch("rq", "q", r#"{"spec":{"maxTTL":"6s","allowedNamespaces":{"from":"All"}}}"#).await?;
    not_allowed.held(SOON).await.context("allowedNamespaces now allows it")?;
    too_long.held(SOON).await.context("maxTTL is large enough now")?;
    let _later = Quorum::create_with(bench, "later", MAX_TTL, json!({})).await?;
    no_quorum.held(Duration::from_secs(60)).await.context("the quorum exists now")?;
    let in_force = max_ttl_in_force(&quorum.recorder.last()?.object);
    ensure!(in_force == Some(2 * MAX_TTL), "{in_force:?}");
    for lock in [&not_allowed, &too_long, &no_quorum] {
        lock.remove().await?;
    }
    Ok(())
}

/// Checks that an Event of the lock has this reason.
async fn has_event(bench: &Bench, lock: &str, reason: &str) -> anyhow::Result<()> {
    let events = Recorder::<Event>::of_fields(bench.api(), &format!("involvedObject.name={lock}")).await?;
    let is_it = |v: &Version<Event>| v.object.reason.as_deref() == Some(reason);
    events.until(SOON, &format!("an Event {reason} about {lock}"), is_it).await.map(drop)
}

/// Checks that the operator writes nothing and logs hardly anything while nothing changes.
async fn stays_quiet(bench: &Bench, locks: &[&Lock]) -> anyhow::Result<()> {
    let versions = |locks: &[&Lock]| -> Vec<usize> { locks.iter().map(|lock| lock.recorder.mark()).collect() };
    let before = versions(locks);
    // Only a wait can show that nothing happens.
    tokio::time::sleep(QUIET).await;
    ensure!(versions(locks) == before, "the operator continues to write: {before:?}, then {:?}", versions(locks));
    let log = operators::log_since(&bench.cluster, QUIET.as_secs()).await?;
    for lock in locks {
        let name = format!("{}/{}", lock.bench.namespace, lock.name);
        let lines = log.lines().filter(|line| line.contains(&name) || line.contains(&lock.bench.namespace)).count();
        ensure!(lines <= LINES_WHILE_QUIET, "{lines} log lines about {name} while nothing changes:\n{log}");
    }
    let all = bench.api::<DistributedLock>().list(&ListParams::default()).await?;
    ensure!(all.items.len() == 2, "locks appeared or vanished");
    Ok(())
}
