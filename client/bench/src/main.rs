//! `make bench`: this client against the floor, on the same redis-server processes, in interleaved rounds. Ratios count: absolute
//! times are those of the machine.
#![allow(clippy::unwrap_used, reason = "a program for people")]

mod floor;
mod servers;

use floor::Floor;
use redlock_client::time::{Boottime, Clock, SystemClock};
use redlock_client::{Client, NotAcquired};
use servers::Servers;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MEMBERS: usize = 5;
const ROUNDS: usize = 3;
const TTL: Duration = Duration::from_secs(10);
/// The hold of the contention row.
const HOLD: Duration = Duration::from_millis(5);

/// How many cycles in how long, and how long single operations took.
#[derive(Clone, Default)]
struct Measured {
    cycles: u64,
    elapsed: Duration,
    acquires: Vec<Duration>,
    releases: Vec<Duration>,
    cpu_client: f64,
    cpu_servers: f64,
}

impl Measured {
    fn per_cycle(&self) -> f64 {
        self.elapsed.as_secs_f64() * 1e6 / self.cycles.max(1) as f64
    }

    fn rate(&self) -> f64 {
        self.cycles as f64 / self.elapsed.as_secs_f64()
    }
}

fn now() -> Boottime {
    SystemClock.boottime()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn quantile(values: &[Duration], part: f64) -> Duration {
    let mut values = values.to_vec();
    values.sort_unstable();
    let index = ((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or_default()
}

struct Meter<'a> {
    servers: &'a Servers,
    started: Boottime,
    own: u64,
    theirs: u64,
}

impl<'a> Meter<'a> {
    fn start(servers: &'a Servers) -> Self {
        Self { servers, started: now(), own: servers::cpu_ticks("self"), theirs: servers.cpu_ticks() }
    }

    fn stop(self, mut measured: Measured) -> Measured {
        measured.elapsed = now().since(self.started);
        // A tick is a hundredth of a second.
        let per_cycle = |ticks: u64| ticks as f64 * 10_000.0 / measured.cycles.max(1) as f64;
        let (client, servers) = (servers::cpu_ticks("self") - self.own, self.servers.cpu_ticks() - self.theirs);
        (measured.cpu_client, measured.cpu_servers) = (per_cycle(client), per_cycle(servers));
        measured
    }
}

fn run_floor(servers: &Servers, workers: usize, time: Duration) -> io::Result<Measured> {
    let mut floor = Floor::connect(&servers.ports)?;
    let meter = Meter::start(servers);
    let until = now() + time;
    let cycles = floor.run(workers, || now() >= until)?;
    Ok(meter.stop(Measured { cycles, ..Measured::default() }))
}

/// Cycles of one caller, until the time has passed.
async fn cycles(client: Client, key: String, until: Boottime) -> Measured {
    let mut measured = Measured::default();
    while now() < until {
        let started = now();
        match client.try_acquire(key.as_str(), TTL).await {
            Ok(guard) => {
                let held = now();
                let _ = guard.release().await;
                measured.acquires.push(held.since(started));
                measured.releases.push(now().since(held));
                measured.cycles += 1;
            }
            Err(error) => eprintln!("not acquired: {error}: {error:?}"),
        }
    }
    measured
}

async fn run_client(servers: &Servers, client: &Client, workers: usize, time: Duration) -> Measured {
    let meter = Meter::start(servers);
    let until = now() + time;
    let tasks: Vec<_> = (0..workers).map(|n| tokio::spawn(cycles(client.clone(), format!("key{n}"), until))).collect();
    let mut all = Measured::default();
    for task in tasks {
        let one = task.await.unwrap();
        all.cycles += one.cycles;
        all.acquires.extend(one.acquires);
        all.releases.extend(one.releases);
    }
    meter.stop(all)
}

/// How often eight contenders for one key get it, per second, and the most successful against the least.
async fn contend(client: Option<&Client>, time: Duration) -> (f64, f64) {
    let until = now() + time;
    let one_at_a_time = Arc::new(tokio::sync::Mutex::new(()));
    let counts: Vec<_> = (0..8).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let started = now();
    let tasks: Vec<_> = counts
        .iter()
        .map(|count| {
            let (client, count, alone) = (client.cloned(), Arc::clone(count), Arc::clone(&one_at_a_time));
            tokio::spawn(async move {
                while now() < until {
                    if let Some(client) = &client {
                        let Ok(guard) = client.acquire("contended", TTL, TTL).await else { continue };
                        tokio::time::sleep(HOLD).await;
                        let _ = guard.release().await;
                    } else {
                        let _held = alone.lock().await;
                        tokio::time::sleep(HOLD).await;
                    }
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let counts: Vec<_> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let all: u64 = counts.iter().sum();
    let (most, least) = (counts.iter().max().copied().unwrap_or(0), counts.iter().min().copied().unwrap_or(0));
    (all as f64 / now().since(started).as_secs_f64(), most as f64 / least.max(1) as f64)
}

async fn client(servers: &Servers, tokens: bool) -> Client {
    let builder = Client::admit_at_once(servers.urls());
    let builder = if tokens { builder } else { builder.without_token() };
    let client = builder.connect().await.unwrap();
    for _ in 0..500 {
        if client.voters() == MEMBERS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client
}

/// One line of the table: what, the figure, the bound, and whether it holds.
struct Verdicts {
    passed: usize,
    failed: usize,
}

impl Verdicts {
    fn at_most(&mut self, what: &str, figure: f64, bound: f64) {
        self.judge(what, figure, "at most", bound, figure <= bound);
    }

    fn at_least(&mut self, what: &str, figure: f64, bound: f64) {
        self.judge(what, figure, "at least", bound, figure >= bound);
    }

    fn judge(&mut self, what: &str, figure: f64, relation: &str, bound: f64, holds: bool) {
        let verdict = if holds { "passed" } else { "FAILED" };
        println!("| {what} | {figure:.2} | {relation} {bound} | {verdict} |");
        if holds { self.passed += 1 } else { self.failed += 1 }
    }
}

/// Floor and client in turn.
async fn interleaved(
    servers: &Servers,
    client: &Client,
    workers: usize,
    time: Duration,
) -> (Vec<Measured>, Vec<Measured>) {
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(tokio::task::block_in_place(|| run_floor(servers, workers, time)).unwrap());
        ours.push(run_client(servers, client, workers, time).await);
    }
    (floors, ours)
}

fn per_cycle(measured: &[Measured]) -> f64 {
    median(measured.iter().map(Measured::per_cycle).collect())
}

fn rate(measured: &[Measured]) -> f64 {
    median(measured.iter().map(Measured::rate).collect())
}

fn describe(what: &str, measured: &[Measured]) {
    let cpu = |of: fn(&Measured) -> f64| median(measured.iter().map(of).collect());
    println!(
        "{what}: {:.0} us per cycle, {:.0} cycles/s, CPU per cycle: client {:.0} us, servers {:.0} us",
        per_cycle(measured),
        rate(measured),
        cpu(|one| one.cpu_client),
        cpu(|one| one.cpu_servers)
    );
}

fn all(measured: &[Measured], of: fn(&Measured) -> &Vec<Duration>) -> Vec<Duration> {
    measured.iter().flat_map(|one| of(one).iter().copied()).collect()
}

async fn run(time: Duration) -> Verdicts {
    let servers = Servers::start(MEMBERS).unwrap();
    let client = client(&servers, true).await;
    let plain = self::client(&servers, false).await;
    let mut verdicts = Verdicts { passed: 0, failed: 0 };

    let (floor, ours) = interleaved(&servers, &client, 1, time).await;
    describe("sequential, floor", &floor);
    describe("sequential, ours", &ours);
    let (floor_64, ours_64) = interleaved(&servers, &client, 64, time).await;
    describe("64 keys, floor", &floor_64);
    describe("64 keys, ours", &ours_64);
    let (_, untokened) = interleaved(&servers, &plain, 1, time).await;
    describe("sequential, without token", &untokened);

    for index in 0..2 {
        servers.freeze(index, true).unwrap();
        // The links to it are given up after two seconds; both states are measured.
        let mut measured = Vec::new();
        for _ in 0..ROUNDS {
            measured.push(run_client(&servers, &client, 1, time).await);
        }
        describe(&format!("sequential, {} frozen", index + 1), &measured);
        let name = |what: &str, p: &str| format!("{what} with {} of 5 frozen against healthy, {p}", index + 1);
        println!("| what | figure | bound | verdict |\n|---|---|---|---|");
        for (what, of) in
            [("acquire", (|one| &one.acquires) as fn(&Measured) -> &Vec<Duration>), ("release", |one| &one.releases)]
        {
            let ratio = |part| {
                quantile(&all(&measured, of), part).as_secs_f64() / quantile(&all(&ours, of), part).as_secs_f64()
            };
            verdicts.at_most(&name(what, "p50"), ratio(0.5), 1.2);
            verdicts.at_most(&name(what, "p99"), ratio(0.99), 1.5);
        }
    }
    for index in 0..2 {
        servers.freeze(index, false).unwrap();
    }
    let (alone, _) = contend(None, time).await;
    let (together, spread) = contend(Some(&client), time).await;
    println!("8 contenders, 5 ms hold: {together:.0}/s, without a lock {alone:.0}/s");
    println!("| what | figure | bound | verdict |\n|---|---|---|---|");
    verdicts.at_most("sequential acquire + release against the floor", per_cycle(&ours) / per_cycle(&floor), 1.3);
    verdicts.at_least("64 keys at once, rate against the floor", rate(&ours_64) / rate(&floor_64), 0.65);
    verdicts.at_most("with the token against without", per_cycle(&ours) / per_cycle(&untokened), 1.15);
    verdicts.at_least("8 contenders, rate against no lock", together / alone, 0.9);
    verdicts.at_most("8 contenders, most against least", spread, 1.2);
    let drained = client.close(Duration::from_secs(5)).await;
    if let Err(error) = drained {
        println!("close: {error}");
    }
    verdicts.at_most("keys left after drain and after SIGCONT", servers.keys_left().unwrap() as f64, 0.0);
    let refused = client.try_acquire("late", TTL).await;
    assert!(matches!(refused, Err(NotAcquired::Closed)), "{refused:?}");
    verdicts
}

fn main() {
    let seconds = std::env::var("SECONDS_PER_CELL").ok().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let task = runtime.spawn(run(Duration::from_secs_f64(seconds)));
    let verdicts = runtime.block_on(task).unwrap();
    println!("\n{} passed, {} failed", verdicts.passed, verdicts.failed);
    if verdicts.failed > 0 {
        std::process::exit(1);
    }
}
