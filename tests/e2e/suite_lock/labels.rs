//! The leader label, whatever users do to it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::api::leader_label;

use super::support::{IDLE, election, leader, led_by, run, worker};
use crate::{
    bench::Bench,
    locks::{Lock, SOON},
    record::{Recorder, Version},
};

const TTL: Duration = Duration::from_secs(3);
/// The limit of a label's repair.
///
/// The operator needs at most a second. The rest is the latency of the test's watch.
const LIMIT: Duration = Duration::from_millis(1200);

fn has(pod: &Pod, lock: &str) -> bool {
    pod.metadata.labels.iter().flatten().any(|(name, value)| *name == leader_label(lock) && value == "true")
}

pub(crate) async fn a_leader_label_set_by_a_user_is_removed_within_a_second(bench: Bench) -> anyhow::Result<()> {
    let pods = [
        run(&bench, worker(&bench, "app-0", "app", IDLE)).await?,
        run(&bench, worker(&bench, "app-1", "app", IDLE)).await?,
        // This pod is no candidate.
        run(&bench, worker(&bench, "other-0", "other", IDLE)).await?,
    ];
    let lock = Lock::create(&bench, election("app", "app", TTL)).await?;
    let first = leader(&lock.held(SOON).await?.object).context("no leader")?;
    let of = |name: &str| {
        pods.iter().find(|pods| pods.last().is_ok_and(|v| v.object.metadata.name.as_deref() == Some(name)))
    };
    let leading = of(&first).context("an unknown pod leads")?;
    leading.until(SOON, "the leader has the label", |v| has(&v.object, "app")).await?;
    let set = format!("{}=true", leader_label("app"));
    let second = if first == "app-0" { "app-1" } else { "app-0" };
    for name in [second, "other-0"] {
        let pods = of(name).context("an unknown pod")?;
        bench.kubectl(&["label", "pod", name, &set]).await?;
        let labelled = pods.until(SOON, "has the label", |v| has(&v.object, "app")).await?;
        let gone = pods.until(SOON, "no longer has it", |v| v.at > labelled.at && !has(&v.object, "app")).await?;
        let took = gone.at.since(labelled.at);
        bench.figures.add("stale leader label set -> taken off", took);
        ensure!(took < LIMIT, "{name} had the label for {took:?}");
    }
    // A leader without the label gets it again.
    let mark = leading.mark();
    bench.kubectl(&["label", "pod", &first, &format!("{}-", leader_label("app"))]).await?;
    let off = leading.until_after(mark, SOON, "without the label", |v| !has(&v.object, "app")).await?;
    let back = |v: &Version<Pod>| v.at > off.at && has(&v.object, "app");
    let took = leading.until_after(mark, SOON, "has it again", back).await?.at.since(off.at);
    ensure!(took < LIMIT, "the leader had no label for {took:?}");
    ensure!(leader(&lock.recorder.last()?.object).as_deref() == Some(first.as_str()), "the leader was replaced");
    Ok(())
}

pub(crate) async fn a_pod_that_leads_two_locks_has_both_labels(bench: Bench) -> anyhow::Result<()> {
    let pod = run(&bench, worker(&bench, "app-0", "app", IDLE)).await?;
    let one = Lock::create(&bench, election("one", "app", TTL)).await?;
    let two = Lock::create(&bench, election("two", "app", TTL)).await?;
    one.held(SOON).await?;
    two.held(SOON).await?;
    pod.until(SOON, "both labels", |v| has(&v.object, "one") && has(&v.object, "two")).await?;
    one.delete().await?;
    let gone = |v: &Version<Pod>| !has(&v.object, "one") && has(&v.object, "two");
    let mark = pod.mark();
    pod.until_after(mark.saturating_sub(1), TTL + SOON, "the label of the deleted lock is gone", gone).await?;
    one.recorder.until_gone(SOON).await?;
    ensure!(has(&pod.last()?.object, "two"), "the other lock's label is gone");
    led_by(&two, 0, "app-0", SOON).await?;
    let labelled = Recorder::<Pod>::labelled(bench.api(), &format!("{}=true", leader_label("two"))).await?;
    ensure!(labelled.versions().len() == 1, "not exactly one pod has the label of the other lock");
    Ok(())
}
