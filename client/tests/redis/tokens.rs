//! Tokens without an operator: the client gives members their counters back.

use crate::{LONG, TTL, acquired, client, servers, voting};
use redlock_client::time::{Clock, SystemClock};
use redlock_client::{Client, FencingToken};
use std::time::Duration;

#[tokio::test]
async fn a_restarted_member_gets_its_counter_back_before_it_votes() {
    let mut servers = servers(3).await;
    let client = client(&servers).await;
    let before = acquired(&client, "k").await;
    let token = before.token();
    let _ = before.release().await;
    for server in &mut servers {
        server.restart().await;
        server.is_restored().await;
        voting(&client, 3).await;
    }
    // Every member has forgotten its counter once.
    let after = client.acquire("k", TTL, LONG).await.unwrap();
    assert!(after.token() > token, "{} after {token}", after.token());
    let _ = after.release().await;
}

/// As many grants as the machine makes in half a second, by 32 callers; the greatest token.
async fn at_full_speed(client: &Client) -> FencingToken {
    let until = SystemClock.monotonic() + Duration::from_millis(500);
    let mut callers = Vec::new();
    for number in 0..32 {
        let client = client.clone();
        callers.push(tokio::spawn(async move {
            let (key, mut last) = (format!("k{number}"), FencingToken::ZERO);
            while SystemClock.monotonic() < until {
                let guard = client.acquire(key.as_str(), TTL, LONG).await.unwrap();
                assert!(guard.token() > last, "{} after {last}", guard.token());
                last = guard.token();
                let _ = guard.release().await;
            }
            last
        }));
    }
    let mut greatest = FencingToken::ZERO;
    for caller in callers {
        greatest = greatest.max(caller.await.unwrap());
    }
    greatest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_at_full_speed_through_the_loss_of_all_members_without_an_operator() {
    let mut servers = servers(3).await;
    let client = client(&servers).await;
    for _ in 0..2 {
        let before = at_full_speed(&client).await;
        for server in &servers {
            server.signal("-KILL");
        }
        for server in &mut servers {
            server.restart().await;
        }
        // Counters are asked for before anybody votes, and none is left: the clock is above them all.
        let after = client.acquire("k", TTL, LONG).await.unwrap();
        assert!(after.token() > before, "{} after {before}", after.token());
        let _ = after.release().await;
        voting(&client, 3).await;
    }
}

#[tokio::test]
async fn a_day_that_the_counters_are_behind_does_not_matter_after_one_restart_without_an_operator() {
    let mut servers = servers(3).await;
    let now = SystemClock.wall().0 * 1_000;
    let yesterday = now - 86_400 * 1_000_000;
    for server in &servers {
        server.ask(&format!("SET #token {yesterday}")).await;
    }
    let client = client(&servers).await;
    let before = acquired(&client, "k").await;
    let mut last = before.token();
    assert!(last.get() < yesterday + 1_000, "a counter that was restored once stays");
    let _ = before.release().await;
    servers[1].restart().await;
    // Both others are needed for it.
    servers[1].is_restored().await;
    // Its counter is a day ahead of the others' now. Each majority gives tokens that rise.
    for (away, server) in servers.iter().enumerate() {
        voting(&client, 3).await;
        server.signal("-STOP");
        let guard = client.acquire("k", TTL, LONG).await.unwrap();
        assert!(guard.token() > last, "without member {away}: {} after {last}", guard.token());
        last = guard.token();
        let _ = guard.release().await;
        server.signal("-CONT");
    }
}
