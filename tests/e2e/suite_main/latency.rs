//! The latency of a lock: from before the request to the watch event with Held.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, reason_of, token},
};

const ROUNDS: usize = 20;
const LIMIT: Duration = Duration::from_millis(100);
const TTL: Duration = Duration::from_secs(5);

pub(crate) async fn a_claim_is_held_within_a_tenth_of_a_second(bench: Bench) -> anyhow::Result<()> {
    const WHAT: &str = "apply -> Held";
    for round in 0..ROUNDS {
        let name = format!("claim-{round}");
        let recorder = bench.record(&name).await?;
        let start = bench.now();
        bench.create::<redlock_operator::api::DistributedLock>(claim(&name, &name, None, TTL)).await?;
        let held = recorder.until(SOON, "Held", |version| is_held(&version.object)).await?;
        bench.figures.add(WHAT, held.at.since(start));
    }
    bench.figures.ensure_median_under(WHAT, LIMIT)
}

pub(crate) async fn the_next_claim_follows_a_release_within_a_tenth_of_a_second(bench: Bench) -> anyhow::Result<()> {
    const WHAT: &str = "release -> next claim Held";
    let mut holder = Lock::create(&bench, claim("claim-0", "key", None, TTL)).await?;
    for round in 1..=ROUNDS {
        let held = holder.held(SOON).await?;
        let next = Lock::create(&bench, claim(&format!("claim-{round}"), "key", None, TTL)).await?;
        next.reason("Queued", SOON).await?;
        ensure!(reason_of(&holder.recorder.last()?.object, "Held") == Some("Held"), "the holder lost the lock");
        let start = bench.now();
        holder.delete().await?;
        let next_held = next.held(SOON).await?;
        bench.figures.add(WHAT, next_held.at.since(start));
        ensure!(token(&next_held.object)? > token(&held.object)?, "the next token is not greater");
        holder = next;
    }
    bench.figures.ensure_median_under(WHAT, LIMIT)
}
