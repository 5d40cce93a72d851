//! Runs tests one after the other and says how they went.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::ListParams};
use redlock_operator::time::{Boottime, Clock as _, SystemClock};
use tokio::time::timeout;

use crate::{
    bench::{Bench, PART_OF},
    cluster::Cluster,
    figures::Figures,
    quorums,
};

/// A test that takes longer hangs.
const TEST_LIMIT: Duration = Duration::from_secs(300);

/// One test.
pub(crate) struct Test {
    /// A sentence, with underscores.
    pub(crate) name: &'static str,
    /// It injects faults that only the local cluster offers.
    pub(crate) needs_local: bool,
    /// The test itself.
    pub(crate) run: fn(Bench) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// A list of tests from the paths of async functions, which name them.
macro_rules! tests {
    ($($kind:ident $module:ident::$name:ident),+ $(,)?) => {
        &[$($crate::runner::Test {
            name: stringify!($name),
            needs_local: $crate::runner::tests!(@ $kind),
            run: |bench| Box::pin($module::$name(bench)),
        }),+]
    };
    (@ anywhere) => { false };
    (@ local) => { true };
}
pub(crate) use tests;

/// Runs the tests whose name contains `filter`; true if none failed.
pub(crate) async fn run(tests: &[Test], filter: &str) -> anyhow::Result<bool> {
    let cluster = Arc::new(Cluster::find().await?);
    let figures = Arc::new(Figures::default());
    warn_of_leftovers(&cluster).await?;
    quorums::default_is_ready(&cluster).await.context("the operator or its default quorum is not ready")?;
    let (mut passed, mut failed) = (0, 0);
    for test in tests.iter().filter(|test| test.name.contains(filter)) {
        let start = SystemClock.boottime();
        if test.needs_local && !cluster.faults.available() {
            println!("skipped  {}: needs the local cluster", test.name);
            continue;
        }
        println!("running  {}", test.name);
        match attempt(test, &cluster, &figures).await {
            Ok(()) => {
                passed += 1;
                println!("ok       {} ({})", test.name, seconds_since(start));
            }
            Err(error) => {
                failed += 1;
                println!("FAILED   {} ({}): {error:#}", test.name, seconds_since(start));
            }
        }
    }
    println!("\nmeasured:\n{figures}");
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}

fn seconds_since(start: Boottime) -> String {
    format!("{:.1} s", SystemClock.boottime().since(start).as_secs_f64())
}

async fn attempt(test: &Test, cluster: &Arc<Cluster>, figures: &Arc<Figures>) -> anyhow::Result<()> {
    let bench = Bench::open(test.name, cluster.clone(), figures.clone()).await?;
    let running = tokio::spawn((test.run)(bench.clone()));
    let stop = running.abort_handle();
    let result = match timeout(TEST_LIMIT, running).await {
        Ok(joined) => joined.unwrap_or_else(|panic| Err(anyhow!("{panic}"))),
        Err(_elapsed) => Err(anyhow!("not done in {TEST_LIMIT:?}")),
    };
    stop.abort();
    cluster.faults.start_api_server().await?;
    cluster.faults.heal_nodes().await?;
    if let Err(error) = &result {
        println!("{error:#}\n{}", bench.dump().await);
    }
    if result.is_err() && std::env::var_os("KEEP").is_some() {
        println!("kept: namespace {}", bench.namespace);
        return result;
    }
    let closed = bench.close().await;
    if closed.is_err() {
        println!("{}", bench.dump().await);
    }
    result.and(closed)
}

/// Another run may be going on, so its namespaces are left alone.
async fn warn_of_leftovers(cluster: &Cluster) -> anyhow::Result<()> {
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let left = namespaces.list(&ListParams::default().labels(PART_OF)).await?;
    let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    if !names.is_empty() {
        println!("left from other runs: {} (kubectl delete namespace -l {PART_OF})", names.join(", "));
    }
    Ok(())
}
