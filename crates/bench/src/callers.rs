//! Programs that lock as fast as they can: the floor, this client, and rslock.
//!
//! Callers are spawned tasks, also those of the rival.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlock_client::Boottime;
use redlock_client::Client;
use tokio::time::timeout;

use crate::floor::Floor;
use crate::measure::{Measured, Meter, now};
use crate::servers::Servers;

pub(crate) const TTL: Duration = Duration::from_secs(10);
/// The hold of the contention row.
const HOLD: Duration = Duration::from_millis(5);
/// Duration of a hold in which waiting callers reach their lowest polling rate.
const LONG_HOLD: Duration = Duration::from_millis(400);
pub(crate) const CONTENDERS: usize = 8;
/// Maximum time of one cell.
pub(crate) const LONGEST: Duration = Duration::from_secs(10);

pub(crate) fn run_floor(servers: &Servers, mut floor: Floor, workers: usize, time: Duration) -> io::Result<Measured> {
    let meter = Meter::start(servers);
    let until = now() + time;
    let cycles = floor.run(workers, || now() >= until)?;
    Ok(meter.stop(Measured { cycles, ..Measured::default() }))
}

/// Runs cycles of one caller of this client, until the time has passed.
async fn cycles(client: Client, key: String, until: Boottime) -> Measured {
    let mut measured = Measured::default();
    while now() < until {
        let started = now();
        let Ok(guard) = client.lock(key.as_str()).ttl(TTL).try_acquire().await else {
            measured.failed += 1;
            continue;
        };
        let held = now();
        let _ = guard.release().await;
        measured.acquires.push(held.since(started));
        measured.releases.push(now().since(held));
        measured.cycles += 1;
    }
    measured
}

/// Runs cycles of one caller of rslock, which tries once.
///
/// rslock waits for all members, also for those that do not answer.
async fn rslock_cycles(manager: rslock::LockManager, key: String, until: Boottime) -> Measured {
    let mut measured = Measured::default();
    let end = now() + LONGEST;
    while now() < until {
        let started = now();
        let Ok(answer) = timeout(end.since(now()), manager.lock(key.as_str(), TTL)).await else {
            measured.failed += 1;
            break;
        };
        let Ok(lock) = answer else {
            measured.failed += 1;
            continue;
        };
        let held = now();
        if timeout(end.since(now()), manager.unlock(&lock)).await.is_err() {
            measured.failed += 1;
            break;
        }
        measured.acquires.push(held.since(started));
        measured.releases.push(now().since(held));
        measured.cycles += 1;
    }
    measured
}

/// Runs each caller as a task, and merges their measurements.
async fn spawned<F: Future<Output = Measured> + Send + 'static>(
    servers: &Servers,
    callers: impl Iterator<Item = F>,
) -> Measured {
    let meter = Meter::start(servers);
    let tasks: Vec<_> = callers.map(tokio::spawn).collect();
    let mut all = Measured::default();
    for task in tasks {
        all.add(task.await.unwrap());
    }
    meter.stop(all)
}

/// Runs `workers` callers, shared among the clients.
pub(crate) async fn run_clients(servers: &Servers, clients: &[Client], workers: usize, time: Duration) -> Measured {
    let until = now() + time;
    let caller = |n: usize| cycles(clients[n % clients.len()].clone(), format!("key{n}"), until);
    spawned(servers, (0..workers).map(caller)).await
}

pub(crate) async fn run_rslock(
    servers: &Servers,
    manager: &rslock::LockManager,
    workers: usize,
    time: Duration,
) -> Measured {
    let until = now() + time;
    spawned(servers, (0..workers).map(|n| rslock_cycles(manager.clone(), format!("rslock{n}"), until))).await
}

pub(crate) fn rslock(servers: &Servers, retries: u32) -> rslock::LockManager {
    let mut manager = rslock::LockManager::new(servers.urls());
    manager.set_retry(retries, HOLD);
    manager
}

/// Contenders for one key, all of one kind.
#[derive(Clone)]
pub(crate) enum Contender {
    /// No lock: the contenders take turns with a mutex of this process.
    ///
    /// Hold times are measured, not assumed.
    Alone(Arc<tokio::sync::Mutex<()>>),
    Client(Client),
    /// One client for each contender, as in separate processes.
    Clients(Vec<Client>),
    Rslock(rslock::LockManager),
}

impl Contender {
    /// Holds the key once, as the contender with this number.
    ///
    /// Returns true if it got the key.
    async fn hold(&self, number: usize) -> bool {
        let client = match self {
            Self::Client(client) => Some(client),
            Self::Clients(clients) => clients.get(number),
            Self::Alone(_) | Self::Rslock(_) => None,
        };
        match self {
            Self::Alone(turn) => {
                let _held = turn.lock().await;
                tokio::time::sleep(HOLD).await;
            }
            Self::Client(_) | Self::Clients(_) => {
                let Some(client) = client else { return false };
                let Ok(guard) = client.lock("contended").ttl(TTL).wait(TTL).acquire().await else { return false };
                tokio::time::sleep(HOLD).await;
                let _ = guard.release().await;
            }
            Self::Rslock(manager) => {
                let Ok(lock) = manager.lock("rslock-contended", TTL).await else { return false };
                tokio::time::sleep(HOLD).await;
                manager.unlock(&lock).await;
            }
        }
        true
    }
}

/// Measures the time from each release of one client to the grant of another waiting client.
pub(crate) async fn hand_overs(clients: [&Client; 2], count: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    let mut holder = clients[0].lock("handed over").ttl(TTL).wait(TTL).acquire().await.unwrap();
    for turn in 1..=count {
        let next = clients[turn % 2].clone();
        let waiter = tokio::spawn(async move {
            let guard = next.lock("handed over").ttl(TTL).wait(TTL).acquire().await.unwrap();
            (guard, now())
        });
        tokio::time::sleep(LONG_HOLD).await;
        let released = now();
        let _ = holder.release().await;
        let (guard, granted) = waiter.await.unwrap();
        took.push(granted.since(released));
        holder = guard;
    }
    let _ = holder.release().await;
    took
}

/// Measures eight contenders for one key.
///
/// Returns the rate of holds, and the ratio of the most successful contender to the least successful one.
pub(crate) async fn contend(how: &Contender, time: Duration) -> (f64, f64) {
    let until = now() + time;
    let counts: Vec<_> = (0..CONTENDERS).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let started = now();
    let contender = |(number, count): (usize, &Arc<AtomicU64>)| {
        let (how, count) = (how.clone(), Arc::clone(count));
        tokio::spawn(async move {
            while now() < until {
                if how.hold(number).await {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    for task in counts.iter().enumerate().map(contender).collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let counts: Vec<_> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let all: u64 = counts.iter().sum();
    let (most, least) = (counts.iter().max().copied().unwrap_or(0), counts.iter().min().copied().unwrap_or(0));
    (all as f64 / now().since(started).as_secs_f64(), most as f64 / least.max(1) as f64)
}
