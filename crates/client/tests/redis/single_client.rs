//! Callers and events of one client.

use std::time::Duration;

use redlock_client::{Event, FencingToken, NotAcquired};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::servers::{servers, urls};
use super::{LONG, TTL, acquired, builder, client, voting};

#[tokio::test]
async fn waiters_of_a_client_are_served_in_order() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let first = acquired(&client, "k").await;
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for number in 0..5 {
        let (waiter, sender) = (client.clone(), sender.clone());
        let (queued, is_queued) = tokio::sync::oneshot::channel();
        tasks.spawn(async move {
            let acquire = waiter.lock("k").ttl(TTL).wait(LONG).acquire();
            let mut acquire = std::pin::pin!(acquire);
            // The first poll joins the queue.
            let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(acquire.as_mut().poll(cx).is_ready())).await;
            assert!(!polled);
            queued.send(()).unwrap();
            let guard = acquire.await.unwrap();
            sender.send(number).unwrap();
            let _ = guard.release().await;
        });
        is_queued.await.unwrap();
    }
    let _ = first.release().await;
    for number in 0..5 {
        assert_eq!(order.recv().await, Some(number));
    }
    tasks.join_all().await;
}

#[tokio::test]
async fn events_report_attempts_renewals_and_losses() {
    let servers = servers(3).await;
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let builder = builder(urls(&servers)).on_event(move |event| {
        let name = match event {
            Event::Acquired { token, .. } if token > FencingToken::ZERO => "acquired",
            Event::NotAcquired { error: NotAcquired::HeldByOther { .. }, .. } => "refused",
            Event::Renewed { .. } => "renewed",
            Event::Lost { .. } => "lost",
            Event::Member { .. } => return,
            _ => "other",
        };
        sender.send(name).unwrap();
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
