//! The number of members changes while locks are held.
//!
//! No lock is lost, and none is held twice, even with clients that use the old list.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Service};
use kube::api::ListParams;
use redlock_operator::api::{FenceReason, RedisQuorum};
use serde_json::json;
use tokio::task::JoinHandle;

use super::helpers::{condition, held_lock, is_fenced_for, pod_uids, quorum_and_lock, reason_after, settled_after};
use crate::{
    bench::Bench,
    foreign::{Client, Line, Monitor, OLD_LIST_TTL},
    history::check_held_throughout,
    locks::{Lock, SOON, claim, token},
    operators,
    quorums::Quorum,
    record::Version,
    spans::{Span, check_exclusion},
};

const CHANGE_LIMIT: Duration = Duration::from_secs(120);
/// The limit of a turn, even while the leader changes and an outside client contends.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// One holder after the other, on one key.
struct Turns {
    stop: Arc<AtomicBool>,
    task: JoinHandle<anyhow::Result<Vec<Span>>>,
}

impl Turns {
    fn start(bench: &Bench, ttl: Duration) -> Self {
        let (bench, stop) = (bench.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut turns = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let who = format!("turn-{}", turns.len());
                let lock = Lock::create(&bench, claim(&who, "turns", Some("q"), ttl)).await?;
                let held = lock.held(TURN_LIMIT).await?;
                // The holder works for a moment.
                tokio::time::sleep(Duration::from_millis(300)).await;
                let (from, until, token) = (held.wall.0, bench.wall().0, Some(token(&held.object)?));
                turns.push(Span { who, from, until, token });
                lock.remove().await?;
            }
            Ok(turns)
        });
        Self { stop, task }
    }

    /// Ends the turns, and returns them.
    ///
    /// It checks that each has a larger token than the one before.
    async fn end(self) -> anyhow::Result<Vec<Span>> {
        self.stop.store(true, Ordering::SeqCst);
        let turns = self.task.await??;
        check_exclusion(&turns)?;
        Ok(turns)
    }
}

/// The holds of a client with an old list.
///
/// Each lasts from its report to its release, and no longer than its validity.
fn holds_of(lines: &[Line]) -> Vec<(i64, i64)> {
    let at = |what: &str, n: &str| {
        lines.iter().find(|line| line.text.starts_with(&format!("{what} {n}"))).map(|line| line.at)
    };
    let ttl = i64::try_from(OLD_LIST_TTL.as_millis()).unwrap_or_default() * 9 / 10;
    let held = lines.iter().filter_map(|line| Some((line.at, line.text.strip_prefix("held ")?.split(' ').next()?)));
    let holds = held.filter_map(|(from, n)| {
        let begun = at("try", n)?;
        Some((from, at("over", n).unwrap_or(from).min(begun + ttl)))
    });
    holds.filter(|(from, to)| from <= to).collect()
}

/// Checks that no turn overlapped a hold of the client.
fn check_apart(turns: &[Span], lines: &[Line]) -> anyhow::Result<usize> {
    let holds = holds_of(lines);
    for (from, to) in &holds {
        let both = turns.iter().find(|turn| turn.from <= *to && *from <= turn.until);
        ensure!(both.is_none(), "the client with the old list held from {from} to {to}, together with {both:?}");
    }
    Ok(holds.len())
}

/// Waits until every member of its list refuses the client with the old list.
async fn shut_out(monitor: &Monitor, after: i64, members: usize) -> anyhow::Result<Vec<Line>> {
    let refused = move |line: &Line| line.text.starts_with("no ") && line.text.ends_with(&format!(" 0 {members}"));
    monitor.until(after, SOON, "every member refuses it", refused).await
}

pub(super) async fn resize(quorum: &Quorum, members: usize) -> anyhow::Result<usize> {
    let mark = quorum.recorder.mark();
    let patch = format!(r#"{{"spec":{{"members":{members}}}}}"#);
    quorum.bench.patch("rq", &quorum.name, &patch).await?;
    Ok(mark)
}

pub(super) fn voters(version: &Version<RedisQuorum>) -> (usize, usize, i64) {
    let status = version.object.status.clone().unwrap_or_default();
    (status.voters.len(), status.former_voters.len(), status.membership_epoch.unwrap_or_default())
}

/// Waits until both lists are in force.
pub(super) async fn joint(
    quorum: &Quorum,
    mark: usize,
    from: usize,
    to: usize,
) -> anyhow::Result<Version<RedisQuorum>> {
    let what = format!("joint, from {from} to {to}");
    quorum.recorder.until_after(mark, CHANGE_LIMIT, &what, |v| (voters(v).0, voters(v).1) == (to, from)).await
}

/// Waits until the change has ended.
///
/// Then only the new list is in force, and members that it does not have are removed.
pub(super) async fn changed(quorum: &Quorum, mark: usize, members: usize, epoch: i64) -> anyhow::Result<()> {
    let what = format!("{members} members in epoch {epoch}");
    let ended = |v: &Version<RedisQuorum>| voters(v) == (members, 0, epoch);
    quorum.recorder.until_after(mark, CHANGE_LIMIT, &what, ended).await?;
    let alone = |v: &Version<RedisQuorum>| {
        let status = v.object.status.clone().unwrap_or_default();
        let (_, settled, _) = condition(v, "Progressing");
        status.members.len() == members && status.ready == Some(format!("{members}/{members}")) && settled == "Settled"
    };
    let settled = |v: &Version<RedisQuorum>| ended(v) && alone(v);
    quorum.recorder.until_after(mark, CHANGE_LIMIT, "settled, without former members", settled).await?;
    let bench = &quorum.bench;
    let labels = ListParams::default().labels("redlock-operator.io/quorum=q");
    let sets = bench.api::<StatefulSet>().list(&labels).await?.items.len();
    let services = bench.api::<Service>().list(&labels).await?.items.len();
    let is_one_each = (sets, services) == (members, members);
    ensure!(is_one_each, "{sets} StatefulSets and {services} Services for {members} members");
    Ok(())
}

/// Checks that a client that reads its Secret now can take a lock on all members.
pub(super) async fn check_clients_can_lock(client: &Client, bench: &Bench, members: usize) -> anyhow::Result<()> {
    let key = format!("{}/now", bench.namespace);
    for member in 0..members {
        let answer = client.redis(member, &["SET", &key, "x", "NX", "PX", "100"]).await?;
        ensure!(answer == "OK", "member {member} answers a client with the new list: {answer}");
    }
    Ok(())
}

/// Checks that clients had no access while there were two lists, and that the epoch only rises.
///
/// The operator writes the lists first, and the conditions at the end of a reconcile.
fn check_epochs(quorum: &Quorum) -> anyhow::Result<()> {
    let (mut last, mut is_joint, mut are_out) = (0, false, true);
    for version in quorum.recorder.versions() {
        let (_, former, epoch) = voters(&version);
        ensure!(epoch >= last, "the epoch fell from {last} to {epoch}");
        last = epoch;
        let (holds, reason, _) = condition(&version, "ClientsReady");
        let waits = holds == "False" && reason == "MembersChanging";
        ensure!(former > 0 || !is_joint || are_out, "epoch {epoch} had two lists, and ClientsReady was never False");
        ensure!(former == 0 || !is_joint || !are_out || waits, "joint, and ClientsReady is {holds} again");
        (is_joint, are_out) = (former > 0, former > 0 && waits);
    }
    Ok(())
}

pub(crate) async fn a_single_member_becomes_three_and_no_lock_is_lost_or_split(bench: Bench) -> anyhow::Result<()> {
    let max_ttl = Duration::from_secs(4);
    let quorum = Quorum::ready_with(&bench, "q", max_ttl, json!({"members": 1})).await?;
    let lock = held_lock(&bench, Duration::from_secs(3)).await?;
    let outside = Monitor::with_old_list(&quorum, "old-list", &format!("{}/turns", bench.namespace)).await?;
    outside.until(0, SOON, "it holds the lock once", |line| line.text.starts_with("held ")).await?;
    let turns = Turns::start(&bench, Duration::from_secs(3));
    let before = pod_uids(&bench, 1).await?;

    let start = bench.now();
    let mark = resize(&quorum, 3).await?;
    let joins = |member: &_| is_fenced_for(member, FenceReason::Joining);
    let (seen, _) = quorum.member_until(mark, 2, CHANGE_LIMIT, "is fenced as Joining", joins).await?;
    ensure!(voters(&seen) == (1, 0, 1), "a member that joins has a vote: {:?}", voters(&seen));
    let waits = reason_after(&quorum, mark, SOON, "Progressing", "MembersChanging").await?;
    ensure!(waits.contains("from 1 to 3 members"), "{waits}");
    let switched = joint(&quorum, mark, 1, 3).await?;
    changed(&quorum, mark, 3, 2).await?;
    bench.figures.add("1 -> 3 members, under locks", bench.now().since(start));
    shut_out(&outside, bench.wall().0, 1).await?;
    ensure!(pod_uids(&bench, 1).await? == before, "the old member was restarted");

    // The quorum runs for a while with three members. Even then the client with the old list must have no access.
    tokio::time::sleep(max_ttl).await;
    let lines = shut_out(&outside, bench.wall().0, 1).await?;
    let turns = turns.end().await?;
    let held = check_apart(&turns, &lines)?;
    let late = turns.iter().filter(|turn| turn.from > switched.wall.0).count();
    ensure!(held > 0 && late > 2, "{held} holds outside, {} turns, {late} after the switch", turns.len());
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    check_clients_can_lock(&Client::start(&quorum).await?, &bench, 3).await?;
    check_epochs(&quorum)
}

pub(crate) async fn three_become_five_seven_and_three_with_a_killed_leader(bench: Bench) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    // The ttl is longer than a change of leader.
    let ttl = Duration::from_secs(10);
    let (quorum, lock) = quorum_and_lock(&bench, ttl, ttl).await?;
    let key = format!("{}/turns", bench.namespace);
    let of_three = Monitor::with_old_list(&quorum, "old-list-3", &key).await?;
    of_three.until(0, SOON, "it holds the lock once", |line| line.text.starts_with("held ")).await?;
    let turns = Turns::start(&bench, ttl);
    let before = pod_uids(&bench, 3).await?;
    let leases = operators::watch_leader(&bench.cluster).await?;

    let mark = resize(&quorum, 5).await?;
    joint(&quorum, mark, 3, 5).await?;
    let leader = operators::current(&leases)?;
    bench.cluster.faults.kill_container(&bench.cluster.operator_namespace, &leader.pod, "operator").await?;
    operators::until_next_term(&leases, &leader).await?;
    changed(&quorum, mark, 5, 2).await?;
    shut_out(&of_three, bench.wall().0, 3).await?;
    let of_five = Monitor::with_old_list(&quorum, "old-list-5", &key).await?;
    of_five.until(0, TURN_LIMIT, "it holds the lock once", |line| line.text.starts_with("held ")).await?;

    let mark = resize(&quorum, 7).await?;
    changed(&quorum, mark, 7, 3).await?;
    shut_out(&of_five, bench.wall().0, 5).await?;
    let mark = resize(&quorum, 3).await?;
    joint(&quorum, mark, 7, 3).await?;
    changed(&quorum, mark, 3, 4).await?;
    settled_after(&quorum, quorum.recorder.mark().saturating_sub(1), SOON).await?;

    ensure!(pod_uids(&bench, 3).await? == before, "a member that was in every list was restarted");
    let turns = turns.end().await?;
    let (three, five) = (of_three.lines().await?, of_five.lines().await?);
    let held = (check_apart(&turns, &three)?, check_apart(&turns, &five)?);
    ensure!(held.0 > 0 && held.1 > 0 && turns.len() > 20, "{held:?} holds outside, {} turns", turns.len());
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");
    check_epochs(&quorum)
}
