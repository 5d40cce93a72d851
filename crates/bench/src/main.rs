//! `make bench`: measures this client, a floor, rslock and lock clients in other languages.
//!
//! All use the same redis-server processes, in interleaved rounds.
//!
//! Only ratios are comparable: absolute times depend on the machine.
#![allow(clippy::unwrap_used, reason = "a program for people")]

mod allocations;
mod callers;
mod certificate;
mod floor;
mod measure;
#[path = "../../../tests/support/port.rs"]
mod port;
mod rivals;
mod row;
mod servers;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redlock_client::{Client, NotAcquired};

use callers::{CONTENDERS, Contender, TTL, contend, hand_overs, rslock, run_clients, run_floor, run_rslock};
use certificate::Certificate;
use floor::Floor;
use measure::{Measured, describe, median, now, quantile, ratio};
use rivals::Rival;
use row::{Program, Row};
use servers::Servers;
use table::Table;

const MEMBERS: usize = 5;
const ROUNDS: usize = 3;
/// Minimum time of a cell with frozen members.
///
/// Clients close connections to frozen members after two seconds, and the cell measures both states.
const FROZEN: Duration = Duration::from_secs(3);

pub(crate) async fn client_of(urls: Vec<String>, tokens: bool) -> Client {
    let builder = Client::builder(urls).admit_at_once();
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

/// Selects one kind of the measured durations.
type Durations = fn(&Measured) -> &Vec<Duration>;

/// The programs of a run.
struct Bench {
    servers: Servers,
    client: Client,
    without_token: Client,
    rslock: rslock::LockManager,
    rivals: Vec<Rival>,
    time: Duration,
    table: Table,
}

impl Bench {
    async fn new(time: Duration, is_core: bool) -> Self {
        let servers = Servers::start(MEMBERS, None).unwrap();
        let (client, without_token) = (client_of(servers.urls(), true).await, client_of(servers.urls(), false).await);
        let rslock = rslock(&servers, 0);
        let rivals = if is_core { Vec::new() } else { tokio::task::block_in_place(|| rivals::start(&servers)) };
        Self { servers, client, without_token, rslock, rivals, time, table: Table::default() }
    }

    fn name(&self, program: Program) -> &'static str {
        match program {
            Program::Floor => "floor",
            Program::Ours => "this client",
            Program::Healthy => "this client, none frozen",
            Program::Untokened => "this client without tokens",
            Program::Rslock => "rslock 0.10",
            Program::Rival(index) => self.rivals[index].name,
        }
    }

    /// Measures one cell with the first `frozen` members frozen.
    async fn cell(&mut self, program: Program, workers: usize, frozen: usize) -> Option<Measured> {
        let Self { servers, client, without_token, rslock, rivals, .. } = self;
        let frozen = if program == Program::Healthy { 0 } else { frozen };
        let time = if frozen > 0 { self.time.max(FROZEN) } else { self.time };
        let floor = Floor::connect(&servers.ports, None).unwrap();
        (0..frozen).for_each(|index| servers.freeze(index, true).unwrap());
        let measured = match program {
            Program::Floor => Ok(tokio::task::block_in_place(|| run_floor(servers, floor, workers, time)).unwrap()),
            Program::Ours | Program::Healthy => {
                Ok(run_clients(servers, std::slice::from_ref(client), workers, time).await)
            }
            Program::Untokened => Ok(run_clients(servers, std::slice::from_ref(without_token), workers, time).await),
            Program::Rslock => Ok(run_rslock(servers, rslock, workers, time).await),
            Program::Rival(index) => tokio::task::block_in_place(|| rivals[index].run(servers, workers, time)),
        };
        (0..frozen).for_each(|index| servers.freeze(index, false).unwrap());
        if frozen > 0 {
            servers.answer().unwrap();
            voting(client).await;
            voting(without_token).await;
        }
        measured.inspect_err(|error| println!("{}: {error}", self.name(program))).ok()
    }

    async fn row(&mut self, what: &str, programs: &[Program], workers: usize, frozen: usize) -> Row {
        let rivals = (0..self.rivals.len()).map(Program::Rival);
        let mut row = Row(programs.iter().copied().chain(rivals).map(|program| (program, Vec::new())).collect());
        for _ in 0..ROUNDS {
            for (program, measured) in &mut row.0 {
                measured.extend(self.cell(*program, workers, frozen).await);
            }
        }
        for (program, measured) in &row.0 {
            self.table.cell(describe(&format!("{what}, {}", self.name(*program)), measured));
        }
        let others = row.0.iter().map(|(program, _)| *program);
        let others = others.filter(|program| !matches!(program, Program::Ours | Program::Healthy | Program::Untokened));
        let against = |program| (self.name(program), row.ratio(program, Program::Ours, Measured::per_cycle));
        let against = others.map(against).collect();
        self.table.compare(what, against);
        row
    }

    async fn cycles(&mut self) {
        use Program::{Floor, Ours, Rslock, Untokened};
        let programs = [Floor, Ours, Untokened, Rslock];
        let one = self.row("sequential", &programs, 1, 0).await;
        let all = self.row("64 keys at once", &programs, 64, 0).await;
        let Self { table, .. } = self;
        let (per_cycle, rate) = (Measured::per_cycle, Measured::rate);
        table.at_most("sequential, time against the floor", one.ratio(Ours, Floor, per_cycle), 1.3);
        table.at_most("sequential, time against rslock", one.ratio(Ours, Rslock, per_cycle), 0.7);
        table.at_least("64 keys at once, rate against the floor", all.ratio(Ours, Floor, rate), 0.65);
        table.at_least("64 keys at once, rate against rslock", all.ratio(Ours, Rslock, rate), 1.7);
        table.at_most("sequential, time with tokens against without", one.ratio(Ours, Untokened, per_cycle), 1.15);
        table.at_most("64 keys at once, time with tokens against without", all.ratio(Ours, Untokened, per_cycle), 1.15);
    }

    /// A healthy cell precedes each cell with frozen members, so that the load of the machine is similar.
    async fn frozen(&mut self) {
        use Program::{Floor, Healthy, Ours, Rslock};
        for count in 1..=2 {
            let what = format!("sequential, {count} of {MEMBERS} frozen");
            let row = self.row(&what, &[Floor, Healthy, Ours, Rslock], 1, count).await;
            let operations: [(&str, Durations); 2] =
                [("acquire", |one| &one.acquires), ("release", |one| &one.releases)];
            for (what, of) in operations {
                for (name, fraction, bound) in [("p50", 0.5, 1.2), ("p99", 0.99, 1.5)] {
                    let what = format!("{what} with {count} of {MEMBERS} frozen against healthy, {name}");
                    let figure = quantile(row.of(Ours), of, fraction) / quantile(row.of(Healthy), of, fraction);
                    self.table.at_most(&what, figure, bound);
                }
            }
        }
    }

    /// Measures three clients with connections of their own, like three processes.
    ///
    /// Members get their requests in different orders.
    async fn second_rounds(&mut self) {
        let Self { servers, time, table, .. } = self;
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(client_of(servers.urls(), true).await);
        }
        for (what, workers) in [("one lock at a time each", 3), ("24 keys", 24)] {
            let mut raised = Vec::new();
            for _ in 0..ROUNDS {
                let measured = run_clients(servers, &clients, workers, *time).await;
                // Each cycle reads the key on all members to release it. A second round reads it twice on each of a
                // majority.
                raised.push((measured.key_reads - MEMBERS as f64).max(0.0) / (2 * (MEMBERS / 2 + 1)) as f64 * 100.0);
            }
            let what = format!("three clients, {what}: acquisitions with a second round, %");
            table.at_most(&what, median(raised), 5.0);
        }
        for client in clients {
            let _ = client.close(Duration::from_secs(5)).await;
        }
    }

    async fn contention(&mut self) {
        let Self { client, servers, time, table, .. } = self;
        let mut clients = Vec::new();
        for _ in 0..CONTENDERS {
            clients.push(client_of(servers.urls(), true).await);
        }
        let ways = [
            Contender::Alone(Arc::default()),
            Contender::Client(client.clone()),
            Contender::Rslock(rslock(servers, 1000)),
            Contender::Clients(clients.clone()),
        ];
        let mut rates = [(); 4].map(|()| Vec::new());
        let mut spreads = rates.clone();
        for _ in 0..ROUNDS {
            for (index, how) in ways.iter().enumerate() {
                let (rate, spread) = contend(how, *time).await;
                rates[index].push(rate);
                spreads[index].push(spread);
            }
        }
        let ratio = median(rates[1].iter().zip(&rates[0]).map(|(ours, alone)| ours / alone).collect());
        let [alone, ours, rslock, apart] = rates.map(median);
        let [_, spread, theirs, apart_spread] = spreads.map(median);
        let took = hand_overs([&clients[0], &clients[1]], 21).await;
        for client in clients {
            let _ = client.close(Duration::from_secs(5)).await;
        }
        table.cell(format!(
            "8 contenders, 5 ms hold: {ours:.0}/s, without a lock {alone:.0}/s, rslock {rslock:.0}/s with most against least {theirs:.1}"
        ));
        table.cell(format!(
            "8 contenders, each with a client of its own: {apart:.0}/s, most against least {apart_spread:.1}"
        ));
        let took: Vec<_> = took.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        let (worst, took) = (took.iter().copied().fold(0.0, f64::max), median(took));
        table.cell(format!("two clients, held for 400 ms: from release to grant {took:.2} ms, worst {worst:.2} ms"));
        table.at_least("8 contenders, rate against the same program without a lock", ratio, 0.9);
        table.at_most("8 contenders, most against least", spread, 1.2);
        table.at_least("8 contenders with a client each, rate against the same without a lock", apart / alone, 0.9);
        table.at_most("8 contenders with a client each, most against least", apart_spread, 2.0);
        table.at_most("two clients, held for 400 ms: from release to grant, ms", took, 5.0);
    }

    /// Measures with servers that speak TLS.
    async fn tls(&mut self) {
        let certificate = Certificate::new().unwrap();
        let servers = Servers::start(MEMBERS, Some(&certificate)).unwrap();
        let config = certificate.trusting().unwrap();
        let client =
            Client::builder(servers.tls_urls()).admit_at_once().tls(Arc::clone(&config)).connect().await.unwrap();
        voting(&client).await;
        let (mut floor, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let connected = Floor::connect(&servers.tls_ports, Some(&config)).unwrap();
            floor.push(tokio::task::block_in_place(|| run_floor(&servers, connected, 1, self.time)).unwrap());
            ours.push(run_clients(&servers, std::slice::from_ref(&client), 1, self.time).await);
        }
        let table = &mut self.table;
        table.cell(describe("sequential over TLS, floor over rustls", &floor));
        table.cell(describe("sequential over TLS, this client", &ours));
        let figure = ratio(&ours, &floor, Measured::per_cycle);
        table.at_most("sequential over TLS, time against a floor over rustls", figure, 1.3);
        let _ = client.close(Duration::from_secs(5)).await;
    }

    fn allocations(&mut self) {
        let (allocations, bytes) = tokio::task::block_in_place(|| allocations::per_cycle(&self.servers));
        self.table.cell(format!("this client: {allocations:.1} allocations of {bytes:.0} bytes in all per cycle"));
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
        let refused = client.lock("late").ttl(TTL).try_acquire().await;
        assert!(matches!(refused, Err(NotAcquired::Closed)), "{refused:?}");
    }
}

/// Measures all rows, or some of them.
///
/// `ONLY=core` leaves out the clients in other languages. `ONLY=cycles` measures only the first two rows, and
/// `ONLY=contention` only the rows of contenders.
async fn run(time: Duration, only: &str) -> Table {
    let mut bench = Bench::new(time, ["core", "cycles", "contention"].contains(&only)).await;
    if only == "contention" {
        bench.contention().await;
        return bench.table;
    }
    bench.cycles().await;
    if only == "cycles" {
        bench.allocations();
        return bench.table;
    }
    bench.contention().await;
    bench.second_rounds().await;
    bench.tls().await;
    bench.frozen().await;
    bench.allocations();
    // Keys of the other programs have other names, so this counts only keys of this client.
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
    let only = std::env::var("ONLY").unwrap_or_default();
    let task = runtime.spawn(async move { run(time, &only).await });
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
