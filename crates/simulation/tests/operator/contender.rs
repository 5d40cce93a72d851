//! A Redlock client outside the cluster, without any knowledge of the operator.
//!
//! Tests of exclusion need such a client, because the operator's leader never lets two of its own locks contend for one
//! key.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use redlock_operator::redis_member::Connect as _;
use redlock_operator::time::Clock as _;
use tokio::time::{sleep, timeout};

use crate::messages::{Line, Port, Sent};
use crate::oracle::ContenderReport;
use crate::process::{Life, Main};
use crate::rng::Rng;
use crate::time::MachineClock;

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
/// The timeout of one command to one member.
const PATIENCE: Duration = Duration::from_millis(60);
/// The constant part of the drift, as in the libraries.
const DRIFT_FLOOR: Duration = Duration::from_millis(2);

/// The URLs in the client's Secret: `redis://user:password@host:port` for each member.
pub(crate) type Urls = Arc<Mutex<Vec<String>>>;

/// The configuration of a contender.
#[derive(Clone)]
pub(crate) struct Habits {
    pub(crate) keys: Vec<String>,
    pub(crate) urls: Urls,
    /// The smallest `maxTTL` that the quorum has had, in milliseconds.
    pub(crate) max_ttl: Arc<AtomicU64>,
    pub(crate) seed: u64,
    /// Whether it takes no further locks.
    pub(crate) retired: Arc<AtomicBool>,
}

pub(crate) fn program(name: &str, habits: Habits) -> Main {
    let name = name.to_owned();
    let lives = AtomicU64::new(0);
    Box::new(move |life| {
        let number = lives.fetch_add(1, Ordering::Relaxed);
        let rng = Rng::of(habits.seed ^ number, &name);
        let contender = Contender { name: format!("{name}.{number}"), habits: habits.clone(), rng, holds: 0 };
        Box::pin(contender.run(life))
    })
}

struct Contender {
    name: String,
    habits: Habits,
    rng: Rng,
    holds: u64,
}

/// A connection for each member, opened on first use.
struct Members {
    port: Arc<Port>,
    urls: Vec<String>,
    connections: Vec<Option<MultiplexedConnection>>,
}

impl Contender {
    async fn run(mut self, Life { port, clock, .. }: Life) {
        let mut members = Members { port: port.clone(), urls: Vec::new(), connections: Vec::new() };
        loop {
            sleep(Duration::from_millis(self.rng.between(10, 300))).await;
            if self.habits.retired.load(Ordering::Relaxed) {
                continue;
            }
            let urls = self.habits.urls.lock().unwrap().clone();
            if urls.is_empty() {
                continue;
            }
            if urls != members.urls {
                members.connections = urls.iter().map(|_| None).collect();
                members.urls = urls;
            }
            self.turn(&mut members, &port, &clock).await;
        }
    }

    async fn turn(&mut self, members: &mut Members, port: &Port, clock: &MachineClock) {
        let key = self.rng.pick(&self.habits.keys.clone()).clone();
        self.holds += 1;
        let value = format!("{}-{}", self.name, self.holds);
        let ttl = Duration::from_millis(self.rng.between(300, 3_000).min(self.habits.max_ttl.load(Ordering::Relaxed)));
        let began = clock.boottime();
        let set = members.all(|| {
            let mut set = redis::cmd("SET");
            set.arg(&key).arg(&value).arg("NX").arg("PX").arg(ttl.as_millis() as u64);
            set
        });
        let votes = set.await.into_iter().filter(|reply| matches!(reply, Some(redis::Value::Okay))).count();
        let took = clock.boottime().since(began);
        let left = ttl.saturating_sub(took).saturating_sub(ttl / 100 + DRIFT_FLOOR);
        let held = votes > members.urls.len() / 2 && !left.is_zero();
        if held {
            let left = u64::try_from(left.as_micros()).unwrap();
            port.send(Sent::ContenderReport(ContenderReport::Holds { key: key.clone(), value: value.clone(), left }));
            sleep(Duration::from_millis(self.rng.between(0, u64::try_from(ttl.as_millis()).unwrap()))).await;
            // Some holders die without a release, so their locks expire.
            if self.rng.percent(20) {
                return;
            }
            port.send(Sent::ContenderReport(ContenderReport::GivesUp { value: value.clone() }));
        }
        let release = members.all(|| {
            let mut release = redis::cmd("EVAL");
            release.arg(RELEASE).arg(1).arg(&key).arg(&value);
            release
        });
        release.await;
    }
}

impl Members {
    async fn all(&mut self, command: impl Fn() -> redis::Cmd) -> Vec<Option<redis::Value>> {
        let port = &self.port;
        let asked = self.urls.iter().zip(&mut self.connections).map(|(url, connection)| {
            let command = command();
            async move {
                let asked = async {
                    if connection.is_none() {
                        *connection = connect(port, url).await;
                    }
                    let open = connection.as_mut()?;
                    let reply = command.query_async::<redis::Value>(open).await;
                    if reply.as_ref().is_err_and(redis::RedisError::is_io_error) {
                        *connection = None;
                    }
                    reply.ok()
                };
                timeout(PATIENCE, asked).await.ok().flatten()
            }
        });
        join_all(asked).await
    }
}

async fn connect(port: &Arc<Port>, url: &str) -> Option<MultiplexedConnection> {
    let (user, rest) = url.strip_prefix("redis://")?.split_once(':')?;
    let (password, address) = rest.rsplit_once('@')?;
    let stream = Line(port.clone()).connect(address.trim_end_matches('/')).await.ok()?;
    let user = RedisConnectionInfo::default().set_skip_set_lib_name().set_username(user).set_password(password);
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(&user, stream, config).await.ok()?;
    tokio::spawn(driver);
    Some(connection)
}
