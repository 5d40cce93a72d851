//! Members are updated one after the other, and locks are not affected.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use redlock_operator::api::{FenceReason, MemberState, MemberStatus};

use super::helpers::{
    RESTART_LIMIT, check_one_at_a_time, condition, delay, is_admitted, is_fenced_for, pod_uids, quorum_and_lock,
    reason_after, settled_after,
};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::SOON,
    poll,
    quorums::{Quorum, member_of},
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
const ROLLOUT_LIMIT: Duration = Duration::from_secs(150);
/// An unwanted change would have happened by then.
const QUIET: Duration = Duration::from_secs(5);
const OTHER_RESOURCES: &str = r#"{"spec":{"pod":{"resources":{"requests":{"cpu":"11m","memory":"32Mi"}}}}}"#;

async fn requested_cpu(bench: &Bench, index: usize) -> anyhow::Result<Option<String>> {
    let pod = bench.api::<Pod>().get(&format!("q-{index}-0")).await?;
    let container = pod.spec.and_then(|spec| spec.containers.into_iter().next()).context("no container")?;
    Ok(container.resources.and_then(|resources| resources.requests?.get("cpu").map(|cpu| cpu.0.clone())))
}

pub(crate) async fn members_are_updated_one_at_a_time_and_no_lock_is_lost(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let (mark, start) = (quorum.recorder.mark(), bench.now());
    bench.patch("rq", "q", OTHER_RESOURCES).await?;
    for index in 0..3 {
        let updating = |m: &_| is_fenced_for(m, FenceReason::Updating);
        let (seen, _) = quorum.member_until(mark, index, ROLLOUT_LIMIT, "is fenced as Updating", updating).await?;
        for other in (0..3).filter(|other| *other != index) {
            let other = member_of(&seen.object, &quorum.member(other)).context("no such member")?;
            ensure!(is_admitted(other), "{} was out while member {index} was closed", other.name);
        }
    }
    let updating = reason_after(&quorum, mark, SOON, "Progressing", "Updating").await?;
    ensure!(updating.contains("members run the old pod template") || updating.contains("is replaced"), "{updating}");
    settled_after(&quorum, quorum.recorder.mark().saturating_sub(1), ROLLOUT_LIMIT).await?;
    bench.figures.add("three members updated", bench.now().since(start));
    for index in 0..3 {
        ensure!(requested_cpu(&bench, index).await?.as_deref() == Some("11m"), "member {index} has the old template");
    }
    check_one_at_a_time(&quorum, mark)?;
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    let events = bench.kubectl(&["get", "events", "--field-selector=reason=Updating", "-o", "name"]).await?;
    ensure!(events.lines().count() >= 3, "Events of the update: {events}");
    Ok(())
}

pub(crate) async fn a_bad_image_stops_at_the_first_member_and_is_undone(bench: Bench) -> anyhow::Result<()> {
    let (quorum, lock) = quorum_and_lock(&bench, MAX_TTL, TTL).await?;
    let (before, mark) = (pod_uids(&bench, 3).await?, quorum.recorder.mark());
    bench.patch("rq", "q", r#"{"spec":{"image":"redlock-operator.local/no-such-image:1"}}"#).await?;
    let pending = |m: &MemberStatus| m.state == MemberState::Pending;
    quorum.member_until(mark, 0, ROLLOUT_LIMIT, "has no running pod", pending).await?;
    // In this time the operator would replace another member, if the pause had no effect.
    tokio::time::sleep(delay(MAX_TTL) + QUIET).await;
    let during = pod_uids(&bench, 3).await?;
    ensure!(during[0] != before[0] && during[1..] == before[1..], "not only the first member: {before:?}, {during:?}");
    let last = quorum.recorder.last()?;
    let (holds, reason, message) = condition(&last, "Progressing");
    ensure!((holds.as_str(), reason.as_str()) == ("True", "Updating"), "{holds} {reason} {message}");
    ensure!(message.contains("q-1 is next, when q-0 can vote again"), "{message}");

    let mark = quorum.recorder.mark();
    bench.patch("rq", "q", &format!(r#"{{"spec":{{"image":"{}"}}}}"#, bench.cluster.member_image)).await?;
    quorum.member_until(mark, 0, RESTART_LIMIT, "is admitted with the old image", is_admitted).await?;
    settled_after(&quorum, mark, RESTART_LIMIT).await?;
    let after = pod_uids(&bench, 3).await?;
    ensure!(after[1..] == before[1..], "members that had the right image were replaced");
    check_held_throughout(&lock.recorder.versions()).map(drop)
}

pub(crate) async fn a_paused_update_waits_and_continues_after_the_pause(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let before = pod_uids(&bench, 3).await?;
    bench.kubectl(&["annotate", "rq", "q", "redlock-operator.io/rollout=paused"]).await?;
    let mark = quorum.recorder.mark();
    bench.patch("rq", "q", OTHER_RESOURCES).await?;
    let all = |v: &Version<_>| {
        let (_, reason, message) = condition(v, "Progressing");
        reason == "RolloutPaused" && message.contains("3 of 3 members run the old pod template")
    };
    quorum.recorder.until_after(mark, SOON, "paused before the first member", all).await?;
    let same = || async { Ok(pod_uids(&bench, 3).await? == before) };
    poll::stays(QUIET, "a paused update replaces no pod", same).await?;

    // The update is paused again in the middle. The current member returns, and the others do not change.
    let mark = quorum.recorder.mark();
    bench.kubectl(&["annotate", "rq", "q", "redlock-operator.io/rollout-"]).await?;
    let updating = |m: &_| is_fenced_for(m, FenceReason::Updating);
    quorum.member_until(mark, 0, SOON, "is fenced as Updating", updating).await?;
    bench.kubectl(&["annotate", "rq", "q", "redlock-operator.io/rollout=paused"]).await?;
    let mark = quorum.recorder.mark();
    quorum.member_until(mark, 0, RESTART_LIMIT, "is admitted again", is_admitted).await?;
    let during = pod_uids(&bench, 3).await?;
    ensure!(during[0] != before[0] && during[1..] == before[1..], "{before:?}, then {during:?}");
    let same = || async { Ok(pod_uids(&bench, 3).await? == during) };
    poll::stays(QUIET, "an update that is paused again replaces no further pod", same).await?;

    let mark = quorum.recorder.mark();
    bench.kubectl(&["annotate", "rq", "q", "redlock-operator.io/rollout-"]).await?;
    settled_after(&quorum, mark, ROLLOUT_LIMIT).await?;
    let after = pod_uids(&bench, 3).await?;
    ensure!(after[0] == during[0] && after[1] != before[1] && after[2] != before[2], "{during:?}, then {after:?}");
    check_one_at_a_time(&quorum, mark)
}
