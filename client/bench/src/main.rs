//! `make bench`: this client, a floor and rslock on the same redis-server processes, in interleaved rounds. Ratios count: absolute
//! times are those of the machine.
#![allow(clippy::unwrap_used, reason = "a program for people")]

mod callers;
mod floor;
mod measure;
mod servers;
mod table;

use callers::{TTL, contend, rslock, run_clients, run_floor, run_rslock};
use measure::{Measured, describe, now, quantile, ratio};
use redlock_client::{Client, NotAcquired};
use servers::Servers;
use std::path::Path;
use std::time::Duration;
use table::Table;

const MEMBERS: usize = 5;
const ROUNDS: usize = 3;

async fn client(servers: &Servers, tokens: bool) -> Client {
    let builder = Client::admit_at_once(servers.urls());
    let builder = if tokens { builder } else { builder.without_token() };
    let client = builder.connect().await.unwrap();
    voting(&client).await;
    client
}

async fn voting(client: &Client) {
    for _ in 0..500 {
        if client.voters() == MEMBERS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// One kind of durations among those that were measured.
type Durations = fn(&Measured) -> &Vec<Duration>;

/// The programs of a run.
struct Bench {
    servers: Servers,
    client: Client,
    without_token: Client,
    rslock: rslock::LockManager,
    time: Duration,
    table: Table,
}

/// One row, round by round: floor, this client, the same without tokens, and rslock.
struct Row {
    floor: Vec<Measured>,
    ours: Vec<Measured>,
    untokened: Vec<Measured>,
    rslock: Vec<Measured>,
}

impl Bench {
    async fn new(time: Duration) -> Self {
        let servers = Servers::start(MEMBERS).unwrap();
        let (ours, without_token) = (client(&servers, true).await, client(&servers, false).await);
        let rslock = rslock(&servers);
        Self { servers, client: ours, without_token, rslock, time, table: Table::default() }
    }

    async fn row(&mut self, what: &str, workers: usize) -> Row {
        let Self { servers, client, without_token, rslock, time, table } = self;
        let mut row = Row { floor: Vec::new(), ours: Vec::new(), untokened: Vec::new(), rslock: Vec::new() };
        for _ in 0..ROUNDS {
            row.floor.push(tokio::task::block_in_place(|| run_floor(servers, workers, *time)).unwrap());
            row.ours.push(run_clients(servers, std::slice::from_ref(client), workers, *time).await);
            row.untokened.push(run_clients(servers, std::slice::from_ref(without_token), workers, *time).await);
            row.rslock.push(run_rslock(servers, rslock, workers, *time).await);
        }
        table.cell(describe(&format!("{what}, floor"), &row.floor));
        table.cell(describe(&format!("{what}, this client"), &row.ours));
        table.cell(describe(&format!("{what}, this client without tokens"), &row.untokened));
        table.cell(describe(&format!("{what}, rslock 0.10"), &row.rslock));
        row
    }

    async fn cycles(&mut self) -> Row {
        let one = self.row("sequential", 1).await;
        let all = self.row("64 keys at once", 64).await;
        let Self { table, .. } = self;
        table.at_most("sequential, time against the floor", ratio(&one.ours, &one.floor, Measured::per_cycle), 1.3);
        table.at_most("sequential, time against rslock", ratio(&one.ours, &one.rslock, Measured::per_cycle), 0.7);
        table.at_least("64 keys at once, rate against the floor", ratio(&all.ours, &all.floor, Measured::rate), 0.65);
        table.at_least("64 keys at once, rate against rslock", ratio(&all.ours, &all.rslock, Measured::rate), 1.7);
        let tokened = |row: &Row| ratio(&row.ours, &row.untokened, Measured::per_cycle);
        table.at_most("sequential, time with tokens against without", tokened(&one), 1.15);
        table.at_most("64 keys at once, time with tokens against without", tokened(&all), 1.15);
        one
    }

    /// Healthy rounds lie between those with frozen members, so that the machine is alike.
    async fn frozen(&mut self) {
        let Self { servers, client, time, table, .. } = self;
        let clients = std::slice::from_ref(client);
        for count in 1..=2 {
            let (mut healthy, mut frozen) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                healthy.push(run_clients(servers, clients, 1, *time).await);
                (0..count).for_each(|index| servers.freeze(index, true).unwrap());
                // Connections to them are given up after two seconds; both states are measured.
                frozen.push(run_clients(servers, clients, 1, (*time).max(Duration::from_secs(3))).await);
                (0..count).for_each(|index| servers.freeze(index, false).unwrap());
                voting(client).await;
            }
            table.cell(describe(&format!("sequential, {count} of {MEMBERS} frozen, this client"), &frozen));
            let operations: [(&str, Durations); 2] =
                [("acquire", |one| &one.acquires), ("release", |one| &one.releases)];
            for (what, of) in operations {
                for (name, part, bound) in [("p50", 0.5, 1.2), ("p99", 0.99, 1.5)] {
                    let what = format!("{what} with {count} of {MEMBERS} frozen against healthy, {name}");
                    table.at_most(&what, quantile(&frozen, of, part) / quantile(&healthy, of, part), bound);
                }
            }
        }
    }

    /// Three clients, each with connections of its own, as three processes are: members see their requests in different orders.
    async fn second_rounds(&mut self) {
        let Self { servers, time, table, .. } = self;
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(client(servers, true).await);
        }
        for (what, workers) in [("one lock at a time each", 3), ("24 keys", 24)] {
            let measured = run_clients(servers, &clients, workers, *time).await;
            // Each cycle releases by a script on all members; a second round raises a majority by one.
            let raised = (measured.scripts - MEMBERS as f64).max(0.0) / (MEMBERS / 2 + 1) as f64;
            table.at_most(&format!("three clients, {what}: acquisitions with a second round, %"), raised * 100.0, 5.0);
        }
        for client in clients {
            let _ = client.close(Duration::from_secs(5)).await;
        }
    }

    async fn contention(&mut self) {
        let Self { client, time, table, .. } = self;
        let (alone, _) = contend(None, *time).await;
        let (together, spread) = contend(Some(client), *time).await;
        table.cell(format!("8 contenders, 5 ms hold: {together:.0}/s, without a lock {alone:.0}/s"));
        table.at_least("8 contenders, rate against the same program without a lock", together / alone, 0.9);
        table.at_most("8 contenders, most against least", spread, 1.2);
    }

    async fn drain(&mut self) {
        let Self { servers, client, without_token, table, .. } = self;
        for client in [&*client, without_token] {
            if let Err(error) = client.close(Duration::from_secs(10)).await {
                println!("close: {error}");
            }
        }
        let left = servers.keys_left().unwrap();
        table.at_most("keys left after a drain and after SIGCONT", left as f64, 0.0);
        let refused = client.try_acquire("late", TTL).await;
        assert!(matches!(refused, Err(NotAcquired::Closed)), "{refused:?}");
    }
}

async fn run(time: Duration) -> Table {
    let mut bench = Bench::new(time).await;
    let _ = bench.cycles().await;
    bench.contention().await;
    bench.second_rounds().await;
    bench.frozen().await;
    // What the floor and rslock may have left runs out, so that only this client's keys are counted.
    bench.drain().await;
    bench.table
}

fn machine(time: Duration) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1)).unwrap_or("unknown CPU");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("unknown");
    format!(
        "{MEMBERS} processes of {} on loopback; {}, {cores} cores, load {load} at the end of the run; {ROUNDS} rounds of {:.0} s for each cell.",
        servers::version(),
        model.trim(),
        time.as_secs_f64()
    )
}

fn main() {
    let seconds = std::env::var("SECONDS_PER_CELL").ok().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let time = Duration::from_secs_f64(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let began = now();
    let task = runtime.spawn(run(time));
    let table = runtime.block_on(task).unwrap();
    table.print();
    println!("{} s", now().since(began).as_secs());
    if std::env::var("WRITE").is_ok_and(|write| write == "1") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance.md");
        table.write(&page, &machine(time)).unwrap();
    }
    println!("{} passed, {} failed", table.passed, table.failed);
    if table.failed > 0 {
        std::process::exit(1);
    }
}
