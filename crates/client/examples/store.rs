//! A store that refuses writes with an older fencing token than that of the last write.
//!
//! A program that was paused for longer than its lock lived then writes nothing:
//! `cargo run --example store redis://a redis://b redis://c`.

use redlock_client::{Client, FencingToken};
use std::sync::Mutex;
use std::time::Duration;

/// A database does this in one statement: `UPDATE reports SET text = $1, token = $2 WHERE token <= $2`.
///
/// An equal token passes, because the same holder can write more than once.
#[derive(Default)]
struct Store(Mutex<(FencingToken, String)>);

impl Store {
    fn write(&self, token: FencingToken, text: &str) -> Result<(), String> {
        let mut stored = self.0.lock().map_err(|_| "the store is broken".to_owned())?;
        if token < stored.0 {
            return Err(format!("token {token} is older than {}", stored.0));
        }
        *stored = (token, text.to_owned());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members: Vec<String> = std::env::args().skip(1).collect();
    // The client grants its first lock after every lock from before its start has expired.
    let client = Client::builder(&members).wait_before_voting(Duration::from_secs(10)).connect().await?;
    let store = Store::default();
    let (ttl, wait) = (Duration::from_secs(5), Duration::from_secs(60));
    let first = client.lock("report").ttl(ttl).wait(wait).acquire().await?;
    let late = first.token();
    let _ = first.release().await;
    let second = client.lock("report").ttl(ttl).wait(wait).acquire().await?;
    for text in ["new", "newer"] {
        second.run_while_held(async { store.write(second.token(), text) }).await??;
    }
    println!("the late one: {:?}", store.write(late, "old"));
    let _ = second.release().await;
    client.close(Duration::from_secs(2)).await?;
    Ok(())
}
