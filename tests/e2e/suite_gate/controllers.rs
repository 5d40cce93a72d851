//! Processes that elect by a Lease.
//!
//! Each has the service account token of one pod, and the container of that pod represents the process. A test that
//! kills the process also kills the container.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use redlock_operator::api::{DistributedLock, LEASE_LABEL, LEASE_TOKEN_ANNOTATION};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    candidates::{Place, suffer},
    locks::{Lock, SOON, claim, token},
    operators, poll,
    programs::{CLIENT_GO, CONTROLLER_RUNTIME, LEASE, Program, Released, TTL, allow_leases, check},
    suite_lock::support::{IDLE, POD_LIMIT, election, led_by, past, run, run_pair, valid_until, worker},
};

/// The lease duration of the programs.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// The limit until the next leader leads.
///
/// It has the lock, and retries its Lease after at most 4.4 s. This is much shorter than the lease duration.
const FOLLOWED: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(90);

/// The gate, two pods, and the rights of their service account.
pub(crate) async fn prepare(bench: &Bench) -> anyhow::Result<()> {
    bench.cluster.deploy_with(&["leaseGate.enabled=true"]).await?;
    allow_leases(bench).await?;
    // The operator elects the older pod. Creation times have whole seconds, so the name decides a tie.
    run_pair(bench, "app", ["app-0", "app-1"]).await
}

/// An election among these pods, with the Lease of the controllers.
pub(crate) fn gated() -> Value {
    let mut election = election("app", "app", TTL);
    election["spec"]["election"]["lease"] = json!({"name": LEASE});
    election
}

async fn holder(bench: &Bench) -> anyhow::Result<Option<String>> {
    Ok(bench.api::<Lease>().get(LEASE).await?.spec.and_then(|spec| spec.holder_identity))
}

pub(crate) async fn an_unchanged_controller_leads_and_is_followed_within_seconds(bench: Bench) -> anyhow::Result<()> {
    is_followed(&bench, CLIENT_GO, "client-go's election").await
}

pub(crate) async fn an_unchanged_manager_leads_and_is_followed_within_seconds(bench: Bench) -> anyhow::Result<()> {
    is_followed(&bench, CONTROLLER_RUNTIME, "controller-runtime's manager").await
}

async fn is_followed(bench: &Bench, program: Released, name: &str) -> anyhow::Result<()> {
    prepare(bench).await?;
    let lock = Lock::create(bench, gated()).await?;
    let held = led_by(&lock, 0, "app-0", POD_LIMIT).await?;
    ensure!(held.object.labels().get(LEASE_LABEL).is_some_and(|value| value == "true"), "{:?}", held.object.metadata);
    let second = Program::of_pod(bench, program, "app-1").await?;
    let mut first = Program::of_pod(bench, program, "app-0").await?;
    first.leads(LONG).await?;
    let lease = bench.api::<Lease>().get(LEASE).await?;
    let stamp = lease.annotations().get(LEASE_TOKEN_ANNOTATION).cloned();
    ensure!(stamp == Some(token(&held.object)?.to_string()), "{stamp:?} is not the token of the hold");
    let name_of_first = holder(bench).await?;
    let alone =
        async || Ok(first.is_leading(bench) && second.term().is_none() && holder(bench).await? == name_of_first);
    poll::stays(2 * LEASE_DURATION, "app-0 leads alone", alone).await?;
    let message = bench.patch_refused("lease", LEASE, r#"{"spec": {"holderIdentity": "me"}}"#).await?;
    ensure!(message.contains("only a pod that holds the lock"), "{message}");

    let killed = bench.now();
    let faults = &bench.cluster.faults;
    let (process, container) =
        tokio::join!(first.child.kill(), faults.kill_container(&bench.namespace, "app-0", "app"));
    process?;
    container?;
    second.leads(LONG).await?;
    let took = bench.now().since(killed);
    bench.figures.add(&format!("killed controller with {name}: the next one leads after"), took);
    ensure!(took <= FOLLOWED, "the next one leads after {took:?}, expected are at most {FOLLOWED:?}");
    check(&[&first, &second])
}

pub(crate) async fn a_leader_from_before_the_lock_is_followed_after_its_stop(bench: Bench) -> anyhow::Result<()> {
    prepare(&bench).await?;
    let mut before = Program::of_pod(&bench, CLIENT_GO, "app-1").await?;
    before.leads(LONG).await?;
    let lock = Lock::create(&bench, gated()).await?;
    led_by(&lock, 0, "app-0", POD_LIMIT).await?;
    let after = Program::of_pod(&bench, CLIENT_GO, "app-0").await?;
    after.leads(LONG).await?;
    before.gives_up(LONG).await?;
    check(&[&before, &after])
}

pub(crate) async fn without_the_operator_a_leader_stops_before_its_validity_ends(bench: Bench) -> anyhow::Result<()> {
    prepare(&bench).await?;
    let lock = Lock::create(&bench, gated()).await?;
    let token = token(&led_by(&lock, 0, "app-0", POD_LIMIT).await?.object)?;
    let mut first = Program::of_pod(&bench, CLIENT_GO, "app-0").await?;
    let second = Program::of_pod(&bench, CLIENT_GO, "app-1").await?;
    first.leads(LONG).await?;
    let followed = operators::while_stopped(&bench.cluster, async {
        first.gives_up(LONG).await?;
        Ok(second.term())
    });
    ensure!(followed.await?.is_none(), "another program leads without a grant");
    let (last, valid_until) = (first.term().context("it has not led")?.last, valid_until(&lock, token)?);
    ensure!(last < valid_until * 1_000, "it led until {last}, and the lock was valid until {valid_until} ms");
    // The container of its pod still runs, so the pod can be elected again.
    let again = Program::of_pod(&bench, CLIENT_GO, "app-0").await?;
    let next = async || Ok(again.term().or(second.term()));
    poll::until(LONG, "a controller leads again", next).await?;
    let led: Vec<_> = [&first, &second, &again].into_iter().filter(|it| it.term().is_some()).collect();
    check(&led)
}

pub(crate) async fn a_leader_that_hangs_is_followed(bench: Bench) -> anyhow::Result<()> {
    prepare(&bench).await?;
    let lock = Lock::create(&bench, gated()).await?;
    led_by(&lock, 0, "app-0", POD_LIMIT).await?;
    let mut first = Program::of_pod(&bench, CLIENT_GO, "app-0").await?;
    first.leads(LONG).await?;
    let second = Program::of_pod(&bench, CLIENT_GO, "app-1").await?;
    // The container of its pod keeps running.
    let process = first.child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("it has ended")?;
    let (hung, mark) = (bench.now(), lock.recorder.mark());
    kill_process(process, Signal::STOP)?;
    second.leads(LONG).await?;
    bench.figures.add("controller that hangs: the next one leads after", bench.now().since(hung));
    first.child.kill().await?;
    let is_past = |version: &_| past(version).is_ok_and(|past| past.reason == "HolderUnhealthy");
    lock.recorder.until_after(mark, SOON, "the history has the reason", is_past).await?;
    check(&[&first, &second])
}

pub(crate) async fn a_lock_gates_its_lease_from_its_first_moment_to_its_last(bench: Bench) -> anyhow::Result<()> {
    bench.cluster.deploy_with(&["leaseGate.enabled=true"]).await?;
    allow_leases(&bench).await?;
    // Another claim holds the key, and there is no candidate yet.
    Lock::create(&bench, claim("other", "app", None, TTL)).await?.held(SOON).await?;
    let lock = Lock::create(&bench, gated()).await?;
    let names_other = async || Ok(holder(&bench).await.ok().flatten().filter(|name| name.starts_with("elsewhere: ")));
    run(&bench, worker(&bench, "app-0", "app", IDLE)).await?;
    poll::until(LONG, "the Lease names the other holder", names_other).await?;
    let program = Program::of_pod(&bench, CLIENT_GO, "app-0").await?;
    let waits = async || Ok(program.term().is_none());
    poll::stays(LEASE_DURATION, "no candidate leads here", waits).await?;
    bench.delete::<DistributedLock>(&lock.name).await?;
    program.leads(LONG).await.map(drop).context("without the lock the Lease is as free as any other")
}

pub(crate) async fn random_faults_never_make_two_leaders(bench: Bench) -> anyhow::Result<()> {
    bench.cluster.deploy_with(&["leaseGate.enabled=true"]).await?;
    suffer(&[Place::open(&bench, 3, json!({})).await?]).await
}
