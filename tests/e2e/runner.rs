//! Runs tests one after the other and reports their results.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::ListParams};
use redlock_operator::time::{Clock as _, SystemClock};
use tokio::time::timeout;

use crate::{
    bench::{Bench, PART_OF},
    cluster::Cluster,
    figures::Figures,
    front::{Arguments, Missed, Outcome},
    quorums,
};

/// The timeout of a test, in addition to its given time.
pub(crate) const TEST_LIMIT: Duration = Duration::from_secs(600);
/// The timeout of a `long` test, which makes and deletes thousands of locks.
pub(crate) const LONG_TEST_LIMIT: Duration = Duration::from_secs(3600);

/// The length of tests with a configurable duration: `CHAOS_SECONDS`.
pub(crate) fn given_time() -> Duration {
    let seconds = std::env::var("CHAOS_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(75))
}

/// The seed of tests with random events: `SEED`, or another one each time.
pub(crate) fn given_seed() -> u64 {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| u64::from(rand::random::<u16>()))
}

/// One test.
pub(crate) struct Test {
    /// A sentence, with underscores.
    pub(crate) name: &'static str,
    /// Whether it injects faults that only the local cluster offers.
    pub(crate) needs_local: bool,
    /// Its timeout, in addition to its given time.
    pub(crate) limit: Duration,
    /// The test itself.
    pub(crate) run: fn(Bench) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// A list of tests from the paths of async functions, which name them. `local` and `long` tests need the local cluster.
macro_rules! tests {
    ($($kind:ident $module:ident::$name:ident),+ $(,)?) => {
        &[$($crate::runner::Test {
            name: stringify!($name),
            needs_local: $crate::runner::tests!(@ $kind),
            limit: $crate::runner::tests!(@@ $kind),
            run: |bench| Box::pin($module::$name(bench)),
        }),+]
    };
    (@ anywhere) => { false };
    (@ $local:ident) => { true };
    (@@ long) => { $crate::runner::LONG_TEST_LIMIT };
    (@@ $short:ident) => { $crate::runner::TEST_LIMIT };
}
pub(crate) use tests;

/// Describes the load, because times measured on a busy machine prove little.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    load.split(' ').next().map(|load| format!(" (load average {load} on {cores} cores)")).unwrap_or_default()
}

/// Runs the selected tests.
///
/// Returns true if none failed.
///
/// With `votes` a monitor requests votes of all members during each test. No process can vote between its start and its
/// admission.
pub(crate) async fn run(tests: &[Test], arguments: &Arguments, votes: bool) -> anyhow::Result<bool> {
    let cluster = Arc::new(Cluster::find().await?);
    let figures = Arc::new(Figures::default());
    warn_of_leftovers(&cluster).await?;
    quorums::default_is_ready(&cluster).await.context("the operator or its default quorum is not ready")?;
    let mut outcomes = Vec::new();
    for test in tests.iter().filter(|test| arguments.means(test)) {
        outcomes.push(run_one(test, &cluster, &figures, votes).await);
        // The results are written after each test, so that an aborted run leaves them.
        arguments.report(&outcomes)?;
    }
    println!("\nmeasured{}:\n{figures}", load());
    let failed = outcomes.iter().filter(|outcome| outcome.is_failure()).count();
    let passed = outcomes.iter().filter(|outcome| outcome.result.is_ok()).count();
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}

async fn run_one(test: &Test, cluster: &Arc<Cluster>, figures: &Arc<Figures>, votes: bool) -> Outcome {
    let start = SystemClock.boottime();
    let outcome = |result| Outcome { test: test.name, took: SystemClock.boottime().since(start), result };
    let failed = |why: String| outcome(Err(Missed::Failed(why)));
    if test.needs_local && !cluster.faults.available() {
        println!("skipped  {}: needs the local cluster", test.name);
        return outcome(Err(Missed::Skipped));
    }
    println!("running  {}", test.name);
    let bench = match Bench::open(test.name, cluster.clone(), figures.clone()).await {
        Ok(bench) => bench,
        Err(error) => {
            println!("FAILED   {}: its namespace could not be made: {error:#}", test.name);
            return failed(format!("its namespace could not be made: {error:#}"));
        }
    };
    let result = attempt(test, &bench, votes && cluster.faults.available()).await;
    let took = SystemClock.boottime().since(start).as_secs_f64();
    match &result {
        Ok(()) => println!("ok       {} ({took:.1} s)", test.name),
        Err(error) => println!("{}\nFAILED   {} ({took:.1} s): {error:#}", bench.dump().await, test.name),
    }
    if let (Err(error), Some(_)) = (&result, std::env::var_os("KEEP")) {
        println!("kept     namespace {}", bench.namespace);
        return failed(format!("{error:#}"));
    }
    // The next test can kill the operator, and if the operator misses the end of a pod, it waits for two minutes.
    // Therefore the namespace is closed first. A test passes only if its namespace is gone.
    let closed = tokio::spawn(close(bench)).await.unwrap_or_else(|panic| Err(panic.to_string()));
    if let Err(error) = &closed {
        println!("{error}\nFAILED   {}: its namespace could not be removed", test.name);
    }
    match (result, closed) {
        (Ok(()), Ok(())) => outcome(Ok(())),
        (Err(error), _) => failed(format!("{error:#}")),
        (_, Err(error)) => failed(format!("its namespace could not be removed: {error}")),
    }
}

async fn attempt(test: &Test, bench: &Bench, votes: bool) -> anyhow::Result<()> {
    if votes {
        bench.votes().await?;
    }
    let running = tokio::spawn((test.run)(bench.clone()));
    let stop = running.abort_handle();
    let limit = test.limit + given_time();
    let result = match timeout(limit, running).await {
        Ok(joined) => joined.unwrap_or_else(|panic| Err(anyhow!("{panic}"))),
        Err(_elapsed) => Err(anyhow!("not done in {limit:?}")),
    };
    stop.abort();
    let ended = bench.cluster.faults.end_all().await;
    let tally = bench.end_votes().await;
    if let Ok(Some(tally)) = &tally
        && !tally.0.is_empty()
    {
        println!("votes    {tally}");
    }
    result.and(ended).and(tally.map(drop))
}

async fn close(bench: Bench) -> Result<(), String> {
    match bench.close().await {
        Ok(()) => Ok(()),
        Err(error) => Err(format!("{}\n{error:#}", bench.dump().await)),
    }
}

/// Does not delete the namespaces, because another run can be active.
async fn warn_of_leftovers(cluster: &Cluster) -> anyhow::Result<()> {
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let left = namespaces.list(&ListParams::default().labels(PART_OF)).await?;
    let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    if !names.is_empty() {
        println!("left from other runs: {} (kubectl delete namespace -l {PART_OF})", names.join(", "));
    }
    Ok(())
}
