//! All faults together.
//!
//! Claims, an election and outside clients contend during faults in an order that a seed decides.
//!
//! `CHAOS_SECONDS` is the length, and `SEED` repeats the order (not the timing). `checker` judges the beliefs of all
//! holders.

mod clients;
mod history;
mod kinds;
mod library_clients;
mod members;
mod nemesis;
pub(crate) mod outside;
mod plain;
mod probe;
mod report;
mod watched;
mod workers;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use redlock_operator::{
    api::RedisQuorum,
    time::{Clock as _, SystemClock},
};
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    bench::Bench,
    checker::Hold,
    locks::{Lock, SOON, with},
    operators,
    pods::application,
    poll,
    quorums::{Quorum, is_ready},
    record::{Recorder, Version},
    rng::Rng,
    runner::{Test, given_seed, given_time, tests},
    suite_lock::support::election,
};
use clients::Clients;
use history::History;
use kinds::Kind;
use nemesis::{Nemesis, Target};
use outside::Orders;
use report::Report;
use workers::{Stage, Worker, follow_election};

pub(crate) const TESTS: &[Test] = tests![
    local self::without_a_fence_the_checker_finds_two_holders,
    local self::no_fault_gives_a_lock_two_holders,
];

const MAX_TTL: Duration = Duration::from_secs(3);
const NODES: usize = 3;
/// After the last fault everything is healthy within this time.
const RECOVERY_LIMIT: Duration = Duration::from_secs(180);
/// The limit until each holder has had the lock.
const TURN_LIMIT: Duration = Duration::from_secs(90);
/// The length of the control run, which can be short.
const CONTROL_LIMIT: Duration = Duration::from_secs(120);

/// Starts a client on each node.
///
/// They end when the tasks are dropped.
fn start_clients(
    bench: &Bench,
    history: &Arc<History>,
    urls: watch::Receiver<Vec<String>>,
    rng: &mut Rng,
    keys: &[(String, u64)],
) -> (Arc<Clients>, JoinSet<anyhow::Result<()>>) {
    let clients = Clients::new(bench.cluster.clone(), history.clone(), urls);
    let mut tasks = JoinSet::new();
    for node in 1..=NODES {
        let (clients, keys, seed) = (clients.clone(), keys.to_vec(), rng.next());
        tasks.spawn(async move {
            let orders = |life: u64| Orders {
                name: format!("outside{node}.{life}"),
                keys: keys.clone(),
                seed: seed.wrapping_add(life),
                ttl: (800, 3_000),
            };
            clients.keep(node, orders).await
        });
    }
    (clients, tasks)
}

/// Fails the test if a client has ended.
fn still_running(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    match tasks.try_join_next() {
        Some(ended) => ended?.context("clients outside"),
        None => Ok(()),
    }
}

/// The usual setup without an operator: plain Redis servers, which vote as soon as they start.
///
/// The clients, the nemesis and the checker are the same.
async fn without_a_fence_the_checker_finds_two_holders(bench: Bench) -> anyhow::Result<()> {
    let (seed, length) = (given_seed(), (given_time() / 3).min(CONTROL_LIMIT));
    println!("seed {seed}, {} s, without a fence", length.as_secs());
    let (mut rng, history) = (Rng::new(seed), Arc::new(History::default()));
    let (target, urls) = plain::start(&bench).await?;
    let (_known, urls) = watch::channel(urls);
    let keys: Vec<_> = (0..3).map(|number| (format!("fast-{number}"), 40)).collect();
    let (clients, mut tasks) = start_clients(&bench, &history, urls, &mut rng, &keys);
    let mut nemesis =
        Nemesis { bench: bench.clone(), history: history.clone(), clients, target, rng: rng.fork(), changes: 0 };
    let ends = SystemClock.boottime() + length;
    while SystemClock.boottime() < ends {
        for kind in shuffled(Kind::PLAIN, &mut rng) {
            if SystemClock.boottime() < ends {
                inflict(&mut nemesis, kind).await;
                sleep(rng.millis(200, 1_500)).await;
                still_running(&mut tasks)?;
            }
        }
    }
    let report = Report::new(seed, length, history.holds(), history.faults(), &[]);
    println!("{report}");
    ensure!(report.overlaps() > 0, "the checker found no overlap without a fence, so it proves nothing");
    Ok(())
}

async fn inflict(nemesis: &mut Nemesis, kind: Kind) {
    if let Err(error) = nemesis.inflict(kind).await {
        println!("  not done: {}: {error:#}", kind.name());
    }
}

fn shuffled(kinds: &[Kind], rng: &mut Rng) -> Vec<Kind> {
    let mut deck: Vec<_> = kinds.iter().map(|kind| (rng.next(), *kind)).collect();
    deck.sort();
    deck.into_iter().map(|(_, kind)| kind).collect()
}

async fn no_fault_gives_a_lock_two_holders(bench: Bench) -> anyhow::Result<()> {
    let (seed, length) = (given_seed(), given_time());
    println!("seed {seed}, {} s", length.as_secs());
    let mut rng = Rng::new(seed);
    let scene = Scene::set(&bench, &mut rng).await?;
    let Scene { quorum, stage, clients, mut outside, mut inside } = scene;
    let history = stage.history.clone();
    let target = Target { pods: (0..3).map(|number| format!("q-{number}-0")).collect(), supervised: false };
    let mut nemesis =
        Nemesis { bench: bench.clone(), history: history.clone(), clients, target, rng: rng.fork(), changes: 0 };
    let begun = history::now();
    let ends = SystemClock.boottime() + length;
    while SystemClock.boottime() < ends {
        for kind in shuffled(Kind::ALL, &mut rng) {
            if SystemClock.boottime() < ends {
                inflict(&mut nemesis, kind).await;
                still_running(&mut outside)?;
                sleep(rng.millis(200, 1_500)).await;
                if rng.percent(60) {
                    // Without this wait the next fault would come during the effects of the last one.
                    let _unready = timeout(rng.millis(1_000, 15_000), ready_again(&quorum)).await;
                }
            }
        }
    }
    // The checker runs even if the recovery fails.
    let recovered = match recovers(&bench, &quorum, &history, begun).await {
        Ok(()) => settles(&quorum).await,
        stuck => stuck,
    };
    stage.stop.store(true, Ordering::SeqCst);
    while let Some(ended) = timeout(TURN_LIMIT, inside.join_next()).await.context("workers that do not end")? {
        ended?;
    }
    outside.shutdown().await;

    let (slow, faults): (Vec<_>, Vec<_>) = history.faults().into_iter().partition(|fault| fault.kind == probe::SLOW);
    let (pauses, faults): (Vec<_>, Vec<_>) = faults.into_iter().partition(|fault| fault.kind == workers::PAUSED);
    let observed = [report::outages(&quorum.recorder.versions()), pauses.clone(), slow.clone()].concat();
    let report = Report::new(seed, length, history.holds(), faults, &observed);
    println!("{report}");
    println!("writes to the API server that took longer than {:?}: {}", probe::LIMIT, slow.len());
    let [checks, trusts] = [0, 1].map(|store| stage.stores[store].lock().count());
    println!("holders that stood still until their lock was long gone: {}", pauses.len());
    report::print_store("checks tokens", checks);
    report::print_store("trusts its writers", trusts);
    report.must_hold()?;
    recovered?;
    ensure!(checks.written > 0 && checks.lost == 0, "a store that checks tokens lost {}", checks.lost);
    let is_proof = pauses.is_empty() || trusts.lost > 0;
    ensure!(is_proof, "the store found no lost write although holders were paused, so it proves nothing");
    Ok(())
}

async fn ready_again(quorum: &Quorum) -> anyhow::Result<()> {
    let mark = quorum.recorder.mark().saturating_sub(1);
    quorum.recorder.until_after(mark, RECOVERY_LIMIT, "Ready", is_ready).await.map(drop)
}

/// Waits until the last change of the members has ended.
async fn settles(quorum: &Quorum) -> anyhow::Result<()> {
    let mark = quorum.recorder.mark().saturating_sub(1);
    let is_settled = |version: &Version<RedisQuorum>| {
        let wanted = usize::try_from(version.object.spec.members).ok();
        let status = version.object.status.as_ref();
        status.is_some_and(|status| status.former_voters.is_empty() && Some(status.members.len()) == wanted)
    };
    quorum.recorder.until_after(mark, RECOVERY_LIMIT, "the wanted members, and no others", is_settled).await.map(drop)
}

/// Checks that all members vote, and that every key has new holders, after the last fault.
async fn recovers(bench: &Bench, quorum: &Quorum, history: &History, begun: i64) -> anyhow::Result<()> {
    bench.cluster.faults.end_all().await?;
    operators::all_available(&bench.cluster).await?;
    ready_again(quorum).await.context("after the last fault")?;
    let since = history::now();
    let is_fresh = |hold: &Hold| hold.from > begun && !hold.key.ends_with("/app");
    let keys: BTreeSet<_> = history.holds().into_iter().filter(is_fresh).map(|hold| hold.key).collect();
    let waits = || {
        let holds = history.holds();
        let had = |key: &str| holds.iter().any(|hold| hold.from > since && hold.key == key);
        keys.iter().find(|key| !had(key))
    };
    let turns = || async { Ok(waits().is_none().then_some(())) };
    let had = poll::until(TURN_LIMIT, "every key has a new holder after the last fault", turns).await;
    had.with_context(|| format!("{:?} has none", waits()))
}

struct Scene {
    quorum: Arc<Quorum>,
    stage: Arc<Stage>,
    clients: Arc<Clients>,
    outside: JoinSet<anyhow::Result<()>>,
    inside: JoinSet<()>,
}

impl Scene {
    async fn set(bench: &Bench, rng: &mut Rng) -> anyhow::Result<Self> {
        operators::all_available(&bench.cluster).await?;
        let history = Arc::new(History::default());
        // All components share two cores, so a reply can take longer.
        let fields = json!({"image": bench.cluster.redis_clock_image, "nodeTimeout": "100ms"});
        let deployments: Recorder<Deployment> = bench.record("app").await?;
        bench.create::<Deployment>(application("app", 3, &bench.cluster.member_image)).await?;
        let quorum = Arc::new(Quorum::ready_with(bench, "q", MAX_TTL, fields).await?);
        let are_available = |version: &Version<Deployment>| {
            version.object.status.as_ref().is_some_and(|status| status.available_replicas == Some(3))
        };
        deployments.until(RECOVERY_LIMIT, "available", are_available).await?;

        let namespace = &bench.namespace;
        let mut keys: Vec<_> = (0..3).map(|number| (format!("{namespace}/fast-{number}"), 40)).collect();
        keys.extend((0..2).map(|number| (format!("{namespace}/shared-{number}"), 200)));
        keys.push((format!("{namespace}/app"), 2_000));
        let (known, urls) = watch::channel(members::urls(bench).await?);
        let (clients, outside) = start_clients(bench, &history, urls, rng, &keys);

        let stage = Stage::new(bench, history);
        let mut inside = JoinSet::new();
        for (key, count, long) in [
            ("inside", 3, false),
            ("shared-0", 2, false),
            ("shared-1", 2, false),
            ("long-0", 2, true),
            ("long-1", 2, true),
        ] {
            for number in 0..count {
                let (stage, who, key) = (stage.clone(), format!("{key}-{number}"), key.to_owned());
                inside.spawn(Worker { stage, who, key, long, rng: rng.fork() }.work());
            }
        }
        let contended: Vec<_> = keys.iter().map(|(key, _)| key.clone()).filter(|key| !key.ends_with("/app")).collect();
        library_clients::start(&stage, &quorum, &contended, rng, &mut inside);
        let ttl = Duration::from_secs(3);
        let election = with(election("app", "app", ttl), json!({"quorumRef": {"name": "q"}}));
        Lock::create(bench, election).await?.held(SOON + MAX_TTL).await?;
        let (key, following) = (format!("{namespace}/app"), stage.clone());
        inside.spawn(async move { follow_election(following, "app", &key, ttl).await });
        let (probed, stopped) = (bench.clone(), stage.clone());
        inside.spawn(async move {
            tokio::select! { () = probe::watch(probed, &stopped.history) => {}, () = stopped.until_stopped() => {} }
        });
        let following = members::follow(bench.clone(), known);
        let stopped = stage.clone();
        inside.spawn(async move {
            tokio::select! { () = following => {}, () = stopped.until_stopped() => {} }
        });
        Ok(Self { quorum, stage, clients, outside, inside })
    }
}
