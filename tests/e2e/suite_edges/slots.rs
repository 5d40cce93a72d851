//! Claims that use one key with different numbers of slots have different keys in Redis.
//!
//! Only the operator keeps them apart.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::support::{LockVersion, with};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, message_of, reason_of, status},
    suite_causes::surfaces::lock_names,
    suite_lock::support::next_second,
};

const TTL: Duration = Duration::from_secs(4);

fn shaped(name: &str, slots: i32, more: Value) -> Value {
    with(with(claim(name, "batch", None, TTL), json!({"slots": slots})), more)
}

async fn refused(lock: &Lock) -> anyhow::Result<LockVersion> {
    let is_it = |v: &LockVersion| reason_of(&v.object, "Accepted") == Some("KeyShapeConflict");
    lock.recorder.until(SOON, "refused for its slots", is_it).await
}

/// Checks that no holder with one number of slots overlaps one with another.
///
/// The order is that of the changes in the API server.
fn check_shapes(locks: &[&Lock]) -> anyhow::Result<()> {
    let mut changes: Vec<(u64, &str, i32, bool)> = Vec::new();
    for lock in locks {
        for version in lock.recorder.versions() {
            let order = version.object.metadata.resource_version.as_deref().unwrap_or_default().parse()?;
            let holds = status(&version.object).holder.is_some() && !version.gone;
            changes.push((order, &lock.name, version.object.spec.slots, holds));
        }
    }
    changes.sort_unstable();
    let mut holding = std::collections::BTreeMap::new();
    for (_, name, slots, holds) in changes {
        if holds {
            holding.insert(name, slots);
        } else {
            holding.remove(name);
        }
        let shapes: std::collections::BTreeSet<_> = holding.values().collect();
        ensure!(shapes.len() < 2, "holders with different numbers of slots: {holding:?}");
    }
    Ok(())
}

/// Claims of another shape neither block a holder nor join it.
///
/// Such claims wait before and behind claims of the holder's shape. They are not granted next to a holder, even after the
/// oldest object is deleted. When the key is free, the oldest waiting claim decides the shape.
pub(crate) async fn claims_of_another_shape_neither_block_nor_join_a_holder(bench: Bench) -> anyhow::Result<()> {
    let spent = Lock::take(&bench, shaped("spent", 1, json!({}))).await?;
    next_second(&bench).await;
    let holder = Lock::queue(&bench, shaped("holder", 1, json!({}))).await?;
    next_second(&bench).await;
    let other = Lock::create(&bench, shaped("other", 2, json!({}))).await?;
    let why = other.reason("NotAccepted", SOON).await?;
    ensure!(reason_of(&why.object, "Accepted") == Some("KeyShapeConflict"), "{:?}", status(&why.object));
    let message = message_of(&why.object, "Accepted");
    ensure!(message.contains("spent") && message.contains("slots: 1"), "the message: {message}");
    lock_names(&bench, "other", "KeyShapeConflict", &["slots", "spent"]).await?;
    // The first claim ends, and its finished object stays.
    bench.break_lock("spent", "break-force", "the test").await?;
    holder.held(SOON).await?;
    next_second(&bench).await;
    let urgent = Lock::create(&bench, shaped("urgent", 2, json!({"priority": 5}))).await?;
    refused(&urgent).await?;
    let behind = Lock::create(&bench, shaped("behind", 1, json!({}))).await?;
    let queued = behind.reason("Queued", SOON).await?;
    let position = status(&queued.object).queue_position;
    ensure!(position == Some(1), "refused claims must not count in the queue: {position:?}");

    // The oldest object is deleted, and the oldest waiting one has another shape.
    spent.remove().await?;
    other.recorder.never_during(0, TTL, "let in beside a holder", |v| is_held(&v.object)).await?;
    urgent.recorder.never_during(0, Duration::ZERO, "let in beside a holder", |v| is_held(&v.object)).await?;
    // The oldest waiting claim shares the free key with claims of its shape. Other claims wait for both.
    holder.delete().await?;
    for lock in [&urgent, &other] {
        lock.held(SOON).await?;
    }
    let mutex = Lock::create(&bench, shaped("mutex", 1, json!({"priority": 9}))).await?;
    let why = refused(&mutex).await?;
    let message = message_of(&why.object, "Accepted");
    ensure!(message.contains("slots: 2"), "the message: {message}");
    mutex.recorder.never_during(0, TTL, "let in beside two holders", |v| is_held(&v.object)).await?;
    urgent.delete().await?;
    mutex.recorder.never_during(0, TTL, "let in beside a holder", |v| is_held(&v.object)).await?;
    behind.recorder.never_during(0, Duration::ZERO, "let in beside a holder", |v| is_held(&v.object)).await?;
    other.delete().await?;
    mutex.held(SOON).await?;
    mutex.delete().await?;
    behind.held(SOON).await?;
    check_shapes(&[&spent, &other, &holder, &urgent, &behind, &mutex])
}
