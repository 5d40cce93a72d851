//! The client against real `redis-server` processes on loopback.
//!
//! Needs `redis-server` 7.0 or later in the PATH (or its path in `REDIS_SERVER`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod configuration;
mod edges;
mod election;
mod fake_servers;
mod fencing_tokens;
mod hints;
#[path = "../../../../tests/support/port.rs"]
mod port;
mod programs;
mod recording;
mod release_delivery;
mod servers;
mod single_client;
mod update;

use std::time::Duration;

use redlock_client::test_util::FakeMembers;
use redlock_client::{Builder, Client, FencingToken, Guard, Held, LossCause, NotAcquired};
use tokio::task::JoinSet;
use tokio::time::timeout;

use port::free_port;
use servers::{Server, is_gone, servers, urls};

const TTL: Duration = Duration::from_secs(20);
/// A long timeout, since the machine can be busy.
const LONG: Duration = Duration::from_secs(10);

/// Settings for real servers, which answer late on a busy machine.
fn builder(urls: Vec<String>) -> Builder {
    Client::builder(urls).admit_at_once().node_timeout(Duration::from_millis(400))
}

async fn client(servers: &[Server]) -> Client {
    let client = builder(urls(servers)).connect().await.unwrap();
    voting(&client, servers.len()).await;
    client
}

/// A client of members in memory.
async fn connected(members: &FakeMembers) -> Client {
    Client::builder(members.urls()).admit_at_once().connect_on(members.machine()).await.unwrap()
}

async fn voting(client: &Client, count: usize) {
    voting_within(LONG, client, count).await;
}

async fn voting_within(limit: Duration, client: &Client, count: usize) {
    until(limit, "members vote", async || client.voters() >= count).await;
}

/// Waits until this is true, at most for the limit.
async fn until(limit: Duration, wanted: &str, mut is_true: impl AsyncFnMut() -> bool) {
    let checks = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(limit, checks).await.expect(wanted);
}

/// Waits until no member in memory has this key.
async fn is_free(members: &FakeMembers, key: &str, limit: Duration) {
    until(limit, "the key is released", async || members.holders(key) == 0).await;
}

async fn acquired(client: &Client, key: &str) -> Guard {
    client.lock(key).ttl(TTL).try_acquire().await.unwrap()
}

#[tokio::test]
async fn a_lock_is_exclusive_and_its_token_rises() {
    let servers = servers(3).await;
    let (client, other) = (client(&servers).await, client(&servers).await);
    let mut last = FencingToken::ZERO;
    for _ in 0..20 {
        let guard = acquired(&client, "k").await;
        assert!(guard.token() > last, "{} after {last}", guard.token());
        assert!(guard.remaining() > TTL / 2 && guard.remaining() < TTL);
        let refused = other.lock("k").ttl(TTL).try_acquire().await;
        assert!(matches!(refused, Err(NotAcquired::HeldByOther { .. })), "{refused:?}");
        // The release returns when a majority has answered. The other client has perhaps locked one of these members first.
        assert!(guard.release().await.deleted() >= 1);
        std::mem::drop(acquired(&other, "k").await);
        // The drop has sent its release on other connections.
        last = client.lock("k").ttl(TTL).wait(LONG).acquire().await.unwrap().token();
    }
    assert!(last.get() > 1_000_000_000_000_000, "counters begin with the microseconds of the clock: {last}");
}

#[tokio::test]
async fn the_remaining_wait_before_voting_is_reported() {
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
async fn a_frozen_member_delays_nothing_and_loses_its_key_later() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    servers[0].signal("-STOP");
    // Without the answer of a majority each attempt would take a node timeout of 400 ms.
    for _ in 0..5 {
        let guard = acquired(&client, "k").await;
        assert!(guard.release().await.deleted() >= 2);
    }
    servers[0].signal("-CONT");
    client.close(LONG).await.unwrap();
    for server in &servers {
        assert!(!server.has("k").await);
    }
    assert!(matches!(client.lock("k").ttl(TTL).try_acquire().await, Err(NotAcquired::Closed)));
}

#[tokio::test]
async fn a_guard_that_outlives_its_client_is_released() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let guard = acquired(&client, "k").await;
    drop(client);
    assert!(servers[0].has("k").await || servers[1].has("k").await);
    drop(guard);
    is_gone(&servers, "k").await;
}

#[tokio::test]
async fn a_lost_lock_ends_the_guarded_future() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let ttl = Duration::from_secs(1);
    let guard = client.lock("k").ttl(ttl).try_acquire().await.unwrap();
    assert_eq!(guard.run_while_held(async { 7 }).await, Ok(7));
    for server in &servers {
        server.ask("DEL k").await;
    }
    // The renewal detects the loss long before the time to live has passed.
    let ended = timeout(LONG, guard.run_while_held(std::future::pending::<()>())).await.unwrap();
    assert!(ended.is_err() && !guard.is_held());
}

#[tokio::test]
async fn a_held_lock_is_resumed_elsewhere_or_released() {
    let servers = servers(3).await;
    let (one, other) = (client(&servers).await, client(&servers).await);
    let short = Duration::from_secs(2);
    let (key, value, token) = acquired(&one, "k").await.into_held().into_parts();
    let held = || Held::from_parts(key.clone(), value.clone(), token);
    let guard = other.resume(held(), short).await.unwrap();
    assert!(guard.remaining() < short && guard.token() == token, "the validity is new, and the token is the same");
    assert!(other.release(&guard.into_held()).await.deleted() >= 2);
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
        let machines: JoinSet<_> = machines.into_iter().collect();
        assert_eq!(machines.join_all().await.into_iter().flatten().count(), 1, "night {night}");
    }
    let lives = servers[0].ask("PTTL night-5").await.unwrap();
    assert!(lives.trim_start_matches(':').parse::<u128>().unwrap() > TTL.as_millis(), "{lives}");
}

#[tokio::test]
async fn reserved_keys_and_invalid_ttls_are_refused() {
    let servers = servers(1).await;
    let client = client(&servers).await;
    for key in ["", "#token", "a#1"] {
        assert!(matches!(client.lock(key).ttl(TTL).try_acquire().await, Err(NotAcquired::Key)), "{key}");
    }
    for ttl in [Duration::ZERO, Duration::MAX] {
        let refused = client.lock("k").ttl(ttl).try_acquire().await;
        assert!(matches!(refused, Err(NotAcquired::Ttl { .. })), "{refused:?}");
    }
}

#[cfg(feature = "blocking")]
#[test]
fn a_program_without_a_runtime_can_lock() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let servers = runtime.block_on(servers(3));
    let client = redlock_client::blocking::Client::connect(builder(urls(&servers))).unwrap();
    let guard = client.lock("k").ttl(TTL).wait(LONG).acquire().unwrap();
    assert!(guard.is_held() && guard.token() > FencingToken::ZERO && guard.remaining() < TTL);
    assert!(matches!(client.lock("k").ttl(TTL).try_acquire(), Err(NotAcquired::HeldByOther { .. })));
    let _ = guard.release();
    drop(client.lock("k").ttl(TTL).wait(LONG).acquire().unwrap());
    client.close(LONG).unwrap();
    assert!(!runtime.block_on(servers[0].has("k")));
}
