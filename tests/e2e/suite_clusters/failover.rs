//! The leader is in the second cluster, which runs two of five masters.
//!
//! Therefore the first cluster keeps a majority without it.

use std::{sync::Arc, time::Duration};

use anyhow::ensure;
use redlock_operator::time::Boottime;
use serde_json::json;

use crate::{
    bench::Bench,
    candidates,
    cluster::Cluster,
    locks::{Lock, SOON, token},
    poll,
    programs::{CLIENT_GO, Program, TTL, allow_leases, check},
    suite_cli::clusters::{check_scheduled_times_run_once, jobs_of},
    suite_gate::controllers::gated,
    suite_lock::support::{IDLE, POD_LIMIT, led_by, run, with, worker},
};

/// The quorum that `dev/clusters.sh` creates.
const QUORUM: &str = "shared";
const POD: &str = "app-0";
const LONG: Duration = Duration::from_secs(120);
/// The limit until the other cluster leads.
///
/// It covers the end of the hold with its ttl, the next election, and the next retry of client-go's loop.
const FOLLOWED: Duration = Duration::from_secs(34);

/// One cluster: a pod, the election in which it can lead, and the pod's program.
struct Place {
    lock: Lock,
    program: Program,
}

impl Place {
    async fn open(bench: &Bench, key: &str) -> anyhow::Result<Self> {
        allow_leases(bench).await?;
        run(bench, worker(bench, POD, "app", IDLE)).await?;
        let spec = json!({"key": key, "quorumRef": {"name": QUORUM, "namespace": QUORUM}});
        let lock = Lock::create(bench, with(gated(), spec)).await?;
        let program = Program::of_pod(bench, CLIENT_GO, POD).await?;
        Ok(Self { lock, program })
    }
}

/// Waits until the leader is in the second cluster, and a candidate waits in the first one.
async fn led_from_the_second(one: &Bench, two: &Bench) -> anyhow::Result<(Place, Place)> {
    let second = Place::open(two, &one.namespace).await?;
    led_by(&second.lock, 0, POD, POD_LIMIT).await?;
    second.program.leads(LONG).await?;
    let first = Place::open(one, &one.namespace).await?;
    first.lock.reason("HeldByOther", SOON).await?;
    let alone = async || Ok(second.program.is_leading(two) && first.program.term().is_none());
    poll::stays(TTL, "the second cluster leads alone", alone).await?;
    Ok((first, second))
}

/// Runs a test with a namespace in each cluster.
///
/// Faults end before the namespaces do.
async fn in_both(one: &Bench, what: impl AsyncFnOnce(&Bench, &Bench) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let second = Arc::new(Cluster::second().await?);
    let two = Bench::open("clusters", second, one.figures.clone()).await?;
    let result = what(one, &two).await;
    let healed = one.cluster.faults.end_all().await.and(two.cluster.faults.end_all().await);
    let closed = two.close().await;
    result.and(healed).and(closed)
}

/// Checks that the leader ends, and that the other cluster leads with a larger token.
///
/// `began` is a time before the injection of the fault.
async fn moves(
    one: &Bench,
    first: &Place,
    second: &mut Place,
    began: Boottime,
    (fault, limit): (&str, Duration),
) -> anyhow::Result<()> {
    let injected = one.now().since(began);
    let led = token(&second.lock.recorder.last()?.object)?;
    let (followed, gave_up) = tokio::join!(first.program.leads(LONG), second.program.gives_up(LONG));
    followed?;
    gave_up?;
    let took = one.now().since(began);
    one.figures.add(&format!("{fault}: a program in the other cluster leads after"), took);
    let most = injected + limit;
    ensure!(took <= most, "the other cluster leads after {took:?}, expected are at most {most:?}");
    let next = token(&first.lock.recorder.last()?.object)?;
    ensure!(next > led, "the token does not rise from {led} to {next}");
    check(&[&first.program, &second.program])
}

pub(crate) async fn a_leader_in_two_clusters_follows_when_their_network_is_cut(bench: Bench) -> anyhow::Result<()> {
    in_both(&bench, async |one, two| {
        let (first, mut second) = led_from_the_second(one, two).await?;
        let began = one.now();
        let cut = one.cluster.faults.cut_clusters().await?;
        let moved = moves(one, &first, &mut second, began, ("clusters cut apart", FOLLOWED)).await;
        one.cluster.faults.end(cut).await?;
        moved
    })
    .await
}

pub(crate) async fn a_leader_in_two_clusters_follows_when_a_cluster_stops(bench: Bench) -> anyhow::Result<()> {
    in_both(&bench, async |one, two| {
        let (first, mut second) = led_from_the_second(one, two).await?;
        let (began, faults) = (one.now(), &two.cluster.faults);
        faults.stop_api_server().await?;
        faults.cut_node("node1").await?;
        faults.cut_node("node2").await?;
        moves(one, &first, &mut second, began, ("cluster stopped", FOLLOWED)).await
    })
    .await
}

pub(crate) async fn a_leader_elsewhere_follows_when_an_api_server_is_frozen(bench: Bench) -> anyhow::Result<()> {
    in_both(&bench, async |one, two| {
        let (first, mut second) = led_from_the_second(one, two).await?;
        // The published validity ends first, and then the last renewal expires.
        let began = one.now();
        let frozen = two.cluster.faults.inject(&["apiserver-pause"], &["apiserver-resume"]).await?;
        let moved = moves(one, &first, &mut second, began, ("API server frozen", FOLLOWED + TTL)).await;
        two.cluster.faults.end(frozen).await?;
        moved
    })
    .await
}

pub(crate) async fn a_cron_job_in_both_clusters_runs_once(bench: Bench) -> anyhow::Result<()> {
    in_both(&bench, async |one, two| {
        let observed = [jobs_of(one).await?, jobs_of(two).await?];
        check_scheduled_times_run_once(&observed, [one, two], &format!("{QUORUM}/{QUORUM}")).await
    })
    .await
}

pub(crate) async fn random_faults_in_two_clusters_never_make_two_leaders(bench: Bench) -> anyhow::Result<()> {
    in_both(&bench, async |one, two| {
        let quorum = json!({"key": one.namespace, "quorumRef": {"name": QUORUM, "namespace": QUORUM}});
        let first = candidates::Place::open(one, 3, quorum.clone()).await?;
        let places = [first, candidates::Place::open(two, 2, quorum).await?];
        candidates::suffer(&places).await
    })
    .await
}
