//! A tenant's number of objects does not delay other tenants.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use redlock_operator::api::DistributedLock;
use serde_json::json;
use tokio::sync::Mutex;

use super::{requests::client_of, victim::Replicas};
use crate::{
    bench::Bench,
    history::check_all_held,
    locks::{
        AT_ONCE, Lock, SOON, claim, create_all, delete_all, hold, is_held, leader, reason_of, until_all, watch_all,
    },
    record::{Recorder, Version},
    suite_lock::support::{POD_LIMIT, election, is_ready, led_by, pod_claim, run, run_pair, with, worker},
};

/// Number of rounds, in each of which each of the [`CLIENTS`] measures one lock of the victim.
///
/// A pause of the API server delays both locks of a round. Therefore two of the 200 locks can take longer.
const ROUNDS: usize = 100;
const CLIENTS: usize = 2;
/// Locks of the victim that are held throughout.
const HELD: usize = 20;
const TTL: Duration = Duration::from_secs(10);
/// The limit from apply to Held, for 99 of 100 of the victim's locks.
///
/// If twice the time of three plain writes is longer, that is the limit.
const HELD_LIMIT: Duration = Duration::from_millis(500);
const FAILOVER_LIMIT: Duration = Duration::from_secs(3);
/// Number of served locks in one namespace, including the holder.
///
/// It is the chart's `limits.locksPerNamespace`.
const SERVED: usize = 10_000;
/// Maximum number of writes for one grant or one release.
const WRITES: usize = 20;
/// All reactions to an event happen within this time.
const SETTLED: Duration = Duration::from_secs(3);

/// Measures the victim's claims from apply to Held: 99 of 100 stay below the limit.
pub(crate) async fn measure(victim: &Bench, what: &str, label: &str) -> anyhow::Result<()> {
    // All locks share a watch, because the start of a watch takes as long as a lock.
    let recorder = Recorder::<DistributedLock>::labelled(victim.api(), &format!("measured={label}")).await?;
    let client = async |client: usize| {
        let mut measured = Vec::new();
        for round in 0..ROUNDS {
            let name = format!("{label}-{client}-{round}");
            let mut lock = claim(&name, &name, None, TTL);
            lock["metadata"]["labels"] = json!({"measured": label});
            let start = victim.now();
            victim.create::<DistributedLock>(lock).await?;
            let created = victim.now().since(start);
            let of_it = |observed: &Version<DistributedLock>| observed.object.name_any() == name;
            let held = recorder.until(SOON, "Held", |observed| of_it(observed) && is_held(&observed.object)).await?;
            let versions = recorder.versions();
            let message = |observed: &Version<_>| {
                (observed.at.since(start), reason_of(&observed.object, "Held").map(str::to_owned))
            };
            let observed: Vec<_> = versions.iter().filter(|observed| of_it(observed)).map(message).collect();
            measured.push((held.at.since(start), format!("created after {created:?}, seen after {observed:?}")));
            victim.delete::<DistributedLock>(&name).await?;
            recorder.until(SOON, "gone", |observed| of_it(observed) && observed.gone).await?;
        }
        anyhow::Ok(measured)
    };
    let plain = Mutex::new(Vec::new());
    let measured = tokio::select! {
        measured = futures::future::try_join_all((0..CLIENTS).map(client)) => measured?,
        failed = plain_writes(victim, label, &plain) => return failed,
    };
    let mut measured = measured.concat();
    measured.iter().for_each(|(took, _)| victim.figures.add(what, *took));
    measured.sort_unstable();
    let mut plain = plain.into_inner();
    plain.iter().for_each(|took| victim.figures.add(&what.replace("apply -> Held", "three plain writes"), *took));
    plain.sort_unstable();
    let most = |count: usize| (count * 99 / 100).saturating_sub(1);
    let limit = HELD_LIMIT.max(2 * plain[most(plain.len())]);
    let slowest = &measured[most(measured.len())..];
    ensure!(slowest[0].0 < limit, "{what} took too long, the limit is {limit:?}: {slowest:#?}");
    Ok(())
}

/// Sends as many writes as a lock needs, one after the other, without an operator.
///
/// No lock is quicker than these writes while the API server pauses. The writes continue until this future is dropped.
async fn plain_writes(victim: &Bench, label: &str, took: &Mutex<Vec<Duration>>) -> anyhow::Result<()> {
    let (api, parameters) = (victim.api::<ConfigMap>(), PatchParams::default());
    for round in 0.. {
        let name = format!("{label}-{round}");
        let start = victim.now();
        victim.create::<ConfigMap>(json!({"metadata": {"name": name}})).await?;
        for write in ["one", "two"] {
            api.patch(&name, &parameters, &Patch::Merge(json!({"data": {"write": write}}))).await?;
        }
        took.lock().await.push(victim.now().since(start));
        victim.delete::<ConfigMap>(&name).await?;
    }
    Ok(())
}

/// The locks of a namespace for a user with `edit` there.
///
/// The API server gives such a user a share of its time. It serves administrators without a limit.
pub(crate) async fn as_tenant(bench: &Bench) -> anyhow::Result<Api<DistributedLock>> {
    bench.create_account("tenant", "edit").await?;
    Ok(Api::namespaced(client_of(bench, "tenant", None).await?, &bench.namespace))
}

/// Kills the container of the leader, and checks that the other pod follows in time.
///
/// The pods are `one` and `two`. Returns the name of the killed pod.
pub(crate) async fn kill_leader(lock: &Lock, attack: &str) -> anyhow::Result<String> {
    let bench = &lock.bench;
    let leads = leader(&lock.recorder.last()?.object).context("no leader")?;
    let (mark, start) = (lock.recorder.mark(), bench.now());
    bench.cluster.faults.kill_container(&bench.namespace, &leads, "app").await?;
    let next = if leads == "one" { "two" } else { "one" };
    let took = led_by(lock, mark, next, SOON).await?.at.since(start);
    bench.figures.add(&format!("SIGKILL -> next leader beside {attack}"), took);
    ensure!(took < FAILOVER_LIMIT, "the next leader led after {took:?}");
    Ok(leads)
}

pub(crate) async fn thousands_of_waiting_claims_cost_few_writes_and_no_delay(bench: Bench) -> anyhow::Result<()> {
    let count = std::env::var("CLAIMS").ok().and_then(|text| text.parse().ok()).unwrap_or(SERVED - 1);
    let replicas = Replicas::watch(&bench.cluster).await?;
    let holder = Lock::take(&bench, claim("holder", "reindex", None, TTL)).await?;
    let recorder = watch_all(&bench).await?;
    let tenant = as_tenant(&bench).await?;
    Bench::beside(&bench, "thousands-that-wait-victim", async |victim| {
        let start = bench.now();
        let lock = |number| claim(&format!("waits-{number}"), "reindex", None, TTL);
        let queued = |version: &Version<_>| reason_of(&version.object, "Held") == Some("Queued");
        create_all(&tenant, count, lock).await?;
        until_all(&recorder, count, Duration::from_secs(600), "queued", queued).await?;
        bench.figures.add(&format!("{count} claims queued"), bench.now().since(start));
        measure(victim, "apply -> Held beside thousands that wait", "afterwards").await
    })
    .await?;
    for (what, act) in [("release", true), ("grant", false)] {
        let mark = recorder.mark();
        if act {
            holder.delete().await?;
            recorder.until_after(mark, SOON, "the next one is granted", |observed| is_held(&observed.object)).await?;
        }
        // Any further reaction would happen in this time.
        tokio::time::sleep(SETTLED).await;
        let writes = recorder.mark() - mark;
        println!("         {writes} writes of {count} claims in {SETTLED:?} after the {what}");
        ensure!(writes <= if act { 2 * WRITES } else { WRITES }, "{writes} writes of claims that wait");
    }
    replicas.check().await
}

pub(crate) async fn creations_and_deletions_in_a_loop_harm_no_other_tenant(bench: Bench) -> anyhow::Result<()> {
    let tenant = as_tenant(&bench).await?;
    Bench::beside(&bench, "creates-and-deletes-victim", async |victim| {
        let held = hold(victim, HELD, None, Duration::from_secs(3)).await?;
        let churn = async |worker: usize| -> anyhow::Result<()> {
            for round in 0.. {
                let name = format!("churn-{worker}-{round}");
                let claim = serde_json::from_value(claim(&name, &name, None, TTL))?;
                tenant.create(&PostParams::default(), &claim).await?;
                tenant.delete(&name, &DeleteParams::background()).await?;
            }
            Ok(())
        };
        let what = "apply -> Held while another namespace creates and deletes claims";
        tokio::select! {
            measured = measure(victim, what, "meanwhile") => measured?,
            churned = futures::future::try_join_all((0..AT_ONCE).map(churn)) => drop(churned?),
        }
        check_all_held(&held)
    })
    .await
}

pub(crate) async fn pods_that_do_not_answer_delay_only_their_own_locks(bench: Bench) -> anyhow::Result<()> {
    // After SIGSTOP the kernel accepts connections, but the process does not answer.
    let listens = "exec redis-server --save '' --protected-mode no";
    let silent = run(&bench, worker(&bench, "silent", "silent", listens)).await?.last()?.object.name_any();
    let _frozen = bench.cluster.faults.freeze(&bench.namespace, &silent, "app").await?;
    let probed = json!({"slots": 100, "liveness": {"httpGet": {"path": "/", "port": 6379}}});
    let lock = |number: usize| with(pod_claim(&format!("probed-{number}"), "scheduler", &silent, TTL), probed.clone());
    create_all(&as_tenant(&bench).await?, 100, lock).await?;
    let is_judged = |version: &Version<_>| reason_of(&version.object, "Held").is_some();
    until_all(&watch_all(&bench).await?, 50, Duration::from_secs(60), "judged", is_judged).await?;
    Bench::beside(&bench, "pods-that-do-not-answer-victim", async |victim| {
        run_pair(victim, "scheduler", ["one", "two"]).await?;
        let lock = Lock::take(victim, election("scheduler", "scheduler", Duration::from_secs(2))).await?;
        for _ in 0..3 {
            let killed = victim.record::<Pod>(&kill_leader(&lock, "100 locks whose pod is silent").await?).await?;
            killed.until(POD_LIMIT, "its container runs again", |pod| is_ready(&pod.object)).await?;
        }
        measure(victim, "apply -> Held beside 100 locks whose pod is silent", "meanwhile").await
    })
    .await
}

pub(crate) async fn a_thousand_published_locks_delay_no_other_tenants_writes(bench: Bench) -> anyhow::Result<()> {
    const MANY: usize = 1_000;
    let recorder = watch_all(&bench).await?;
    let tenant = as_tenant(&bench).await?;
    Bench::beside(&bench, "a-thousand-published-victim", async |victim| {
        let idle = hundred(victim, "idle").await?;
        let lock = |number| claim(&format!("many-{number}"), &format!("many-{number}"), None, TTL);
        create_all(&tenant, MANY, lock).await?;
        until_all(&recorder, MANY, Duration::from_secs(300), "held", |version| is_held(&version.object)).await?;
        let held = hold(victim, HELD, None, TTL).await?;
        measure(victim, "apply -> Held beside 1,000 published locks of another namespace", "meanwhile").await?;
        let busy = hundred(victim, "busy").await?;
        ensure!(busy <= 3 * idle, "100 locks took {busy:?}, and {idle:?} on an idle cluster");
        check_all_held(&held)
    })
    .await?;
    let newest: std::collections::BTreeMap<_, _> =
        recorder.versions().into_iter().map(|observed| (observed.object.name_any(), observed)).collect();
    let lost = newest.values().filter(|observed| !is_held(&observed.object)).count();
    ensure!(lost == 0, "{lost} of them were lost");
    Ok(())
}

/// The time until 100 more locks are held.
///
/// The locks are deleted afterwards.
async fn hundred(bench: &Bench, name: &str) -> anyhow::Result<Duration> {
    let recorder = watch_all(bench).await?;
    let (start, mark) = (bench.now(), recorder.mark());
    let named = |number: usize| format!("{name}-{number}");
    create_all(&bench.api(), 100, |number| claim(&named(number), &named(number), None, TTL)).await?;
    let is_one =
        |version: &Version<DistributedLock>| version.object.name_any().starts_with(name) && is_held(&version.object);
    until_all(&recorder, 100, Duration::from_secs(120), "held", is_one).await?;
    let took = bench.now().since(start);
    bench.figures.add(&format!("100 more locks held, {name} cluster"), took);
    delete_all(bench, (0..100).map(named)).await?;
    recorder.until_after(mark, Duration::from_secs(120), "they are gone", |observed| observed.gone).await?;
    Ok(took)
}
