//! Messages between clients that wait for the same key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redlock_client::{Client, Event, Guard, NotAcquired};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::servers::{ask_all, logged_in};
use super::{LONG, Server, TTL, acquired, builder, client, servers, urls, voting};

/// Number of refusals after which a caller without hints pauses for more than three seconds.
const REFUSALS: usize = 11;
const SOON: Duration = Duration::from_secs(1);

/// The guard of a key, a caller of another process that waits for it, and the number of its refusals.
///
/// The caller polls at its lowest rate, and was refused often enough that its next pause is long.
async fn contended(
    holder: &Client,
    servers: &[Server],
) -> (Guard, JoinHandle<Result<Guard, NotAcquired>>, watch::Receiver<usize>) {
    let (refused, mut refusals) = watch::channel(0);
    let builder = builder(urls(servers)).retry(LONG).on_event(move |event| {
        if let Event::NotAcquired { error: NotAcquired::HeldByOther { .. }, .. } = event {
            refused.send_modify(|count| *count += 1);
        }
    });
    let waiter = builder.connect().await.unwrap();
    voting(&waiter, servers.len()).await;
    let guard = acquired(holder, "k").await;
    let task = tokio::spawn(async move { waiter.lock("k").ttl(TTL).wait(2 * LONG).acquire().await });
    timeout(LONG, refusals.wait_for(|count| *count >= REFUSALS)).await.unwrap().unwrap();
    (guard, task, refusals)
}

#[tokio::test]
async fn a_release_ends_the_pause_of_waiters_in_another_process() {
    let servers = servers(5).await;
    let holder = client(&servers).await;
    let (guard, task, _) = contended(&holder, &servers).await;
    // A silent member delays no hint.
    servers[0].signal("-STOP");
    let _ = guard.release().await;
    let guard = timeout(SOON, task).await.expect("a hint arrived").unwrap().unwrap();
    servers[0].signal("-CONT");
    let _ = guard.release().await;
}

async fn refusals_logged(server: &Server) -> usize {
    // The first line of the answer is the number of entries.
    server.ask("ACL LOG").await.unwrap().trim_start_matches('*').parse().unwrap()
}

/// Users without permission to publish get no hints, and members do not log a refusal for each release.
#[tokio::test]
async fn a_client_that_cannot_publish_waits_as_before() {
    let servers = servers(3).await;
    ask_all(&servers, "ACL SETUSER mute reset on >secret ~* resetchannels +@all -publish -subscribe").await;
    let urls = logged_in(&servers, "mute:secret");
    let connect = async || builder(urls.clone()).connect().await.unwrap();
    let (one, other) = (connect().await, connect().await);
    voting(&one, 3).await;
    voting(&other, 3).await;
    for _ in 0..20 {
        let guard = one.lock("k").ttl(TTL).wait(LONG).acquire().await.unwrap();
        let waiting = other.clone();
        let task = tokio::spawn(async move { waiting.lock("k").ttl(TTL).wait(LONG).acquire().await });
        sleep(Duration::from_millis(1)).await;
        let _ = guard.release().await;
        let guard = task.await.unwrap().unwrap();
        let _ = guard.release().await;
    }
    for server in &servers {
        // One entry for each voting connection, and one for each listener.
        assert!(refusals_logged(server).await <= 4, "{}", refusals_logged(server).await);
    }
}

/// Without turns, a client that has released a lock would get it again each time.
///
/// Its next request directly follows the release.
#[tokio::test]
async fn clients_that_contend_take_turns() {
    const CLIENTS: usize = 3;
    const HOLDS: usize = 240;
    let servers = servers(3).await;
    let all = Arc::new(AtomicUsize::new(0));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(&servers).await);
    }
    let mut tasks = JoinSet::new();
    for client in clients {
        let all = Arc::clone(&all);
        tasks.spawn(async move {
            let mut own = 0;
            while all.fetch_add(1, Ordering::Relaxed) < HOLDS {
                let guard = client.lock("k").ttl(TTL).wait(2 * LONG).acquire().await.unwrap();
                sleep(Duration::from_millis(2)).await;
                let _ = guard.release().await;
                own += 1;
            }
            own
        });
    }
    let counts = tasks.join_all().await;
    assert!(counts.iter().all(|own| *own >= HOLDS / CLIENTS / 3), "{counts:?}");
}

/// A user with permissions on the channel can publish anything.
///
/// A forged message costs attempts, but grants no lock.
#[tokio::test]
async fn a_forged_message_acquires_no_lock() {
    let servers = servers(3).await;
    let holder = client(&servers).await;
    let (guard, task, mut refusals) = contended(&holder, &servers).await;
    for message in ["0", "1", "7", "8", "-6", "-9223372036854775808", "9223372036854775807", "word", ""] {
        for server in &servers {
            let receivers = server.ask(&format!("PUBLISH redisson_lock__channel:{{k}} \"{message}\"")).await.unwrap();
            // The holder's client does not listen.
            assert_eq!(receivers, ":1", "{message}");
        }
    }
    timeout(LONG, refusals.wait_for(|count| *count > REFUSALS)).await.unwrap().unwrap();
    assert!(guard.is_held() && !task.is_finished());
    let _ = guard.release().await;
    let _ = timeout(LONG, task).await.unwrap().unwrap().unwrap().release().await;
}

#[tokio::test]
async fn a_notified_waiter_polls_once_a_second() {
    let servers = servers(3).await;
    let (holder, waiter) = (client(&servers).await, client(&servers).await);
    let guard = acquired(&holder, "k").await;
    let task = tokio::spawn(async move { waiter.lock("k").ttl(TTL).wait(2 * LONG).acquire().await });
    // The first attempts follow each other quickly.
    sleep(Duration::from_secs(3)).await;
    ask_all(&servers, "CONFIG RESETSTAT").await;
    sleep(Duration::from_secs(4)).await;
    for server in &servers {
        let (attempts, messages) = (server.calls("set").await, server.calls("publish").await);
        assert!(
            attempts <= 8 && (1..=14).contains(&messages),
            "{attempts} attempts, {messages} messages in four seconds"
        );
    }
    let _ = guard.release().await;
    assert!(timeout(SOON, task).await.expect("a hint arrived").unwrap().is_ok());
}
