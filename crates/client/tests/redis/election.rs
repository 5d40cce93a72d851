//! Elections and slots.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlock_client::{FencingToken, NotAcquired};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::{LONG, TTL, acquired, client, connected, servers};

/// Three clients with five terms each.
///
/// Each term steps down by choice.
#[tokio::test]
async fn leaders_take_turns_and_never_overlap() {
    let servers = servers(3).await;
    let leaders = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (client, leaders, tokens) = (client(&servers).await, Arc::clone(&leaders), Arc::clone(&tokens));
        tasks.spawn(async move {
            let mut terms = 0;
            let election = client.election("e").ttl(TTL);
            let run = election.run(|leader| {
                terms += 1;
                let (terms, leaders, tokens) = (terms, Arc::clone(&leaders), Arc::clone(&tokens));
                async move {
                    assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0, "two leaders");
                    tokens.lock().unwrap().push(leader.token());
                    tokio::task::yield_now().await;
                    assert!(leader.is_leading() && leader.remaining() <= TTL);
                    leaders.fetch_sub(1, Ordering::SeqCst);
                    if terms < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(terms) }
                }
            });
            assert_eq!(run.await, Ok(5));
            client.close(LONG).await.unwrap();
        });
    }
    timeout(LONG, tasks.join_all()).await.unwrap();
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 15);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[tokio::test]
async fn a_leader_without_its_key_campaigns_again() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let (elected, mut terms) = tokio::sync::mpsc::unbounded_channel();
    let election = client.election("e").ttl(Duration::from_secs(1));
    let run = tokio::spawn(async move {
        election
            .run(|leader| {
                elected.send(leader.clone()).unwrap();
                std::future::pending::<ControlFlow<()>>()
            })
            .await
    });
    let first = timeout(LONG, terms.recv()).await.unwrap().unwrap();
    for server in &servers {
        server.ask("DEL e").await;
    }
    let second = timeout(LONG, terms.recv()).await.unwrap().unwrap();
    assert!(!first.is_leading() && second.is_leading() && second.token() > first.token());
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    // The run has stepped down at its end.
    assert!(timeout(LONG, client.election("e").campaign()).await.unwrap().unwrap().token() > second.token());
    client.close(LONG).await.unwrap();
    assert_eq!(client.election("e").campaign().await.unwrap_err(), NotAcquired::Closed);
}

#[tokio::test]
async fn as_many_holders_as_slots_have_a_lock() {
    let servers = servers(3).await;
    let (one, other) = (client(&servers).await, client(&servers).await);
    let mut held = Vec::new();
    for client in [&one, &other, &one] {
        held.push(client.lock("s").slots(3).ttl(TTL).try_acquire().await.unwrap());
    }
    let mut keys: Vec<_> = held.iter().map(|guard| guard.key().to_string()).collect();
    keys.sort();
    assert_eq!(keys, ["s#0", "s#1", "s#2"]);
    assert!(held.iter().all(|guard| guard.token() > FencingToken::ZERO));
    let fourth = one.lock("s").slots(3).ttl(TTL).try_acquire().await;
    assert!(matches!(fourth, Err(NotAcquired::HeldByOther { refusals: 1.., .. })), "{fourth:?}");
    // Two callers of one client wait in its queue, and a holder does not block the next caller.
    let waits = |client: &redlock_client::Client| tokio::spawn(client.lock("s").slots(3).ttl(TTL).wait(LONG).acquire());
    let waiting = [waits(&one), waits(&one), waits(&other)];
    sleep(Duration::from_millis(200)).await;
    assert!(waiting.iter().all(|task| !task.is_finished()));
    drop(held);
    let mut next = Vec::new();
    for task in waiting {
        next.push(timeout(LONG, task).await.unwrap().unwrap().unwrap());
    }
    assert!(next.iter().all(redlock_client::Guard::is_held));
    // The key itself and the keys of its slots are different, so all programs must use one number.
    assert!(acquired(&one, "s").await.is_held());
    for slots in [0, 101] {
        let refused = one.lock("s").slots(slots).try_acquire().await;
        assert!(matches!(refused, Err(NotAcquired::Slots { most: 100 })), "{refused:?}");
    }
}

/// Redis has no relation between a key and its slots, so each attempt reads the other keys.
#[tokio::test(start_paused = true)]
async fn different_numbers_of_slots_exclude_each_other() {
    use redlock_client::Client;
    use redlock_client::test_util::FakeMembers;
    let members = FakeMembers::start(3);
    let (one, other) = (connected(&members).await, connected(&members).await);
    let lock = |client: &Client, slots| client.lock("s").slots(slots).ttl(TTL).refuse_other_slots();
    for _ in 0..20 {
        let (mutex, slot) = tokio::join!(lock(&one, 1).try_acquire(), lock(&other, 2).try_acquire());
        for refused in [&mutex, &slot] {
            let is_expected = matches!(refused, Ok(_) | Err(NotAcquired::OtherSlots));
            assert!(is_expected, "{refused:?}");
        }
        assert!(mutex.is_err() || slot.is_err(), "both hold the lock");
        for guard in [mutex, slot].into_iter().flatten() {
            let _ = guard.release().await;
        }
    }
    // An earlier holder keeps its lock, and a waiting client is refused at its turn.
    let holder = lock(&one, 2).try_acquire().await.unwrap();
    assert_eq!(lock(&other, 1).wait(LONG).acquire().await.unwrap_err(), NotAcquired::OtherSlots);
    let second = lock(&other, 2).try_acquire().await.unwrap();
    assert!(holder.is_held() && second.is_held() && members.holders("s") == 0);
}

#[tokio::test(start_paused = true)]
async fn the_observer_gets_the_states_of_members() {
    use redlock_client::test_util::FakeMembers;
    use redlock_client::{Client, Event, MemberState};
    let members = FakeMembers::start(3);
    let (sender, mut states) = tokio::sync::mpsc::unbounded_channel();
    let builder = Client::builder(members.urls()).wait_before_voting(Duration::from_secs(30));
    let builder = builder.on_event(move |event| {
        if let Event::Member { member, state } = event {
            let state = match state {
                MemberState::Voting => "voting",
                MemberState::Waiting => "waiting",
                _ => "down",
            };
            sender.send((member.to_string(), state)).unwrap();
        }
    });
    let client = builder.connect_on(members.machine()).await.unwrap();
    let mut next = async |count: usize, wanted: &str| {
        let mut found = std::collections::BTreeSet::new();
        while found.len() < count {
            let (member, state) = timeout(LONG * 10, states.recv()).await.unwrap().unwrap();
            if state == wanted {
                found.insert(member);
            }
        }
        found
    };
    assert_eq!(next(3, "waiting").await.len(), 3);
    assert_eq!(next(3, "voting").await.len(), 3);
    assert_eq!(client.voters(), 3);
    members[1].kill();
    assert_eq!(next(1, "down").await.into_iter().collect::<Vec<_>>(), ["member-1.test:6379"]);
    members[1].restart();
    assert_eq!(next(1, "voting").await.into_iter().collect::<Vec<_>>(), ["member-1.test:6379"]);
}
