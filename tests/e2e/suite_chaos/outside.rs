//! A Redlock client of our own without any knowledge of the operator.
//!
//! It is a process on a node's network, which uses `SET NX PX` and compare-and-delete on every member. It prints its
//! beliefs, and ends with its input.
//!
//! Input, a line each: [`Orders`], then lists of the members' URLs, of which the last one is in force. Output:
//! [`Line`]s.

use std::{io::Write as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use redis::{AsyncConnectionConfig, Script, aio::MultiplexedConnection};
use redlock_operator::{
    redlock::{Drift, validity},
    time::{Clock as _, SystemClock},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    sync::watch,
    time::sleep,
};

use crate::{rng::Rng, spans::millis};

/// The argument that makes this program such a client.
pub(crate) const ARGUMENT: &str = "redlock-client";

const CONNECT_LIMIT: Duration = Duration::from_millis(300);
const ANSWER_LIMIT: Duration = Duration::from_millis(60);
/// The pause before the next attempt on an unreachable member.
const AWAY: Duration = Duration::from_millis(300);
const DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// The task of a client.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) name: String,
    /// Keys, and the mean pause in milliseconds after a hold on them.
    pub(crate) keys: Vec<(String, u64)>,
    pub(crate) seed: u64,
    /// The range of times to live, in milliseconds.
    pub(crate) ttl: (u64, u64),
}

/// A line of a client's output.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) enum Line {
    /// Its process ID in the PID namespace of its node.
    Started {
        pid: u32,
    },
    Held {
        who: String,
        hold: u64,
        key: String,
        from: i64,
        until: i64,
        ttl: i64,
    },
    Released {
        who: String,
        hold: u64,
        at: i64,
    },
}

/// The main function of the process.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let orders: Orders = serde_json::from_str(&lines.next_line().await?.context("no orders")?)?;
    print(&Line::Started { pid: std::process::id() });
    let (urls, members) = watch::channel(Vec::new());
    let mut rng = Rng::new(orders.seed);
    for (key, pause) in &orders.keys {
        let worker = Worker {
            who: format!("{} for {key}", orders.name),
            key: key.clone(),
            pause: *pause,
            ttl: orders.ttl,
            rng: rng.fork(),
            members: Members { urls: members.clone(), connections: Vec::new() },
            holds: 0,
        };
        tokio::spawn(worker.work());
    }
    while let Some(line) = lines.next_line().await? {
        urls.send_replace(serde_json::from_str(&line)?);
    }
    Ok(())
}

struct Worker {
    who: String,
    key: String,
    pause: u64,
    ttl: (u64, u64),
    rng: Rng,
    members: Members,
    holds: u64,
}

impl Worker {
    async fn work(mut self) {
        loop {
            let held = self.attempt().await;
            let pause = if held { self.rng.millis(0, 2 * self.pause) } else { self.rng.millis(40, 200) };
            sleep(pause).await;
        }
    }

    async fn attempt(&mut self) -> bool {
        let ttl = self.rng.millis(self.ttl.0, self.ttl.1);
        let value: Arc<str> = format!("{:016x}{:016x}", self.rng.next(), self.rng.next()).into();
        // The wall clock is read first, so that a pause between the two readings makes the validity end earlier.
        let (wall, started) = (SystemClock.wall().0, SystemClock.boottime());
        let votes = self.members.set(&self.key, &value, ttl).await;
        let left = validity(ttl, SystemClock.boottime().since(started), Drift::default());
        let (from, until) = (SystemClock.wall().0, wall + millis(ttl) - millis(Drift::default().allowance(ttl)));
        let held = votes > self.members.connections.len() / 2 && left.is_some() && from < until;
        if held {
            self.holds += 1;
            let (who, hold, key) = (self.who.clone(), self.holds, self.key.clone());
            print(&Line::Held { who, hold, key, from, until, ttl: millis(ttl) });
            // Most holds are short. Some last until the validity has nearly ended, and some holders end without a
            // release.
            let whole = u64::try_from(until - from).unwrap_or(0);
            let (lasts, releases) = match self.rng.below(100) {
                0..96 => (self.rng.millis(0, 15), true),
                96..99 => (self.rng.millis(0, whole), true),
                _ => (self.rng.millis(whole, whole), false),
            };
            sleep(lasts).await;
            if !releases {
                return true;
            }
            print(&Line::Released { who: self.who.clone(), hold: self.holds, at: SystemClock.wall().0 });
        }
        self.members.delete(&self.key, &value).await;
        held
    }
}

fn print(line: &Line) {
    let mut out = std::io::stdout().lock();
    // An error means that the reader has ended. The end of the input follows.
    let _unheard = serde_json::to_writer(&mut out, line).map_err(std::io::Error::from).and_then(|()| writeln!(out));
}

/// One connection to each member.
struct Members {
    urls: watch::Receiver<Vec<String>>,
    connections: Vec<Connection>,
}

impl Members {
    fn refresh(&mut self) {
        let urls = self.urls.borrow_and_update();
        self.connections.resize_with(urls.len(), Connection::default);
        for (connection, url) in self.connections.iter_mut().zip(&*urls) {
            if connection.url != *url {
                *connection = Connection { url: url.clone(), ..Connection::default() };
            }
        }
    }

    async fn set(&mut self, key: &str, value: &str, ttl: Duration) -> usize {
        self.refresh();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value).arg("NX").arg("PX").arg(millis(ttl));
        let asked = self.connections.iter_mut().map(async |member| {
            let mut connection = member.open().await?;
            let answer: Result<Option<String>, _> = set.query_async(&mut connection).await;
            member.keep_unless_broken(answer)?
        });
        let answers = futures::future::join_all(asked).await;
        answers.into_iter().filter(|answer| answer.as_deref() == Some("OK")).count()
    }

    async fn delete(&mut self, key: &str, value: &str) {
        let script = Script::new(DELETE);
        let asked = self.connections.iter_mut().map(async |member| {
            let mut connection = member.open().await?;
            let answer: Result<i64, _> = script.key(key).arg(value).invoke_async(&mut connection).await;
            member.keep_unless_broken(answer)
        });
        futures::future::join_all(asked).await;
    }
}

#[derive(Default)]
struct Connection {
    url: String,
    open: Option<MultiplexedConnection>,
    away_since: Option<redlock_operator::time::Boottime>,
}

impl Connection {
    async fn open(&mut self) -> Option<MultiplexedConnection> {
        if self.open.is_none() {
            if self.away_since.is_some_and(|since| SystemClock.boottime().since(since) < AWAY) {
                return None;
            }
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(CONNECT_LIMIT))
                .set_response_timeout(Some(ANSWER_LIMIT));
            let client = redis::Client::open(self.url.as_str()).ok()?;
            self.open = client.get_multiplexed_async_connection_with_config(&config).await.ok();
            self.away_since = self.open.is_none().then(|| SystemClock.boottime());
        }
        self.open.clone()
    }

    /// Keeps the connection of a member that refuses.
    ///
    /// A member that does not answer gets another connection next time.
    fn keep_unless_broken<T>(&mut self, answer: Result<T, redis::RedisError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
                    self.open = None;
                    self.away_since = Some(SystemClock.boottime());
                }
                None
            }
        }
    }
}
