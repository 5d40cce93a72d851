//! rslock for the end-to-end tests. Commands come on stdin,one per line. tests/e2e/libraries.rs lists them.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};

// [snippet]
use redis::{Client, TlsCertificates};
use rslock::{Lock, LockManager};
use std::time::Duration;

fn connect(urls: &[&str], ca: Option<Vec<u8>>) -> redis::RedisResult<LockManager> {
    let client = |url: &&str| match ca.clone() {
        Some(root) => Client::build_with_tls(*url, TlsCertificates { client_tls: None, root_cert: Some(root) }),
        None => Client::open(*url),
    };
    let members = urls.iter().map(client).collect::<Result<_, _>>()?;
    let mut manager = LockManager::from_clients(members);
    manager.set_retry(1, Duration::from_millis(200));
    Ok(manager)
}

async fn reindex(manager: &LockManager, key: &str) -> Result<(), rslock::LockError> {
    // Returns `Unavailable` if another client has the lock, or too few members answer.
    let lock = manager.lock(key, Duration::from_secs(2)).await?;
    // Work for lock.validity_time milliseconds.
    let lock = manager.extend(&lock, Duration::from_secs(2)).await?;
    // Work. Do not retry a failed extension, because rslock has then released the lock on all members.
    lock.release().await;
    Ok(())
}
// [end]

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

fn held(lock: &Lock) -> String {
    format!("held {} {}", now(), now() + lock.validity_time as u128)
}

fn milliseconds(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap_or_default())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _only_one = rustls::crypto::ring::default_provider().install_default();
    let urls = std::env::var("REDLOCK_URLS")?;
    let ca = std::env::var("REDLOCK_CA").ok().map(std::fs::read).transpose()?;
    let manager = connect(&urls.split_whitespace().collect::<Vec<_>>(), ca)?;
    let (mut lines, mut lock) = (BufReader::new(stdin()).lines(), None);
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let said = match (words.as_slice(), &lock) {
            (["acquire", key, ttl], _) => match manager.lock(*key, milliseconds(ttl)).await {
                Ok(taken) => held(lock.insert(taken)),
                Err(rslock::LockError::Unavailable) => "refused".to_owned(),
                Err(error) => format!("error {error}"),
            },
            (["example", key], _) => reindex(&manager, key).await.is_ok().to_string(),
            (["extend", ttl], Some(current)) => match manager.extend(current, milliseconds(ttl)).await {
                Ok(extended) => held(lock.insert(extended)),
                Err(error) => format!("error {error}"),
            },
            (["release"], Some(current)) => {
                manager.unlock(current).await;
                "released".to_owned()
            }
            _ => "unsupported".to_owned(),
        };
        println!("{said}");
    }
    Ok(())
}
