//! A quorum starts closed, and opens when no earlier promise can be left.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use redlock_operator::api::{FenceReason, MemberState, MemberStatus};
use serde_json::json;

use crate::{
    bench::Bench,
    foreign::{Client, Line, Monitor},
    quorums::{Quorum, check_admission, is_ready, member_of},
    suite_quorum::helpers::{delay, is_admitted},
};

const MAX_TTL: Duration = Duration::from_secs(8);
/// Longest time until a pod with a pulled image answers.
const POD_LIMIT: Duration = Duration::from_secs(40);

pub(crate) async fn a_quorum_starts_closed_and_opens_late(bench: Bench) -> anyhow::Result<()> {
    let begun = bench.wall();
    let quorum = Quorum::create_with(&bench, "q", MAX_TTL, json!({})).await?;
    let command = format!("for m in 0 1 2; do echo $m $(redis $m SET {}/probe-$n x NX PX 50); done", bench.namespace);
    let monitor = Monitor::start(&quorum, "monitor", &command).await?;
    let client = Client::start(&quorum).await?;

    let mut first_admission = i64::MAX;
    for index in 0..3 {
        let is_fenced = |m: &MemberStatus| m.state == MemberState::Fenced;
        let (_, fenced) = quorum.member_until(0, index, POD_LIMIT, "is fenced", is_fenced).await?;
        ensure!(fenced.reason == Some(FenceReason::FirstStart), "{fenced:?}");
        let rejoin_at = fenced.rejoin_at.with_context(|| format!("no rejoinAt: {fenced:?}"))?.as_millis();
        let limit = MAX_TTL + POD_LIMIT;
        let (_, admitted) = quorum.member_until(0, index, limit, "is admitted", is_admitted).await?;
        let started = redis_started(&bench, &quorum, index).await?;
        ensure!(started >= begun.0 - 1000, "the pod is older than the test");
        check_admission(&admitted, rejoin_at, started, delay(MAX_TTL))?;
        first_admission = first_admission.min(admitted.admitted_at.context("no admittedAt")?.as_millis());
    }

    quorum.recorder.until(POD_LIMIT, "Ready", is_ready).await?;
    let status = quorum.recorder.last()?.object.status.unwrap_or_default();
    ensure!(status.ready.as_deref() == Some("3/3") && status.quorum == Some(2), "{status:?}");
    bench.kubectl(&["wait", "--for=condition=Ready", "rq/q", "--timeout=10s"]).await?;
    ensure!(bench.api::<PodDisruptionBudget>().get_opt("q").await?.is_some(), "the quorum has no PodDisruptionBudget");

    let is_last = |line: &Line| line.text.starts_with("2 ");
    let lines = monitor.until(bench.wall().0, POD_LIMIT, "an answer by each member", is_last).await?;
    let early: Vec<_> = lines.iter().filter(|line| line.at < first_admission).collect();
    ensure!(early.iter().all(|line| !line.text.ends_with(" OK")), "a SET before the first admission: {early:?}");
    let refused = early.iter().filter(|line| line.text.contains("NOPERM")).count();
    ensure!(refused >= 3, "the monitor saw no refusal before the first admission: {early:?}");
    for member in 0..3 {
        let key = format!("{}/after", bench.namespace);
        let answer = client.redis(member, &["SET", &key, "x", "NX", "PX", "1000"]).await?;
        ensure!(answer == "OK", "{} is admitted and answers {answer}", quorum.member(member));
        let outside = client.redis(member, &["SET", "elsewhere/key", "x", "NX", "PX", "1000"]).await?;
        ensure!(outside.contains("NOPERM"), "a key outside the client's prefix: {outside}");
    }
    Ok(())
}

/// The start of a member's container.
///
/// The time has whole seconds, so it can be up to a second early.
async fn redis_started(bench: &Bench, quorum: &Quorum, index: usize) -> anyhow::Result<i64> {
    let object = quorum.recorder.last()?.object;
    let member = member_of(&object, &quorum.member(index)).context("no such member")?;
    let pod = bench.api::<Pod>().get(member.pod_name.as_deref().context("no podName")?).await?;
    let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    let running = statuses.iter().find_map(|status| status.state.as_ref()?.running.as_ref()?.started_at.clone());
    Ok(running.context("the redis container does not run")?.0.as_millisecond())
}
