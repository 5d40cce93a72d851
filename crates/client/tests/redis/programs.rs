//! Programs as users write them.
//!
//! They are a service that answers requests, one with very many locks, and three machines with one lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redlock_client::test_util::FakeMembers;
use redlock_client::{Client, FencingToken, Guard, NotAcquired};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{is_free, voting};

const SHORT: Duration = Duration::from_secs(2);

async fn connected(members: &FakeMembers) -> Client {
    let client = Client::builder(members.urls()).wait_before_voting(SHORT).connect_on(members.machine()).await.unwrap();
    voting(&client, members.len()).await;
    client
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_locks_are_renewed_and_released() {
    let members = FakeMembers::start(3);
    let client = connected(&members).await;
    let mut held: Vec<Guard> = Vec::new();
    for first in (0..10_000).step_by(500) {
        let mut tasks = JoinSet::new();
        for key in first..first + 500 {
            tasks.spawn(client.lock(format!("k{key}")).ttl(SHORT).try_acquire());
        }
        held.extend(tasks.join_all().await.into_iter().map(Result::unwrap));
    }
    sleep(2 * SHORT).await;
    assert!(held.iter().all(Guard::is_held));
    drop(held);
    client.close(Duration::from_secs(5)).await.unwrap();
    for member in members.iter() {
        assert_eq!(member.keys(), ["#token"]);
    }
}

/// Requests of a service on two machines, under one lock.
///
/// A client that disconnects drops its handler at any moment.
#[tokio::test(start_paused = true)]
async fn dropped_handlers_keep_no_lock_and_block_no_other() {
    let members = FakeMembers::start(3);
    let machines = [connected(&members).await, connected(&members).await];
    let (inside, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let handler = |client: &Client, work: Duration| {
        let (client, inside, served) = (client.clone(), Arc::clone(&inside), Arc::clone(&served));
        async move {
            let guard = client.lock("k").ttl(SHORT).wait(Duration::from_secs(600)).acquire().await.unwrap();
            assert!(!inside.swap(true, Ordering::SeqCst), "two handlers at a time");
            guard.run_while_held(sleep(work)).await.unwrap();
            inside.store(false, Ordering::SeqCst);
            served.fetch_add(1, Ordering::SeqCst);
            let _ = guard.release().await;
        }
    };
    let mut requests = JoinSet::new();
    for request in 0..100 {
        // One of them takes longer than its lock lives without renewals.
        let work = Duration::from_millis(if request == 50 { 6_000 } else { 20 });
        requests.spawn(handler(&machines[request % 2], work));
    }
    requests.join_all().await;
    assert_eq!(served.load(Ordering::SeqCst), 100);
    for millis in 0..200 {
        let dropped = tokio::spawn(handler(&machines[0], Duration::from_millis(50)));
        sleep(Duration::from_millis(millis % 40)).await;
        dropped.abort();
        let _ = dropped.await;
        inside.store(false, Ordering::SeqCst);
        is_free(&members, "k", Duration::from_millis(100)).await;
    }
    // With a frozen majority an attempt fails long before the key ends, and the next attempts succeed.
    members[0].freeze();
    members[1].freeze();
    let refused = machines[1].lock("k").ttl(SHORT).wait(Duration::from_secs(1)).acquire().await;
    assert!(matches!(refused, Err(NotAcquired::NoQuorum { .. })), "{refused:?}");
    members[0].thaw();
    members[1].thaw();
    timeout(SHORT, handler(&machines[1], Duration::from_millis(20))).await.unwrap();
}

/// One member at a time is frozen, killed, restarted or slow.
#[tokio::test(start_paused = true)]
async fn three_programs_share_a_key_exclusively_through_faults() {
    let members = FakeMembers::start(3);
    let (inside, last) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new((FencingToken::ZERO, [0; 3]))));
    let mut programs = JoinSet::new();
    for program in 0..3 {
        let (client, inside, last) = (connected(&members).await, Arc::clone(&inside), Arc::clone(&last));
        programs.spawn(async move {
            loop {
                let wait = Duration::from_secs(30);
                let guard = client.lock("k").ttl(SHORT).wait(wait).acquire().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two holders at a time");
                let work = guard.run_while_held(sleep(Duration::from_millis(5))).await;
                inside.store(false, Ordering::SeqCst);
                if work.is_ok() {
                    let mut last = last.lock().await;
                    assert!(guard.token() > last.0, "tokens rise");
                    last.0 = guard.token();
                    last.1[program] += 1;
                }
                let _ = guard.release().await;
                // Fake members carry no messages between clients. So a client that has released waits before its next attempt.
                sleep(Duration::from_millis(50)).await;
            }
        });
    }
    for round in 0..35_usize {
        let member = &members[round % 3];
        match round % 5 {
            0 => member.freeze(),
            1 => member.kill(),
            2 => member.restart(),
            3 => member.set_latency(Duration::from_millis(30)),
            _ => {}
        }
        sleep(Duration::from_millis(700)).await;
        match round % 5 {
            0 => member.thaw(),
            1 => member.restart(),
            3 => member.set_latency(Duration::ZERO),
            _ => {}
        }
        // The pause lasts until the member's votes are valid again.
        sleep(2 * SHORT).await;
    }
    assert!(programs.try_join_next().is_none(), "a program has failed");
    let grants = last.lock().await.1;
    assert!(grants.iter().all(|count| *count > 50), "each gets its share: {grants:?}");
}
