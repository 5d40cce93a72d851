//! Two installations of the operator in one cluster: one for everything but a namespace, one for that namespace.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::coordination::v1::Lease;
use redlock_operator::api::RedisQuorum;
use serde_json::json;

use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, status, with},
    operators,
    quorums::{Quorum, is_ready},
    record::{Recorder, Version},
    suite_install::{CHART, images},
};

const TTL: Duration = Duration::from_secs(6);
const RELEASE: &str = "team-a";
/// The chart's name of the account.
const ACCOUNT: &str = "team-a-redlock-operator";
/// The time for which both installations run.
const BESIDE: Duration = Duration::from_secs(300);
/// The limit from an installation to the first votes of its quorum, whose maxTTL is 6 s.
const START_LIMIT: Duration = Duration::from_secs(120);

pub(crate) async fn two_installations_run_side_by_side_and_each_quorum_has_one(bench: Bench) -> anyhow::Result<()> {
    with_second(&bench, beside(&bench)).await
}

/// Runs a test while the installed operator leaves out the test's namespace.
///
/// A second one can serve it.
pub(crate) async fn with_second(bench: &Bench, test: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let test = async {
        bench.cluster.deploy_with(&[&format!("leaveOutNamespaces={{{}}}", bench.namespace)]).await?;
        operators::all_available(&bench.cluster).await?;
        let result = test.await;
        // Even if the test failed, one installation must serve everything again. Objects of the second one that have
        // no namespace would stay after the deletion of the test's namespace.
        let clean_up = ["uninstall", RELEASE, "--no-hooks", "--ignore-not-found", "--wait"];
        result.and(bench.cluster.helm(&bench.namespace, &clean_up).await.map(drop))
    };
    operators::then_as_before(&bench.cluster, test).await
}

/// Installs a second operator with these additional values.
///
/// It serves only the locks and quorums of the test's namespace.
pub(crate) async fn install(bench: &Bench, more: &[&str]) -> anyhow::Result<()> {
    let namespace = &bench.namespace;
    let mut values = images(&bench.cluster).await?;
    values.extend(["watchNamespaces", "quorumNamespaces"].map(|value| format!("{value}={{{namespace}}}")));
    let own = ["defaultQuorum.name=q", "crds.install=false", "userRoles.create=false"];
    let mut arguments = vec!["install", RELEASE, CHART, "--wait", "--timeout", "2m"];
    let values = values.iter().map(String::as_str).chain(own).chain(more.iter().copied());
    values.for_each(|value| arguments.extend(["--set", value]));
    bench.cluster.helm(namespace, &arguments).await.map(drop)
}

/// The operator in a quorum's status.
fn operator(version: &Version<RedisQuorum>) -> Option<String> {
    version.object.status.as_ref()?.operator.clone()
}

/// Checks that there was only one leader and one term.
fn check_one_term(leases: &Recorder<Lease>) -> anyhow::Result<()> {
    let mut terms: Vec<_> = leases.versions().iter().filter_map(|v| operators::leader_of(&v.object)).collect();
    terms.dedup();
    ensure!(terms.len() == 1, "{terms:?}");
    Ok(())
}

/// Checks that no other operator serves the quorum.
fn check_one_operator(quorum: &Recorder<RedisQuorum>, expected: &str) -> anyhow::Result<()> {
    let mut names: Vec<_> = quorum.versions().iter().filter_map(operator).collect();
    names.dedup();
    ensure!(names == [expected], "{names:?}");
    Ok(())
}

async fn beside(bench: &Bench) -> anyhow::Result<()> {
    let cluster = &bench.cluster;
    let platform = format!("{}/{}", cluster.operator_namespace, operators::NAME);
    let team = format!("{}/{}", bench.namespace, operators::NAME);
    let theirs = bench.record::<RedisQuorum>("q").await?;
    install(bench, &["defaultQuorum.spec.maxTTL=6s", "installation=team"]).await?;
    theirs.until(START_LIMIT, "Ready", is_ready).await?;
    let default = Recorder::<RedisQuorum>::of(cluster.operator_api(), "main").await?;
    default.until(SOON, "names its operator", |v| operator(v).is_some()).await?;
    let leases = [bench.record::<Lease>(operators::NAME).await?, operators::watch_leader(cluster).await?];
    check_rights(bench).await?;
    Bench::beside(bench, "beside", async |other| {
        let own = Quorum::ready(other, "own", TTL).await?;
        let locks = [
            Lock::create(bench, claim("job", "job", None, TTL)).await?,
            Lock::create(other, claim("job", "job", None, TTL)).await?,
            Lock::create(other, claim("own", "own", Some("own"), TTL)).await?,
        ];
        for (lock, quorum) in locks.iter().zip(["q", "main", "own"]) {
            let held = lock.held(SOON).await?;
            let on = status(&held.object).holder.and_then(|holder| holder.quorum).map(|quorum| quorum.name);
            ensure!(on.as_deref() == Some(quorum), "{}: {on:?}", lock.name);
        }
        let theirs_alone = json!({"quorumRef": {"namespace": bench.namespace, "name": "q"}});
        let lost = Lock::create(other, with(claim("lost", "lost", None, TTL), theirs_alone)).await?;

        // Only a wait can show that the lock is ignored.
        tokio::time::sleep(BESIDE).await;
        let ignored = lost.recorder.last()?.object;
        ensure!(ignored.status.is_none(), "{:?}", ignored.status);
        lost.remove().await?;
        leases.iter().try_for_each(check_one_term)?;
        check_one_operator(&theirs, &team)?;
        check_one_operator(&default, &platform)?;
        check_one_operator(&own.recorder, &platform)?;
        for lock in &locks {
            check_never_lost(&lock.recorder.versions())?;
            lock.remove().await?;
        }
        Ok(())
    })
    .await?;
    // The quorum waits for its own operator, and the other one must not serve it.
    cluster.helm(&bench.namespace, &["uninstall", RELEASE, "--wait"]).await?;
    cluster.deploy().await?;
    operators::all_available(cluster).await?;
    check_one_operator(&theirs, &team)
}

/// The account of an installation for one namespace reads Secrets only there, and nodes everywhere.
async fn check_rights(bench: &Bench) -> anyhow::Result<()> {
    let account = format!("--as=system:serviceaccount:{}:{ACCOUNT}", bench.namespace);
    for (verb, what, namespace, expected) in [
        ("get", "secrets", bench.namespace.as_str(), "yes"),
        ("list", "secrets", &bench.namespace, "no"),
        ("get", "secrets", "default", "no"),
        ("create", "statefulsets.apps", "default", "no"),
        ("patch", "pods", "default", "no"),
        ("list", "distributedlocks.redlock-operator.io", "default", "no"),
        ("get", "nodes", "default", "yes"),
    ] {
        let arguments = ["auth", "can-i", verb, what, "-n", namespace, &account];
        let output = bench.cluster.kubectl_output(&arguments, "").await?;
        let answer = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(answer == expected, "the right of {ACCOUNT} to {verb} {what} in {namespace}: {answer}");
    }
    Ok(())
}
