//! Requests of users by annotation: step down, break, break by force.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use redlock_operator::api::leader_label;

use super::support::{LockVersion, SECOND, check_waited, election, finished, leader, led_by, past, run_pair};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, reason_of, token},
    record::Recorder,
    suite_causes::surfaces::lock_names,
};

const TTL: Duration = Duration::from_secs(4);

pub(crate) async fn a_leader_steps_down_on_request(bench: Bench) -> anyhow::Result<()> {
    run_pair(&bench, "app", ["app-0", "app-1"]).await?;
    let lock = Lock::create(&bench, election("app", "app", TTL)).await?;
    let held = lock.held(SOON).await?;
    let first = leader(&held.object).context("no leader")?;
    let second = if first == "app-0" { "app-1" } else { "app-0" };
    let mark = lock.recorder.mark();
    let start = bench.now();
    bench.kubectl(&["annotate", "dlock", "app", "redlock-operator.io/step-down=please"]).await?;
    let next = led_by(&lock, mark, second, TTL + SOON).await?;
    bench.figures.add("step-down -> next leader (ttl 4 s)", next.at.since(start));
    check_waited(&lock, token(&held.object)?, &next, Duration::ZERO, SECOND)?;
    let past = past(&next)?;
    ensure!(past.reason == "SteppedDown" && past.identity == first, "{past:?}");
    let cleared = |v: &LockVersion| !v.object.annotations().keys().any(|name| name.contains("step-down"));
    lock.recorder.until_after(mark, SOON, "the annotation is gone", cleared).await?;
    // The label has moved to the new leader, which keeps the lock.
    let labelled = Recorder::<Pod>::labelled(bench.api(), &format!("{}=true", leader_label("app"))).await?;
    labelled.until(SOON, "the next leader has the label", |v| v.object.name_any() == second).await?;
    ensure!(leader(&lock.recorder.last()?.object).as_deref() == Some(second), "the new leader was replaced");
    Ok(())
}

pub(crate) async fn a_broken_lock_expires_and_history_names_user_and_reason(bench: Bench) -> anyhow::Result<()> {
    let first = Lock::create(&bench, claim("first", "job", None, TTL)).await?;
    let held = token(&first.held(SOON).await?.object)?;
    let next = Lock::queue(&bench, claim("next", "job", None, TTL)).await?;
    bench.break_lock("first", "break", "stuck since noon").await?;
    first.reason("Ending", SOON).await?;
    let after = next.held(TTL + SOON).await?;
    check_waited(&first, held, &after, Duration::ZERO, SECOND)?;
    let end = finished(&first, "Broken", SOON).await?;
    let past = past(&end)?;
    let message = past.message.clone().unwrap_or_default();
    ensure!(past.reason == "Broken" && past.fencing_token == Some(held), "{past:?}");
    ensure!(message.contains(": stuck since noon"), "the history has no name and reason: {message}");
    let events = bench.kubectl(&["get", "events", "--field-selector=involvedObject.name=first"]).await?;
    ensure!(events.contains("stuck since noon"), "no Event has the reason:\n{events}");
    lock_names(&bench, "first", "Broken", &["stuck since noon", &bench.user().await?]).await
}

pub(crate) async fn a_forced_break_frees_the_lock_at_once_and_is_in_the_history(bench: Bench) -> anyhow::Result<()> {
    let ttl = Duration::from_secs(20);
    let first = Lock::create(&bench, claim("first", "job", None, ttl)).await?;
    let held = token(&first.held(SOON).await?.object)?;
    let next = Lock::queue(&bench, claim("next", "job", None, ttl)).await?;
    let start = bench.now();
    bench.break_lock("first", "break-force", "machine is off").await?;
    let after = next.held(SOON).await?;
    let took = after.at.since(start);
    bench.figures.add("break-force -> next claim Held", took);
    ensure!(took < 2 * SECOND, "the next claim was held only after {took:?}");
    ensure!(token(&after.object)? > held, "the next token is not greater");
    let end = finished(&first, "Broken", SOON).await?;
    let message = past(&end)?.message.unwrap_or_default();
    ensure!(message.contains("exclusion was given up: ") && message.ends_with(": machine is off"), "{message}");
    ensure!(reason_of(&end.object, "Held") == Some("Broken"), "{:?}", end.object.status);
    Ok(())
}
