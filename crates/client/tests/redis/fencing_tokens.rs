//! Tokens without an operator: the client gives members their counters back.

use std::time::Duration;

use redlock_client::test_util::{FakeMember, FakeMembers};
use redlock_client::{Client, FencingToken};
use redlock_client::{Clock, SystemClock};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{LONG, TTL, acquired, client, connected, servers, voting};

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
    // Every member has lost its counter once.
    let after = client.lock("k").ttl(TTL).wait(LONG).acquire().await.unwrap();
    assert!(after.token() > token, "{} after {token}", after.token());
    let _ = after.release().await;
}

/// Makes grants with 32 callers for half a second, and returns the greatest token.
async fn at_full_speed(client: &Client) -> FencingToken {
    let until = SystemClock.monotonic() + Duration::from_millis(500);
    let mut callers = JoinSet::new();
    for number in 0..32 {
        let client = client.clone();
        callers.spawn(async move {
            let (key, mut last) = (format!("k{number}"), FencingToken::ZERO);
            while SystemClock.monotonic() < until {
                let guard = client.lock(key.as_str()).ttl(TTL).wait(LONG).acquire().await.unwrap();
                assert!(guard.token() > last, "{} after {last}", guard.token());
                last = guard.token();
                let _ = guard.release().await;
            }
            last
        });
    }
    callers.join_all().await.into_iter().max().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_through_the_loss_of_all_members() {
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
        // The client reads counters before any vote. All are lost, so the token begins with the clock, which is above all earlier tokens.
        let after = client.lock("k").ttl(TTL).wait(LONG).acquire().await.unwrap();
        assert!(after.token() > before, "{} after {before}", after.token());
        let _ = after.release().await;
        voting(&client, 3).await;
    }
}

/// A client of these members after its first lock. The members use tokio's clock.
async fn started(members: &FakeMembers, max_ttl: Duration) -> Client {
    let client =
        Client::builder(members.urls()).wait_before_voting(max_ttl).connect_on(members.machine()).await.unwrap();
    let _ = client.lock("first").ttl(MAX_TTL).wait(LONG).acquire().await.unwrap().release().await;
    client
}

const MAX_TTL: Duration = Duration::from_secs(4);

#[tokio::test(start_paused = true)]
async fn emptied_members_issue_no_second_lock_and_no_smaller_token() {
    let members = FakeMembers::start(3);
    let (one, other) = (started(&members, MAX_TTL).await, started(&members, MAX_TTL).await);
    let guard = one.lock("k").ttl(MAX_TTL).try_acquire().await.unwrap();
    members[..2].iter().for_each(FakeMember::empty);
    let refused =
        other.lock("k").ttl(MAX_TTL).try_acquire().await.expect_err("two members have forgotten who holds it");
    assert!(guard.is_held(), "{refused}");
    // The counters are restored after the wait, like those of started processes.
    let token = guard.token();
    drop(guard);
    members.iter().for_each(FakeMember::empty);
    let later = other.lock("k").ttl(MAX_TTL).wait(LONG).acquire().await.unwrap();
    assert!(later.token() > token, "{} after {token}", later.token());
}

#[tokio::test(start_paused = true)]
async fn a_quorum_of_five_survives_a_missing_member() {
    let members = FakeMembers::start(5);
    let client = connected(&members).await;
    let token = client.lock("k").ttl(TTL).try_acquire().await.unwrap().token();
    // All lose power, and four come back.
    members.iter().for_each(FakeMember::kill);
    members[..4].iter().for_each(FakeMember::restart);
    let guard = client.lock("k").ttl(TTL).wait(LONG).acquire().await.unwrap();
    assert!(guard.token() > token, "{} after {token}", guard.token());
}

#[tokio::test(start_paused = true)]
async fn the_counter_of_an_old_snapshot_proves_nothing() {
    let members = FakeMembers::start(3);
    let client = connected(&members).await;
    let saved = client.lock("k").ttl(TTL).try_acquire().await.unwrap().token().get().to_string();
    members[2].freeze();
    let mut last = FencingToken::ZERO;
    for _ in 0..60 {
        last = client.lock("k").ttl(TTL).wait(LONG).acquire().await.unwrap().token();
    }
    members[2].restart();
    members[1].freeze();
    members[0].restart();
    for member in [&members[0], &members[2]] {
        member.set("#token", &saved, Duration::from_secs(1_000_000));
    }
    let guard = client.lock("k2").ttl(TTL).wait(4 * LONG).acquire().await.unwrap();
    assert!(guard.token() > last, "{} after {last}", guard.token());
}

#[tokio::test(start_paused = true)]
async fn a_counter_is_restored_after_the_wait() {
    let members = FakeMembers::start(3);
    let client = started(&members, MAX_TTL).await;
    members[0].restart();
    sleep(MAX_TTL).await;
    assert_eq!(members[0].get("#token"), None, "a vote of the previous process can be in flight");
    sleep(MAX_TTL).await;
    assert!(members[0].get("#token").is_some());
    assert_eq!(client.voters(), 3);
}
