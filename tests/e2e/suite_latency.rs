//! The latency of a lock: from before the request to the watch event with Held.
//!
//! The limits are those of an optimized operator on an idle machine. Therefore `make test` does not run this suite.

use std::time::Duration;

use anyhow::ensure;
use kube::ResourceExt as _;
use redlock_operator::api::DistributedLock;

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, reason_of, token},
    record::Recorder,
    runner::{Test, tests},
};

pub(crate) const TESTS: &[Test] = tests![
    anywhere self::a_claim_is_held_within_a_tenth_of_a_second,
    anywhere self::the_next_claim_follows_a_release_within_a_tenth_of_a_second,
];

const ROUNDS: usize = 20;
const LIMIT: Duration = Duration::from_millis(100);
const TTL: Duration = Duration::from_secs(5);

pub(crate) async fn a_claim_is_held_within_a_tenth_of_a_second(bench: Bench) -> anyhow::Result<()> {
    const WHAT: &str = "apply -> Held";
    // A watch opens after its list, so a recorder for each claim would add the time of a TLS handshake.
    let recorder = Recorder::labelled(bench.api::<DistributedLock>(), "").await?;
    for round in 0..ROUNDS {
        let name = format!("claim-{round}");
        let start = bench.now();
        bench.create::<DistributedLock>(claim(&name, &name, None, TTL)).await?;
        let is_this = |lock: &DistributedLock| lock.name_any() == name && is_held(lock);
        let held = recorder.until(SOON, "Held", |version| is_this(&version.object)).await?;
        bench.figures.add(WHAT, held.at.since(start));
    }
    bench.figures.ensure_median_under(WHAT, LIMIT)
}

pub(crate) async fn the_next_claim_follows_a_release_within_a_tenth_of_a_second(bench: Bench) -> anyhow::Result<()> {
    const WHAT: &str = "release -> next claim Held";
    let mut holder = Lock::create(&bench, claim("claim-0", "key", None, TTL)).await?;
    for round in 1..=ROUNDS {
        let held = holder.held(SOON).await?;
        let next = Lock::queue(&bench, claim(&format!("claim-{round}"), "key", None, TTL)).await?;
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
