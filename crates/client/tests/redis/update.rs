//! Passwords that are exchanged while a client lives.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_client::{BuildError, Client};
use tokio::time::{sleep, timeout};

use crate::servers::{ask_all, logged_in};
use crate::{LONG, Server, TTL, servers};

fn secret(servers: &[Server], password: &str) -> BTreeMap<String, Vec<u8>> {
    let urls = logged_in(servers, &format!("app:{password}")).join("\n");
    let quorum = (servers.len() / 2 + 1).to_string();
    let entries = [
        ("urls", urls.as_str()),
        ("keyPrefix", "app/"),
        ("maxTTL", "30s"),
        ("clockDrift", "10000ppm 2ms"),
        ("nodeTimeout", "400ms"),
        ("quorum", &quorum),
        ("fenced", "true"),
    ];
    entries.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into()
}

#[tokio::test]
async fn a_lock_outlives_an_exchange_of_passwords() {
    let servers = servers(3).await;
    ask_all(&servers, "ACL SETUSER app on >old ~* &* +@all").await;
    let client = Client::from_secret(&secret(&servers, "old")).unwrap().connect().await.unwrap();
    let guard = client.lock("app/k").ttl(Duration::from_secs(2)).wait(LONG).acquire().await.unwrap();
    ask_all(&servers, "ACL SETUSER app <old >new").await;
    client.update(&secret(&servers, "new")).unwrap();
    for server in &servers {
        server.ask("CLIENT KILL TYPE normal").await;
    }
    sleep(Duration::from_secs(5)).await;
    assert!(guard.is_held());
    drop(guard);
    let again = timeout(LONG, client.lock("app/k").ttl(TTL).acquire()).await.unwrap();
    assert!(again.is_ok());
    assert_eq!(client.update(&secret(&servers[..1], "new")), Err(BuildError::Stale));
    let mut other = secret(&servers, "new");
    other.insert("maxTTL".to_owned(), b"20s".to_vec());
    assert_eq!(client.update(&other), Err(BuildError::Stale));
}
