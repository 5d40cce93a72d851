//! A program without a runtime: `cargo run --features blocking --example blocking redis://a redis://b redis://c`.

use redlock_client::Client;
use redlock_client::blocking;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members: Vec<String> = std::env::args().skip(1).collect();
    let client = blocking::Client::connect(Client::builder(&members).admit_at_once())?;
    let guard = client.lock("import").ttl(Duration::from_secs(10)).wait(Duration::from_secs(60)).acquire()?;
    for part in 0..3 {
        // The guard is renewed during the work. A program that cannot be interrupted checks it before each step.
        if guard.remaining() < Duration::from_secs(2) {
            return Err("the lock is lost".into());
        }
        println!("part {part}, with token {}", guard.token());
    }
    let _ = guard.release();
    client.close(Duration::from_secs(2))?;
    Ok(())
}
