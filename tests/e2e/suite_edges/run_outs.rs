//! The write that begins the end of a hold fails at first.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::Validity;
use serde_json::json;

use super::support::{suspend, with};
use crate::{
    believers::{check_apart, check_tokens},
    bench::Bench,
    crash::{
        gate::Gate,
        world::{self, World},
    },
    locks::{Lock, SOON, claim, status},
    spans::millis,
};

/// The lock is renewed every 3 s, so at least 6 s minus the drift are always left.
const TTL: Duration = Duration::from_secs(9);
const LEFT: Duration = Duration::from_millis(5500);
const STATUS: &str = "/distributedlocks/subject-a/status";

/// The result of the first write.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    /// Another client wrote the lock before it.
    Conflict,
    /// The API server has a fault.
    Fault,
}

pub(crate) async fn a_failed_first_write_of_an_ending_cuts_no_hold_short(bench: Bench) -> anyhow::Result<()> {
    world::within(&bench, async |world| {
        let (victim, gate) = world.victim().await?;
        for mishap in [Mishap::Conflict, Mishap::Fault] {
            for validity in ["Transitions", "Published"] {
                let result = runs_out(world, &gate, validity, mishap).await;
                result.with_context(|| format!("validity: {validity}, {mishap:?}"))?;
            }
        }
        drop(victim);
        world.survivor_leads();
        world.check_steady()
    })
    .await
}

async fn runs_out(world: &World, gate: &Gate, validity: &str, mishap: Mishap) -> anyhow::Result<()> {
    let manifest = with(claim("subject-a", "subject", Some("q"), TTL), json!({"validity": validity}));
    let first = Lock::take(&world.bench, manifest).await?;
    let next = Lock::queue(&world.bench, claim("subject-b", "subject", Some("q"), TTL)).await?;
    // The published validity of the grant expires, but the lock does not.
    tokio::time::sleep(TTL + Duration::from_secs(1)).await;
    let asked = meets(world, gate, &first, mishap).await?;
    let held = next.held(TTL + SOON).await?;
    let waited = held.wall.0 - asked;
    ensure!(waited >= millis(LEFT), "the next holder came {waited} ms after the renewals were stopped");
    check_tokens(&check_apart(&[&first, &next], &[])?)?;
    let ending = first.reason("Ending", SOON).await?;
    let until = status(&ending.object).valid_until.context("an end without validUntil")?.as_millis();
    ensure!(held.wall.0 >= until, "the next holder came {} ms before the published end", until - held.wall.0);
    next.remove().await?;
    first.remove().await
}

/// Lets the write that records the end of the hold fail in this way.
///
/// Returns the time of the request to end the hold.
async fn meets(world: &World, gate: &Gate, first: &Lock, mishap: Mishap) -> anyhow::Result<i64> {
    let until_delayed = async || tokio::time::timeout(SOON, gate.until_delayed()).await.context("nothing was written");
    let publishes = first.recorder.last()?.object.spec.validity == Validity::Published;
    if publishes {
        // A delayed renewal blocks other writes until the end is requested, so the next write is the relevant one.
        gate.delay_write(STATUS);
        until_delayed().await?;
    } else {
        begin(gate, mishap);
    }
    let asked = world.bench.wall().0;
    suspend(first, true).await?;
    if publishes {
        begin(gate, mishap);
    }
    match mishap {
        Mishap::Fault => tokio::time::timeout(SOON, gate.until_failed()).await.context("nothing was written")?,
        Mishap::Conflict => {
            until_delayed().await?;
            let note = r#"{"metadata":{"annotations":{"example.org/note":"somebody else was here"}}}"#;
            world.bench.patch("dlock", &first.name, note).await?;
            gate.continue_write();
        }
    }
    Ok(asked)
}

fn begin(gate: &Gate, mishap: Mishap) {
    match mishap {
        Mishap::Conflict => gate.delay_write(STATUS),
        Mishap::Fault => gate.fail_write(STATUS),
    }
}
