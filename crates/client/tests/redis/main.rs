//! The client against real `redis-server` processes on loopback. Needs `redis-server` 7.0 or later in the PATH (or its path in
//! `REDIS_SERVER`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod configuration;
mod edges;
mod election;
mod fakes;
mod hints;
mod programs;
mod releases;
mod tokens;
mod update;

use redlock_client::{Client, Event, FencingToken, Guard, Held, LossCause, NotAcquired, Release};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(20);
/// Generous, since the machine may be busy.
const LONG: Duration = Duration::from_secs(10);

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::on(port).await
    }

    /// With more options.
    async fn with(options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::on_with(port, options).await
    }

    async fn on(port: u16) -> Self {
        Self::on_with(port, &[]).await
    }

    async fn on_with(port: u16, options: &[&str]) -> Self {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(program);
        command
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(options);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis-server is needed");
        let server = Self { child, port };
        timeout(LONG, async {
            while server.ask("PING").await.as_deref() != Some("+PONG") {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("redis-server answers");
        server
    }

    /// The first line of the answer to an inline command.
    async fn ask(&self, command: &str) -> Option<String> {
        self.text(command).await?.lines().next().map(str::to_owned)
    }

    /// The answer to an inline command, if it is short.
    async fn text(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await.ok()?;
        let mut answer = vec![0; 4096];
        let read = stream.read(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer[..read]).into_owned())
    }

    async fn has(&self, key: &str) -> bool {
        self.ask(&format!("EXISTS {key}")).await.as_deref() == Some(":1")
    }

    async fn is_restored(&self) {
        let wait = async {
            while !self.has("#token").await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, wait).await.expect("the counter is restored");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    /// Another process on the same port, which has forgotten everything.
    async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        *self = Self::on(self.port).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn servers(count: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(Server::start().await);
    }
    servers
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port)).collect()
}

async fn client(servers: &[Server]) -> Client {
    let client = Client::builder(urls(servers))
        .admit_at_once()
        .node_timeout(Duration::from_millis(400))
        .connect()
        .await
        .unwrap();
    voting(&client, servers.len()).await;
    client
}

async fn voting(client: &Client, count: usize) {
    timeout(LONG, async {
        while client.voters() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("members vote");
}

async fn acquired(client: &Client, key: &str) -> Guard {
    client.lock(key).ttl(TTL).try_acquire().await.unwrap()
}

fn released(release: &Release) -> usize {
    release.deleted()
}

#[tokio::test]
async fn a_lock_excludes_others_until_it_is_released_and_its_token_rises() {
    let servers = servers(3).await;
    let (client, other) = (client(&servers).await, client(&servers).await);
    let mut last = FencingToken::ZERO;
    for _ in 0..20 {
        let guard = acquired(&client, "k").await;
        assert!(guard.token() > last, "{} after {last}", guard.token());
        assert!(guard.remaining() > TTL / 2 && guard.remaining() < TTL);
        let refused = other.lock("k").ttl(TTL).try_acquire().await;
        assert!(matches!(refused, Err(NotAcquired::HeldByOther { .. })), "{refused:?}");
        // It returns when a majority has answered, and one of them may be a member that the other client had asked first.
        assert!(released(&guard.release().await) >= 1);
        std::mem::drop(acquired(&other, "k").await);
        // The drop has sent its release on other connections.
        last = client.lock("k").ttl(TTL).wait(LONG).acquire().await.unwrap().token();
    }
    assert!(last.get() > 1_000_000_000_000_000, "counters begin with the microseconds of the clock: {last}");
}

#[tokio::test]
async fn who_waits_for_processes_to_forget_is_told_for_how_long() {
    let servers = servers(3).await;
    let builder = Client::builder(urls(&servers)).wait_before_voting(Duration::from_secs(60));
    let client = builder.connect().await.unwrap();
    let waiting = timeout(LONG, async {
        loop {
            match client.lock("k").ttl(TTL).try_acquire().await {
                Err(NotAcquired::Waiting { left }) => return left,
                Err(NotAcquired::NoQuorum { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                other => panic!("{other:?}"),
            }
        }
    });
    let left = waiting.await.unwrap();
    assert!(left > Duration::from_secs(50) && left < Duration::from_secs(63), "{left:?}");
    let too_long = client.lock("k").ttl(Duration::from_secs(61)).try_acquire().await;
    assert!(matches!(too_long, Err(NotAcquired::Ttl { .. })), "{too_long:?}");
}

#[tokio::test]
async fn a_frozen_member_is_not_waited_for_and_loses_its_key_when_it_goes_on() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    servers[0].signal("-STOP");
    // Without a majority's answer this would take a node timeout of 400 ms each.
    for _ in 0..5 {
        let guard = acquired(&client, "k").await;
        assert!(released(&guard.release().await) >= 2);
    }
    servers[0].signal("-CONT");
    client.close(LONG).await.unwrap();
    for server in &servers {
        assert!(!server.has("k").await);
    }
    assert!(matches!(client.lock("k").ttl(TTL).try_acquire().await, Err(NotAcquired::Closed)));
}

#[tokio::test]
async fn what_is_dropped_last_is_released_all_the_same() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let guard = acquired(&client, "k").await;
    drop(client);
    assert!(servers[0].has("k").await || servers[1].has("k").await);
    drop(guard);
    timeout(LONG, async {
        for server in &servers {
            while server.has("k").await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await
    .expect("the keys are deleted");
}

#[tokio::test]
async fn those_who_wait_with_one_client_are_served_in_order() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let first = acquired(&client, "k").await;
    let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for number in 0..5 {
        let (waiter, told) = (client.clone(), told.clone());
        let (queued, is_queued) = tokio::sync::oneshot::channel();
        tasks.push(tokio::spawn(async move {
            let acquire = waiter.lock("k").ttl(TTL).wait(LONG).acquire();
            let mut acquire = std::pin::pin!(acquire);
            // The first poll takes the place in the line.
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(acquire.as_mut().poll(cx).is_ready())).await;
            assert!(!polled);
            queued.send(()).unwrap();
            let guard = acquire.await.unwrap();
            told.send(number).unwrap();
            let _ = guard.release().await;
        }));
        is_queued.await.unwrap();
    }
    let _ = first.release().await;
    for number in 0..5 {
        assert_eq!(order.recv().await, Some(number));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn what_happens_to_locks_is_told() {
    let servers = servers(3).await;
    let (told, mut events) = tokio::sync::mpsc::unbounded_channel();
    let builder = Client::builder(urls(&servers)).admit_at_once().node_timeout(Duration::from_millis(400));
    let builder = builder.on_event(move |event| {
        let name = match event {
            Event::Acquired { token, .. } if token > FencingToken::ZERO => "acquired",
            Event::NotAcquired { error: NotAcquired::HeldByOther { .. }, .. } => "refused",
            Event::Renewed { .. } => "renewed",
            Event::Lost { .. } => "lost",
            Event::Member { .. } => return,
            _ => "other",
        };
        told.send(name).unwrap();
    });
    let client = builder.connect().await.unwrap();
    voting(&client, 3).await;
    let guard = client.lock("k").ttl(Duration::from_secs(1)).try_acquire().await.unwrap();
    assert!(client.lock("k").ttl(TTL).try_acquire().await.is_err());
    let mut next = async || timeout(LONG, events.recv()).await.unwrap().unwrap();
    assert_eq!((next().await, next().await, next().await), ("acquired", "refused", "renewed"));
    for server in &servers {
        server.ask("DEL k").await;
    }
    while next().await != "lost" {}
    assert!(!guard.is_held());
}

#[tokio::test]
async fn a_lock_that_is_taken_away_is_told_and_ends_what_runs() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let ttl = Duration::from_secs(1);
    let guard = client.lock("k").ttl(ttl).try_acquire().await.unwrap();
    assert_eq!(guard.run_while_held(async { 7 }).await, Ok(7));
    for server in &servers {
        server.ask("DEL k").await;
    }
    // The renewal finds out, long before the time to live has passed.
    let ended = timeout(LONG, guard.run_while_held(std::future::pending::<()>())).await.unwrap();
    assert!(ended.is_err() && !guard.is_held());
}

#[tokio::test]
async fn a_lock_without_a_guard_is_taken_up_elsewhere_or_released_by_hand() {
    let servers = servers(3).await;
    let (one, other) = (client(&servers).await, client(&servers).await);
    let short = Duration::from_secs(2);
    let (key, value, token) = acquired(&one, "k").await.into_held().into_parts();
    let held = || Held::from_parts(key.clone(), value.clone(), token);
    let guard = other.resume(held(), short).await.unwrap();
    assert!(guard.remaining() < short && guard.token() == token, "what it knew elsewhere counts for nothing here");
    assert!(released(&other.release(&guard.into_held()).await) >= 2);
    let next = acquired(&one, "k").await;
    let lost = other.resume(held(), TTL).await.expect_err("another holder has it");
    assert_eq!(lost.cause, LossCause::Taken);
    assert!(next.is_held());
}

/// A job of 5 ms, which three machines start 0, 20 and 40 ms apart.
#[tokio::test]
async fn a_job_that_several_machines_start_is_run_by_one_of_them() {
    let servers = servers(3).await;
    for night in 0..6 {
        let mut machines = Vec::new();
        for machine in 0..3 {
            let client = client(&servers).await;
            machines.push(async move {
                tokio::time::sleep(Duration::from_millis(20 * machine)).await;
                let guard = client.lock(format!("night-{night}")).ttl(TTL).try_acquire().await.ok()?;
                guard.run_while_held(tokio::time::sleep(Duration::from_millis(5))).await.unwrap();
                guard.leave(2 * TTL).await.unwrap();
                client.close(LONG).await.unwrap();
                Some(())
            });
        }
        let mut runs = 0;
        let machines: Vec<_> = machines.into_iter().map(tokio::spawn).collect();
        for machine in machines {
            runs += usize::from(machine.await.unwrap().is_some());
        }
        assert_eq!(runs, 1, "night {night}");
    }
    let lives = servers[0].ask("PTTL night-5").await.unwrap();
    assert!(lives.trim_start_matches(':').parse::<u128>().unwrap() > TTL.as_millis(), "{lives}");
}

#[tokio::test]
async fn keys_of_the_operator_and_of_others_are_refused() {
    let servers = servers(1).await;
    let client = client(&servers).await;
    for key in ["", "#token", "a#1"] {
        assert!(matches!(client.lock(key).ttl(TTL).try_acquire().await, Err(NotAcquired::Key)), "{key}");
    }
    let none = client.lock("k").ttl(Duration::ZERO).try_acquire().await;
    assert!(matches!(none, Err(NotAcquired::Ttl { .. })), "{none:?}");
}

#[cfg(feature = "blocking")]
#[test]
fn a_program_without_a_runtime_locks_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let servers = runtime.block_on(servers(3));
    let builder = Client::builder(urls(&servers)).admit_at_once().node_timeout(Duration::from_millis(400));
    let client = redlock_client::blocking::Client::connect(builder).unwrap();
    let guard = client.lock("k").ttl(TTL).wait(LONG).acquire().unwrap();
    assert!(guard.is_held() && guard.token() > FencingToken::ZERO && guard.remaining() < TTL);
    assert!(matches!(client.lock("k").ttl(TTL).try_acquire(), Err(NotAcquired::HeldByOther { .. })));
    let _ = guard.release();
    drop(client.lock("k").ttl(TTL).wait(LONG).acquire().unwrap());
    client.close(LONG).unwrap();
    assert!(!runtime.block_on(servers[0].has("k")));
}
