//! `make bench ONLY=scale`: the cost of held locks by their number.

use std::{fmt, time::Duration};

use anyhow::{Context as _, ensure};
use kube::ResourceExt;
use redlock_operator::api::DistributedLock;
use serde_json::json;

use crate::{
    bench::Bench,
    cluster::checkout,
    figures::{keep_rows, median},
    locks::{Lock, claim, create_all, is_held, until_all, watch_all, with},
    operators,
    runner::{Test, tests},
    suite_scale::restarts::delete_namespace,
};

pub(crate) const TESTS: &[Test] = tests![
    long self::the_memory_of_a_held_lock_is_within_the_documented_cost,
    long self::a_published_lock_costs_writes,
];

/// The row of the table with the cost of one lock in memory.
const MEMORY: &str = "memory";
const TABLE: &str = "docs/sizing.tsv";
const TRANSITIONS: [usize; 4] = [100, 1_000, 10_000, 20_000];
/// The chart's limit for a namespace. More locks are in a second namespace.
const FULL: usize = 10_000;
/// The numbers of published locks.
///
/// With this `ttl`, 10,000 published locks need 500 writes a second. That is too much for an API server on two cores.
const PUBLISHED: [usize; 2] = [100, 1_000];
const TTL: Duration = Duration::from_secs(30);
/// The number of locks that are applied one after the other while the others are held.
const PROBES: usize = 20;
const ALL_HELD: Duration = Duration::from_secs(900);
/// The limit of a grant after a change of leader.
///
/// A new leader lists all locks before it grants one.
const LEADER_LIMIT: Duration = Duration::from_secs(60);

/// Measures each number of locks, and compares the memory of one lock with docs/sizing.tsv.
pub(crate) async fn the_memory_of_a_held_lock_is_within_the_documented_cost(bench: Bench) -> anyhow::Result<()> {
    let measured = measure(&bench, "Transitions", &TRANSITIONS);
    let cells = operators::with_larger_limit(&bench.cluster, measured).await?;
    let (fixed, each) = line(&cells).context("two numbers of locks make a line")?;
    println!("         memory of the leader: {fixed:.1} MiB + {each:.1} KiB for each lock");
    if keep(&cells, Some((fixed, each)))? {
        return Ok(());
    }
    let table = std::fs::read_to_string(checkout().join(TABLE))?;
    let row = table.lines().find_map(|row| row.strip_prefix(MEMORY)).context("no row for the memory")?;
    let documented: f64 = row.split('\t').next_back().context("no cost of a lock")?.parse()?;
    ensure!(each < 1.2 * documented, "a lock takes {each:.1} KiB, and docs/sizing.md says {documented} KiB");
    Ok(())
}

/// Measures locks whose renewals are published.
pub(crate) async fn a_published_lock_costs_writes(bench: Bench) -> anyhow::Result<()> {
    let cells = measure(&bench, "Published", &PUBLISHED).await?;
    keep(&cells, None).map(drop)
}

/// With `WRITE=1` writes the cells into docs/sizing.tsv, in place of earlier ones.
///
/// Returns whether it wrote them.
fn keep(cells: &[Cell], memory: Option<(f64, f64)>) -> anyhow::Result<bool> {
    let memory = memory.map(|(fixed, each)| (1, format!("{MEMORY}\t{fixed:.1}\t{each:.1}")));
    keep_rows(TABLE, memory.into_iter().chain(cells.iter().map(|cell| (2, cell.to_string()))))
}

/// The cost of a number of held locks.
struct Cell {
    validity: &'static str,
    locks: usize,
    /// The granted locks per second, from the first creation to the last grant.
    granted: f64,
    counters: Counters,
    /// The time from the application of a lock to its grant, while the other locks are held.
    grant: Duration,
    /// The same time, for a lock that is applied when the leader's pod is deleted or its process is killed.
    restart: Duration,
    failover: Duration,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { validity, locks, granted, counters, .. } = self;
        let Counters { leader, other, cpu, writes, late } = counters;
        let [grant, restart, failover] = [self.grant, self.restart, self.failover].map(|time| time.as_millis());
        write!(
            f,
            "{validity}\t{locks}\t{granted:.0}\t{leader:.0}\t{other:.0}\t{cpu:.0}\t{writes:.1}\t{late:.2}\t{grant}\t{restart}\t{failover}"
        )
    }
}

async fn measure(bench: &Bench, validity: &'static str, numbers: &[usize]) -> anyhow::Result<Vec<Cell>> {
    let (mut cells, mut before) = (Vec::new(), 0);
    Bench::beside(bench, "sizing", async |first| {
        Bench::beside(first, "sizing-more", async |second| {
            for number in numbers {
                let many = if before < FULL { first } else { second };
                let granted = hold(many, validity, before, *number).await?;
                cells.push(cell(bench, validity, *number, granted).await?);
                before = *number;
            }
            delete_namespace(second).await
        })
        .await?;
        delete_namespace(first).await
    })
    .await?;
    Ok(cells)
}

/// Adds locks to a namespace until there are `number` in both, and returns the grants per second.
async fn hold(bench: &Bench, validity: &str, before: usize, number: usize) -> anyhow::Result<f64> {
    let many = watch_all(bench).await?;
    let began = bench.now();
    let lock = |index: usize| {
        let name = format!("many-{}", before + index);
        with(claim(&name, &name, None, TTL), json!({"validity": validity}))
    };
    create_all(&bench.api(), number - before, lock).await?;
    let expected = number - before / FULL * FULL;
    until_all(&many, expected, ALL_HELD, "held", |version| is_held(&version.object)).await?;
    Ok((number - before) as f64 / bench.now().since(began).as_secs_f64())
}

async fn cell(bench: &Bench, validity: &'static str, locks: usize, granted: f64) -> anyhow::Result<Cell> {
    let counters = counters(bench).await?;
    let mut grants = Vec::new();
    for probe in 0..PROBES {
        grants.push(grant(bench, &format!("{}-{locks}-{probe}", validity.to_lowercase()), async || Ok(())).await?);
    }
    let namespace = &bench.cluster.operator_namespace;
    let leader = operators::leader(&bench.cluster).await?.pod;
    let name = format!("{}-{locks}-restart", validity.to_lowercase());
    let restart = grant(bench, &name, async || operators::delete(&bench.cluster, &leader).await).await?;
    operators::all_available(&bench.cluster).await?;
    let leader = operators::leader(&bench.cluster).await?.pod;
    let name = format!("{}-{locks}-failover", validity.to_lowercase());
    let failover =
        grant(bench, &name, async || bench.cluster.faults.kill_container(namespace, &leader, "operator").await).await?;
    operators::all_available(&bench.cluster).await?;
    let cell = Cell { validity, locks, granted, counters, grant: median(&grants), restart, failover };
    println!("         {cell}");
    Ok(cell)
}

/// The time from the application of a lock to its grant, after an event.
async fn grant(bench: &Bench, name: &str, event: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    event().await?;
    let began = bench.now();
    let lock = Lock::create(bench, claim(name, name, None, TTL)).await?;
    let held = lock.held(LEADER_LIMIT).await?;
    bench.delete::<DistributedLock>(name).await?;
    Ok(held.at.since(began))
}

/// The metrics of both replicas over one period of renewals.
struct Counters {
    /// MiB.
    leader: f64,
    /// MiB.
    other: f64,
    /// Thousandths of a core, of both replicas.
    cpu: f64,
    /// Writes of locks per second.
    writes: f64,
    /// The percentage of renewals that began a second late.
    late: f64,
}

async fn counters(bench: &Bench) -> anyhow::Result<Counters> {
    let leader = operators::leader(&bench.cluster).await?.pod;
    let pods = operators::pods(&bench.cluster).await?;
    let other = pods.iter().map(ResourceExt::name_any).find(|pod| *pod != leader).context("there is one replica")?;
    let (began, before) = (bench.now(), [read(bench, &leader).await?, read(bench, &other).await?]);
    // The operator publishes a validity every two thirds of the ttl, and all locks began together. This time has three of these periods.
    tokio::time::sleep(2 * TTL).await;
    let (seconds, after) = (bench.now().since(began), [read(bench, &leader).await?, read(bench, &other).await?]);
    let total = |samples: &[Samples; 2], name: &str| samples.iter().map(|samples| samples.sum(name)).sum::<f64>();
    let rate = |name: &str| (total(&after, name) - total(&before, name)) / seconds.as_secs_f64();
    let renewals = rate("redlock_renewal_lateness_seconds_count");
    let in_time = rate("redlock_renewal_lateness_seconds_bucket{le=\"1.0\"}");
    let memory = after.each_ref().map(|samples| samples.sum("process_resident_memory_bytes") / 1024.0 / 1024.0);
    Ok(Counters {
        leader: memory[0],
        other: memory[1],
        cpu: rate("process_cpu_seconds_total") * 1000.0,
        writes: rate("redlock_api_writes_total"),
        late: (renewals - in_time) / renewals * 100.0,
    })
}

/// The metrics page of one replica.
struct Samples(String);

impl Samples {
    /// The sum of all series whose name begins with this.
    fn sum(&self, name: &str) -> f64 {
        let samples = self.0.lines().filter(|line| line.starts_with(name));
        samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

async fn read(bench: &Bench, pod: &str) -> anyhow::Result<Samples> {
    operators::read(&bench.cluster, pod, "metrics").await.map(Samples)
}

/// The memory of a leader as a line: MiB without locks, and KiB for each lock.
fn line(cells: &[Cell]) -> Option<(f64, f64)> {
    let points: Vec<_> = cells.iter().map(|cell| (cell.locks as f64, cell.counters.leader)).collect();
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
    (points.len() > 1).then_some((y - slope * x, slope * 1024.0))
}
