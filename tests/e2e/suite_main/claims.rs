//! Claims on one key queue up.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, message_of, reason_of, status, token},
    record::Version,
};

const TTL: Duration = Duration::from_secs(5);

pub(crate) async fn a_second_claim_waits_for_the_first(bench: Bench) -> anyhow::Result<()> {
    let first = Lock::create(&bench, claim("first", "reindex", None, TTL)).await?;
    let held = first.held(SOON).await?;
    let now = status(&held.object);
    ensure!(now.holder.as_ref().is_some_and(|holder| holder.identity == "first"), "{now:?}");
    let valid_until = now.valid_until.context("no validUntil")?.as_millis();
    ensure!(valid_until > held.wall.0, "validUntil is not in the future: {now:?}");
    ensure!(valid_until <= held.wall.0 + i64::try_from(TTL.as_millis())?, "validUntil is too far away: {now:?}");
    bench.kubectl(&["wait", "--for=condition=Held", "dlock/first", "--timeout=10s"]).await?;
    // A majority decides the grant, so the status can have the third vote only after the next renewal.
    first.fully_voted(TTL).await?;
    check_columns(&bench, token(&held.object)?).await?;

    let second = Lock::create(&bench, claim("second", "reindex", None, TTL)).await?;
    let queued = second.reason("Queued", SOON).await?;
    let waiting = status(&queued.object);
    ensure!(waiting.queue_position == Some(1) && waiting.holder.is_none(), "{waiting:?}");
    ensure!(message_of(&queued.object, "Held").contains("first"), "the message does not name the holder: {waiting:?}");

    let renewed = |v: &Version<_>| status(&v.object).valid_until.map(|u| u.as_millis()) > Some(valid_until);
    first.recorder.until(TTL, "renewed", renewed).await?;
    let removed = bench.now();
    first.remove().await?;
    let next = second.held(SOON).await?;
    ensure!(token(&next.object)? > token(&held.object)?, "the next token is not greater: {:?}", status(&next.object));
    let both = second.recorder.versions().iter().any(|v| v.at < removed && is_held(&v.object));
    ensure!(!both, "the second claim was held before the first was deleted");
    ensure!(reason_of(&next.object, "Held") == Some("Held"), "{:?}", status(&next.object));
    Ok(())
}

async fn check_columns(bench: &Bench, token: i64) -> anyhow::Result<()> {
    let table = bench.kubectl(&["get", "dlock", "first"]).await?;
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let (head, row) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let wanted = ["NAME", "KEY", "HOLDER", "STATUS", "VOTES", "TOKEN", "VALID-UNTIL", "AGE"];
    ensure!(head == wanted, "kubectl get dlock shows:\n{table}");
    let cells = ["first", "reindex", "first", "Held", "3/3", &token.to_string()];
    ensure!(row.starts_with(&cells), "kubectl get dlock shows:\n{table}");
    Ok(())
}
