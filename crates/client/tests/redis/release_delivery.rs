//! Releases that are asked for at the same moment.

use std::future::ready;

use redlock_client::{Client, Guard};

use crate::servers::{ask_all, is_gone, logged_in};
use crate::{Server, TTL, acquired, client, servers, voting};

async fn held(client: &Client, count: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(acquired(client, &format!("k{number}")).await);
    }
    guards
}

async fn are_gone(servers: &[Server], count: usize) {
    for number in 0..count {
        is_gone(servers, &format!("k{number}")).await;
    }
}

#[tokio::test]
async fn many_locks_are_released_by_few_calls() {
    let servers = servers(3).await;
    let client = client(&servers).await;
    let guards = held(&client, 100).await;
    ask_all(&servers, "CONFIG RESETSTAT").await;
    drop(guards);
    are_gone(&servers, 100).await;
    for server in &servers {
        let calls = server.calls("evalsha").await;
        assert!((1..=4).contains(&calls), "{calls} calls");
    }
    // Each of the locks is free.
    drop(held(&client, 100).await);
}

#[tokio::test]
async fn a_forbidden_key_does_not_prevent_other_releases() {
    let servers = servers(3).await;
    ask_all(&servers, "ACL SETUSER narrow on >p ~k* ~#token resetchannels +@all").await;
    let client = Client::builder(logged_in(&servers, "narrow:p")).admit_at_once().connect().await.unwrap();
    voting(&client, 3).await;
    for _ in 0..2 {
        let guards = held(&client, 8).await;
        // An attempt that is dropped at once sends its releases at this moment.
        tokio::select! {
            biased;
            _ = client.lock("forbidden").ttl(TTL).try_acquire() => panic!("it was not answered yet"),
            () = ready(()) => {}
        }
        drop(guards);
        are_gone(&servers, 8).await;
    }
}
