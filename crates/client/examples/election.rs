//! Several machines, of which one leads: `cargo run --example election redis://a redis://b redis://c`.

use redlock_client::Client;
use std::ops::ControlFlow;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let members: Vec<String> = std::env::args().skip(1).collect();
    let client = Client::builder(&members).wait_before_voting(Duration::from_secs(10)).connect().await?;
    let election = client.election("controller").ttl(Duration::from_secs(10));
    let turns = election.run(|leader| async move {
        println!("leading, token {}", leader.token());
        for _ in 0..3 {
            // A store that compares tokens refuses the writes of a former leader.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        println!("stepping down");
        ControlFlow::<()>::Continue(())
    });
    tokio::select! {
        ended = turns => ended?,
        () = tokio::time::sleep(Duration::from_secs(60)) => {}
    }
    client.close(Duration::from_secs(2)).await?;
    Ok(())
}
