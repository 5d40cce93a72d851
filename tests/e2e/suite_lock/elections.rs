//! Candidates and preferences of elections.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::support::{
    IDLE, LockVersion, POD_LIMIT, check_waited, create, election, is_ready, leader, led_by, message_of_held,
    next_second, past, placed, run, with, with_container, worker, works_after_sigterm,
};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, is_held, token},
    suite_causes::surfaces::{doctor_names, event_names, lock_names},
};

const TTL: Duration = Duration::from_secs(3);

fn preferring(name: &str, preference: &str) -> Value {
    let mut lock = election(name, "app", TTL);
    lock["spec"]["election"]["preference"] = json!(preference);
    lock
}

fn important(bench: &Bench, name: &str, priority: i32) -> Value {
    let mut pod = worker(bench, name, "app", IDLE);
    pod["metadata"]["annotations"] = json!({"redlock-operator.io/priority": priority.to_string()});
    pod
}

pub(crate) async fn each_preference_picks_its_candidate_and_keeps_the_leader(bench: Bench) -> anyhow::Result<()> {
    run(&bench, important(&bench, "app-9", 0)).await?;
    next_second(&bench).await;
    run(&bench, important(&bench, "app-10", 7)).await?;
    next_second(&bench).await;
    run(&bench, important(&bench, "app-2", 0)).await?;
    let mut locks = Vec::new();
    for (preference, preferred) in
        [("Oldest", "app-9"), ("LowestOrdinal", "app-2"), ("Priority", "app-10"), ("Newest", "app-2")]
    {
        let lock = Lock::create(&bench, preferring(&preference.to_lowercase(), preference)).await?;
        let held = lock.held(SOON).await?;
        ensure!(leader(&held.object).as_deref() == Some(preferred), "{preference}: {:?} leads", leader(&held.object));
        locks.push((lock, preferred));
    }
    // Better candidates that arrive later must not replace a living leader.
    run(&bench, important(&bench, "app-1", 9)).await?;
    tokio::time::sleep(2 * TTL).await;
    for (lock, preferred) in &locks {
        let is_other = |v: &&LockVersion| is_held(&v.object) && leader(&v.object).as_deref() != Some(*preferred);
        let versions = lock.recorder.versions();
        let other = versions.iter().find(is_other).map(|v| leader(&v.object));
        ensure!(other.is_none(), "{preferred} was replaced by {other:?}");
    }
    // When the leaders end, the better candidates follow.
    let marks: Vec<_> = locks.iter().map(|(lock, _)| lock.recorder.mark()).collect();
    for pod in ["app-2", "app-10"] {
        bench.delete::<Pod>(pod).await?;
    }
    for ((lock, _), mark) in locks.iter().zip(marks).skip(1) {
        led_by(lock, mark, "app-1", SOON).await?;
    }
    Ok(())
}

pub(crate) async fn pods_that_are_not_ready_or_being_deleted_do_not_lead(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, election("app", "app", TTL)).await?;
    let nobody = lock.reason("NoCandidate", SOON).await?;
    let message = message_of_held(&nobody);
    let cause = format!("Namespace {} has no pod that spec.election.selector matches", bench.namespace);
    ensure!(message.contains(&cause), "{message}");
    lock_names(&bench, "app", "NoCandidate", &[&cause]).await?;
    event_names(&bench, "app", &["Warning", &cause]).await?;
    doctor_names(&bench, &[&format!("{}/app (NoCandidate)", bench.namespace)]).await?;

    let probe = json!({"readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}});
    create(&bench, with_container(worker(&bench, "app-0", "app", IDLE), probe)).await?;
    let reports = |text: &'static str| move |v: &LockVersion| message_of_held(v).contains(text);
    lock.recorder.until(POD_LIMIT, "it says that the pod is not ready", reports("app-0 is not ready")).await?;

    // It becomes a candidate only while it is being deleted, and continues to run for a while.
    let leaving = worker(&bench, "app-1", "other", &works_after_sigterm(Duration::from_secs(8)));
    let leaving = run(&bench, with(leaving, json!({"terminationGracePeriodSeconds": 20}))).await?;
    bench.delete::<Pod>("app-1").await?;
    leaving.until(SOON, "being deleted", |v| v.object.metadata.deletion_timestamp.is_some()).await?;
    bench.kubectl(&["label", "pod", "app-1", "--overwrite", "app=app"]).await?;
    lock.recorder.until(SOON, "it says that the pod goes", reports("app-1 is being deleted")).await?;
    ensure!(!lock.was_held(), "a pod that is not eligible led");

    let start = bench.now();
    bench.kubectl(&["exec", "app-0", "--", "touch", "/tmp/ready"]).await?;
    let held = led_by(&lock, 0, "app-0", SOON).await?;
    ensure!(held.at.since(start) < Duration::from_secs(4), "it led only after {:?}", held.at.since(start));
    Ok(())
}

pub(crate) async fn readiness_alone_never_hands_over(bench: Bench) -> anyhow::Result<()> {
    let first = worker(&bench, "app-0", "app", &format!("touch /tmp/ready; {IDLE}"));
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    let first = run(&bench, with_container(first, json!({"readinessProbe": probe}))).await?;
    let lock = Lock::create(&bench, election("app", "app", TTL)).await?;
    led_by(&lock, 0, "app-0", SOON).await?;
    run(&bench, worker(&bench, "app-1", "app", IDLE)).await?;
    let mark = first.mark();
    bench.kubectl(&["exec", "app-0", "--", "rm", "/tmp/ready"]).await?;
    first.until_after(mark, SOON, "no longer ready", |v| !is_ready(&v.object)).await?;
    // The leadership must not change for longer than a hold without renewals lasts.
    tokio::time::sleep(2 * TTL).await;
    check_held_throughout(&lock.recorder.versions()).map(drop)
}

pub(crate) async fn a_leader_whose_node_is_cordoned_steps_down_once(bench: Bench) -> anyhow::Result<()> {
    let on = |name: &str, node: &str| placed(worker(&bench, name, "app", IDLE), node);
    let first = run(&bench, on("app-0", "node1")).await?;
    next_second(&bench).await;
    run(&bench, on("app-1", "node2")).await?;
    let lock = Lock::create(&bench, election("app", "app", TTL)).await?;
    let held = led_by(&lock, 0, "app-0", SOON).await?;
    let costs =
        |pod: &Pod| pod.metadata.annotations.iter().flatten().any(|(name, _)| name.ends_with("/pod-deletion-cost"));
    first.until(SOON, "the leader costs more to delete", |v| costs(&v.object)).await?;
    // The node controller writes whole seconds.
    next_second(&bench).await;

    let (mark, start) = (lock.recorder.mark(), bench.now());
    bench.kubectl(&["cordon", "node1"]).await?;
    let result = async {
        let next = led_by(&lock, mark, "app-1", TTL + SOON).await?;
        bench.figures.add("node cordoned -> next leader (ttl 3 s)", next.at.since(start));
        let past = past(&next)?;
        ensure!(past.reason == "SteppedDown" && past.identity == "app-0", "{past:?}");
        check_waited(&lock, token(&held.object)?, &next, Duration::ZERO, Duration::from_secs(1))?;
        first.until(SOON, "the former leader costs no more", |v| !costs(&v.object)).await?;

        // Without another candidate the pod on the cordoned node leads again, and stays when another candidate arrives.
        bench.delete::<Pod>("app-1").await?;
        let again = led_by(&lock, lock.recorder.mark(), "app-0", TTL + SOON).await?;
        run(&bench, on("app-2", "node2")).await?;
        tokio::time::sleep(2 * TTL).await;
        let last = lock.recorder.last()?;
        ensure!(token(&last.object)? == token(&again.object)?, "it stepped down a second time");
        Ok(())
    };
    let result = result.await;
    // The node is uncordoned even if the test fails, because all tests share the nodes.
    bench.kubectl(&["uncordon", "node1"]).await?;
    result
}
