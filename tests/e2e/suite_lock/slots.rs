//! A key with several holders at once.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::support::{LockVersion, next_second, with};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, status, token},
};

const TTL: Duration = Duration::from_secs(4);

pub(crate) async fn two_of_three_claims_share_two_slots(bench: Bench) -> anyhow::Result<()> {
    let slotted = |name: &str| with(claim(name, "batch", None, TTL), json!({"slots": 2}));
    let first = Lock::create(&bench, slotted("first")).await?;
    let second = Lock::create(&bench, slotted("second")).await?;
    let (one, two) = (first.held(SOON).await?, second.held(SOON).await?);
    next_second(&bench).await;
    let third = Lock::create(&bench, slotted("third")).await?;
    let queued = third.reason("Queued", SOON).await?;
    ensure!(status(&queued.object).queue_position == Some(1), "{:?}", status(&queued.object));
    let slot = |v: &LockVersion| status(&v.object).holder.and_then(|holder| holder.slot);
    let slots: BTreeSet<_> = [slot(&one), slot(&two)].into();
    ensure!(slots == [Some(0), Some(1)].into(), "the slots are {slots:?}");
    ensure!(token(&one.object)? != token(&two.object)?, "both have the token {}", token(&one.object)?);

    // Both stay held over several renewals, and the third is not granted.
    for lock in [&first, &second] {
        let valid = status(&lock.recorder.last()?.object).valid_until.context("no validUntil")?;
        let later = |v: &LockVersion| {
            status(&v.object).valid_until.is_some_and(|until| until.as_millis() > valid.as_millis() + 2000)
        };
        lock.recorder.until(SOON, "renewed twice", later).await?;
        ensure!(is_held(&lock.recorder.last()?.object), "{} was lost", lock.name);
    }
    ensure!(!third.was_held(), "three hold two slots");

    second.delete().await?;
    let three = third.held(SOON).await?;
    ensure!(slot(&three) == slot(&two), "it got slot {:?}, not the free one {:?}", slot(&three), slot(&two));
    ensure!(token(&three.object)? > token(&two.object)?, "the next token of the slot is not greater");
    ensure!(is_held(&first.recorder.last()?.object), "the other slot was lost");
    Ok(())
}
