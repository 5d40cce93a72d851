//! A job that several machines start at the same time, and one of them runs: `cargo run --example cron redis://a redis://b redis://c`.
//!
//! The starts of the machines are some seconds apart, and the job can be shorter than that. Therefore the first machine keeps the lock for a
//! minute, and the other machines find it taken.

use redlock_client::{Client, NotAcquired};
use std::time::Duration;

/// The time for which the lock is kept.
///
/// It is longer than the time between the machines' starts, and shorter than the time to the next run.
const LEAST: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members: Vec<String> = std::env::args().skip(1).collect();
    // These masters serve only this program. A restart of one of them can grant the lock to a second holder: see the crate's page on
    // admission.
    let client = Client::builder(&members).admit_at_once().connect().await?;
    match client.lock("nightly-report").ttl(Duration::from_secs(30)).try_acquire().await {
        Ok(guard) => {
            println!("running, token {}", guard.token());
            guard.run_while_held(tokio::time::sleep(Duration::from_millis(5))).await?;
            guard.leave(LEAST).await?;
        }
        Err(NotAcquired::HeldByOther { .. }) => println!("another machine runs it"),
        Err(error) => return Err(error.into()),
    }
    client.close(Duration::from_secs(2)).await?;
    Ok(())
}
