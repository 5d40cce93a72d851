//! A job that several machines start at the same time, and one of them runs: `cargo run --example cron redis://a redis://b redis://c`.

use redlock_client::{Client, NotAcquired};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members: Vec<String> = std::env::args().skip(1).collect();
    // These masters are nobody's but ours, and a restart of one may give the lock away: see the crate's page on admission.
    let client = Client::admit_at_once(&members).connect().await?;
    match client.try_acquire("nightly-report", Duration::from_secs(30)).await {
        Ok(guard) => {
            println!("running, token {}", guard.token());
            guard.run_while_held(tokio::time::sleep(Duration::from_secs(2))).await?;
            let _ = guard.release().await;
        }
        Err(NotAcquired::HeldByOther { .. }) => println!("another machine runs it"),
        Err(error) => return Err(error.into()),
    }
    client.close(Duration::from_secs(2)).await?;
    Ok(())
}
