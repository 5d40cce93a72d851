//! The list of external masters changes, with a pause.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::{PREDECESSOR_DEAD_ANNOTATION, RedisQuorum};
use serde_json::{Value, json};

use super::external::{check_never_disagreed, contend};
use super::helpers::{condition, held_lock, reason_after};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, claim, with},
    masters::Masters,
    quorums::{Quorum, member_of},
    record::Version,
    spans::check_exclusion,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
const CHANGE_LIMIT: Duration = Duration::from_secs(120);

/// The external members with these numbers, each named by its number.
fn external(masters: &Masters, which: &[usize]) -> Value {
    which.iter().map(|index| masters.member(&format!("vm-{index}"), *index)).collect()
}

fn manifest(masters: &Masters, members: usize, which: &[usize]) -> Value {
    with(masters.manifest("q", members, &[], MAX_TTL), json!({"external": external(masters, which)}))
}

/// Changes the members.
///
/// Returns the number of versions before the change.
async fn edit(quorum: &Quorum, masters: &Masters, members: usize, which: &[usize]) -> anyhow::Result<usize> {
    let mark = quorum.recorder.mark();
    let patch = json!({"spec": {"members": members, "external": external(masters, which)}}).to_string();
    quorum.bench.patch("rq", &quorum.name, &patch).await?;
    Ok(mark)
}

fn voters(version: &Version<RedisQuorum>) -> (Vec<String>, usize, i64) {
    let mut status = version.object.status.clone().unwrap_or_default();
    status.voters.sort();
    (status.voters, status.former_voters.len(), status.membership_epoch.unwrap_or_default())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Waits until only the new list is in force, and the status has no former members.
async fn changed(quorum: &Quorum, mark: usize, to: &[&str], epoch: i64) -> anyhow::Result<()> {
    let ended = |version: &Version<RedisQuorum>| {
        let status = version.object.status.clone().unwrap_or_default();
        let (_, settled, _) = condition(version, "Progressing");
        voters(version) == (names(to), 0, epoch) && status.members.len() == to.len() && settled == "Settled"
    };
    let what = format!("{} has {to:?} in epoch {epoch}, and nothing else", quorum.name);
    quorum.recorder.until_after(mark, CHANGE_LIMIT, &what, ended).await.map(drop)
}

/// Waits until the change reports this progress.
async fn progress(quorum: &Quorum, mark: usize, response: &str) -> anyhow::Result<Version<RedisQuorum>> {
    let reports = |version: &Version<RedisQuorum>| condition(version, "Progressing").2.contains(response);
    quorum.recorder.until_after(mark, CHANGE_LIMIT, &format!("Progressing says: {response}"), reports).await
}

pub(crate) async fn an_external_master_is_replaced_with_a_pause(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 4).await?;
    let quorum = masters.ready(&bench, manifest(&masters, 0, &[0, 1, 2])).await?;
    let turns = tokio::spawn(contend(bench.clone(), "turn", 12));
    let moved = json!({"spec": {"external": [masters.member("vm-0", 3)]}}).to_string();
    let response = bench.patch_refused("rq", "q", &moved).await?;
    ensure!(response.contains("another address is another master: give it another name"), "{response}");

    let mark = edit(&quorum, &masters, 0, &[1, 2, 3]).await?;
    let message = reason_after(&quorum, mark, CHANGE_LIMIT, "QuorumAgrees", "MembersChanging").await?;
    ensure!(message.contains("no lock is granted"), "{message}");
    changed(&quorum, mark, &["vm-1", "vm-2", "vm-3"], 2).await?;
    check_exclusion(&turns.await??)?;
    held_lock(&bench, TTL).await?.remove().await
}

pub(crate) async fn two_quorums_change_the_masters_that_they_share(bench: Bench) -> anyhow::Result<()> {
    bench.beside("the_other_operator", async |other| both_change(&bench, other).await).await
}

async fn both_change(bench: &Bench, other: &Bench) -> anyhow::Result<()> {
    let masters = Masters::start(bench, 4).await?;
    let list = manifest(&masters, 0, &[0, 1, 2]);
    let (ours, theirs) = tokio::try_join!(masters.ready(bench, list.clone()), masters.ready(other, list))?;
    let lock = Lock::take(other, claim("theirs", "theirs", Some("q"), TTL)).await?;

    // The operator that changes its list first stops, and names the other one. The other one continues.
    let mark = edit(&ours, &masters, 0, &[1, 2, 3]).await?;
    changed(&ours, mark, &["vm-1", "vm-2", "vm-3"], 2).await?;
    let message = reason_after(&ours, mark, CHANGE_LIMIT, "QuorumAgrees", "OtherMemberList").await?;
    ensure!(message.contains(&format!("RedisQuorum {}/q", other.namespace)), "{message}");
    check_never_disagreed(&theirs)?;
    ensure!(check_held_throughout(&lock.recorder.versions())? > 0, "no renewal was published");

    let mark = edit(&theirs, &masters, 0, &[3, 2, 1]).await?;
    changed(&theirs, mark, &["vm-1", "vm-2", "vm-3"], 2).await?;
    for quorum in [&ours, &theirs] {
        let agrees = |version: &Version<RedisQuorum>| {
            let (holds, _, message) = condition(version, "QuorumAgrees");
            holds == "True" && message.contains("has the same list and maxTTL")
        };
        quorum.recorder.until_after(mark, CHANGE_LIMIT, "both have the new list", agrees).await?;
    }
    let turns = tokio::spawn(contend(bench.clone(), "we", 5));
    let mut holds = contend(other.clone(), "they", 5).await?;
    holds.extend(turns.await??);
    check_exclusion(&holds)?;
    lock.remove().await
}

pub(crate) async fn own_members_are_replaced_by_external_masters_and_back(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 3).await?;
    let quorum = masters.ready(&bench, manifest(&masters, 3, &[])).await?;
    let turns = tokio::spawn(contend(bench.clone(), "turn", 20));
    let mark = edit(&quorum, &masters, 0, &[0, 1, 2]).await?;
    changed(&quorum, mark, &["vm-0", "vm-1", "vm-2"], 2).await?;
    let mark = edit(&quorum, &masters, 2, &[1]).await?;
    changed(&quorum, mark, &["q-0", "q-1", "vm-1"], 3).await?;
    let mark = edit(&quorum, &masters, 3, &[]).await?;
    changed(&quorum, mark, &["q-0", "q-1", "q-2"], 4).await?;
    check_exclusion(&turns.await??)
}

pub(crate) async fn a_dead_master_is_replaced_once_its_death_is_confirmed(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 4).await?;
    let quorum = masters.ready(&bench, manifest(&masters, 0, &[0, 1, 2])).await?;
    masters.signal(0, "KILL").await?;
    let mark = edit(&quorum, &masters, 0, &[1, 2, 3]).await?;
    let version = progress(&quorum, mark, "it begins when vm-0 can vote").await?;
    let run_id = member_of(&version.object, "vm-0").and_then(|member| member.run_id.clone()).context("no runID")?;
    let annotation = format!("{PREDECESSOR_DEAD_ANNOTATION}={run_id}");
    let response = |version: &Version<RedisQuorum>| {
        let message = member_of(&version.object, "vm-0").and_then(|member| member.message.clone());
        message.is_some_and(|message| message.contains(&annotation))
    };
    quorum.recorder.until_after(mark, CHANGE_LIMIT, "the status says what to do", response).await?;
    bench.kubectl(&["annotate", "rq", "q", &annotation]).await?;
    changed(&quorum, mark, &["vm-1", "vm-2", "vm-3"], 2).await?;
    held_lock(&bench, TTL).await?.remove().await
}
