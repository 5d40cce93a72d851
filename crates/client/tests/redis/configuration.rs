//! Wrong configurations: the error names the cause.

use std::time::Duration;

use redlock_client::{BuildError, Client, Drift};
use redlock_client::{MemberError, Unfit};

use crate::servers::{ask_all, logged_in};
use crate::{LONG, Server, TTL, free_port, servers, urls};

async fn refused(urls: Vec<String>) -> BuildError {
    loop {
        // On a busy machine sometimes no member answers within a second.
        if let Err(error) = Client::builder(&urls).admit_at_once().connect().await {
            return error;
        }
    }
}

#[tokio::test]
async fn a_password_that_is_missing_or_wrong_is_named() {
    let servers = servers(3).await;
    ask_all(&servers, "CONFIG SET requirepass p").await;
    assert!(matches!(refused(urls(&servers)).await, BuildError::Member(_, MemberError::NoPassword)));
    assert!(matches!(refused(logged_in(&servers, ":q")).await, BuildError::Member(_, MemberError::Refused)));
    assert!(Client::builder(logged_in(&servers, ":p")).admit_at_once().connect().await.is_ok());
}

#[tokio::test]
async fn a_server_that_can_hold_no_locks_is_refused() {
    let servers = servers(3).await;
    ask_all(&servers[..1], "CONFIG SET maxmemory-policy allkeys-lru").await;
    let error = refused(urls(&servers[..1])).await;
    assert!(matches!(&error, BuildError::Member(_, MemberError::Unfit(Unfit::Evicts(_)))), "{error}");
    assert!(error.to_string().contains("set noeviction"), "{error}");
    // Otherwise the replica writes the data of its master into a file in the current folder.
    ask_all(&servers[1..2], "CONFIG SET repl-diskless-load swapdb").await;
    ask_all(&servers[1..2], &format!("REPLICAOF 127.0.0.1 {}", servers[2].port)).await;
    let error = refused(urls(&servers[1..2])).await;
    assert!(matches!(error, BuildError::Member(_, MemberError::Unfit(Unfit::Replica))), "{error}");
    let nodes = std::env::temp_dir().join(format!("redlock-nodes-{}", servers[0].port));
    // Without a port for the bus, the server takes its own port and 10,000, which can be too high.
    let bus = free_port().to_string();
    let options =
        ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-config-file", nodes.to_str().unwrap()];
    let cluster = Server::on(free_port(), &options).await;
    let error = refused(urls(std::slice::from_ref(&cluster))).await;
    assert!(matches!(error, BuildError::Member(_, MemberError::Unfit(Unfit::Cluster))), "{error}");
    drop(cluster);
    let _ = std::fs::remove_file(nodes);
}

#[tokio::test]
async fn two_names_of_a_process_are_refused() {
    let servers = servers(2).await;
    let mut urls = urls(&servers);
    urls.push(format!("redis://localhost:{}", servers[0].port));
    let error = refused(urls).await;
    assert!(matches!(error, BuildError::SameProcess(..)), "{error}");
}

#[tokio::test]
async fn an_unusable_member_is_named_with_its_reason() {
    let servers = servers(3).await;
    let closed = Client::builder(["redis://127.0.0.1:1"]).admit_at_once().connect().await.unwrap();
    let error = closed.lock("k").ttl(TTL).try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1: unreachable: connection refused"), "{error}");

    ask_all(&servers, "ACL SETUSER narrow on >p ~#* resetchannels +@all").await;
    let client = Client::builder(logged_in(&servers, "narrow:p")).admit_at_once().connect().await.unwrap();
    let error = client.lock("k").ttl(TTL).try_acquire().await.unwrap_err().to_string();
    assert!(error.contains("the user has no right to run this command"), "{error}");

    ask_all(&servers, "SET #token text").await;
    let client = Client::builder(urls(&servers)).admit_at_once().connect().await.unwrap();
    let error = client.lock("k").ttl(TTL).wait(Duration::from_secs(1)).acquire().await.unwrap_err().to_string();
    assert!(error.contains("the key #token holds no number"), "{error}");
}

#[tokio::test]
async fn a_drift_or_a_time_to_live_that_leaves_no_lock_is_refused() {
    let urls = ["redis://127.0.0.1:1"];
    let drift = Drift { ppm: 1_000_000, floor: Duration::ZERO };
    for builder in [Client::builder(urls).admit_at_once(), Client::builder(urls).wait_before_voting(LONG)] {
        assert!(matches!(builder.drift(drift).build(), Err(BuildError::Drift)));
    }
    for max_ttl in [Duration::ZERO, Duration::MAX / 2] {
        assert!(matches!(Client::builder(urls).wait_before_voting(max_ttl).build(), Err(BuildError::MaxTtl)));
    }
}
