//! External masters, which the operator does not manage.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Secret, Service},
    discovery::v1::EndpointSlice,
};
use kube::api::ListParams;
use redlock_operator::{
    api::{MemberState, MemberStatus, RedisQuorum},
    quorum::model::tls::issue,
};
use serde_json::{Value, json};

use super::helpers::{
    RESTART_LIMIT, check_rejoin, condition, delay, delete_and_rejoin, held_lock, is_admitted, reason_after,
};
use crate::{
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, SOON, claim, is_held, message_of, status, token, with},
    masters::Masters,
    quorums::{Quorum, max_ttl_in_force, member_of},
    record::Version,
    spans::{Span, check_exclusion},
    suite_lock::support::finished,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);

fn addresses(masters: &Masters, which: &[usize]) -> Vec<String> {
    which.iter().map(|index| masters.address(*index)).collect()
}

pub(crate) async fn external_masters_alone_vote_after_their_wait(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 3).await?;
    let since = bench.wall().0;
    let manifest = masters.manifest("q", 0, &addresses(&masters, &[0, 1, 2]), MAX_TTL);
    let quorum = masters.ready(&bench, manifest).await?;
    let ready = quorum.recorder.last()?;
    for member in ready.object.status.iter().flat_map(|status| &status.members) {
        let admitted = member.admitted_at.context("no admittedAt")?.as_millis();
        let waited = i64::try_from(delay(MAX_TTL).as_millis())?;
        ensure!(admitted >= since + waited, "{}: the first wait was skipped", member.name);
        ensure!(member.address.as_deref().is_some_and(|address| address.starts_with(&masters.ip())), "{member:?}");
    }
    let (holds, reason, message) = condition(&ready, "QuorumAgrees");
    ensure!((&holds[..], &reason[..]) == ("True", "AsExpected"), "{holds} {reason}");
    ensure!(message.contains("outside the guarantee"), "{message}");
    let sets = bench.api::<StatefulSet>().list(&ListParams::default()).await?;
    ensure!(sets.items.is_empty(), "the operator made members of its own");

    let lock = held_lock(&bench, TTL).await?;
    lock.fully_voted(SOON).await?;
    let (mark, since) = (quorum.recorder.mark(), masters.restart(1).await?);
    check_rejoin(&quorum, mark, "vm-1", since, MAX_TTL).await?;
    check_held_throughout(&lock.recorder.versions())?;
    lock.remove().await
}

pub(crate) async fn own_and_external_masters_make_one_quorum(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 1).await?;
    // This member has a DNS name as its address.
    let ip = masters.ip();
    let ports = json!([{"name": "redis", "port": 7_000}]);
    bench.create::<Service>(json!({"metadata": {"name": "vm"}, "spec": {"clusterIP": "None", "ports": ports}})).await?;
    let slice = json!({
        "metadata": {"name": "vm", "labels": {"kubernetes.io/service-name": "vm"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [ip]}], "ports": ports,
    });
    bench.create::<EndpointSlice>(slice).await?;
    let address = format!("vm.{}.svc:7000", bench.namespace);
    let quorum = masters.ready(&bench, masters.manifest("q", 2, &[address], MAX_TTL)).await?;
    let lock = held_lock(&bench, TTL).await?;
    lock.fully_voted(SOON).await?;
    let (mark, since) = (quorum.recorder.mark(), masters.restart(0).await?);
    check_rejoin(&quorum, mark, "vm-0", since, MAX_TTL).await?;
    lock.fully_voted(SOON).await?;
    // In the other case a managed member is lost.
    delete_and_rejoin(&quorum, "q-0", MAX_TTL).await?;
    check_held_throughout(&lock.recorder.versions())?;
    lock.remove().await
}

/// Takes and releases the lock repeatedly.
pub(super) async fn contend(bench: Bench, who: &'static str, times: usize) -> anyhow::Result<Vec<Span>> {
    let mut holds = Vec::new();
    for number in 0..times {
        let name = format!("{who}-{number}");
        let retry = json!({"retry": {"delay": "50ms", "jitter": "50ms"}});
        let lock = Lock::create(&bench, with(claim(&name, "shared", Some("q"), TTL), retry)).await?;
        let held = lock.held(RESTART_LIMIT).await?.object;
        let from = status(&held).acquired_at.context("no acquiredAt")?.as_millis();
        tokio::time::sleep(Duration::from_millis(150)).await;
        ensure!(is_held(&lock.recorder.last()?.object), "{name} was lost");
        holds.push(Span { who: name, from, until: bench.wall().0, token: Some(token(&held)?) });
        lock.remove().await?;
    }
    Ok(holds)
}

pub(crate) async fn two_quorums_over_the_same_masters_never_hold_together(bench: Bench) -> anyhow::Result<()> {
    bench.beside("the_other_operator", async |other| contenders(&bench, other).await).await
}

async fn contenders(bench: &Bench, other: &Bench) -> anyhow::Result<()> {
    let masters = Masters::start(bench, 3).await?;
    let list = |which: &[usize]| masters.manifest("q", 0, &addresses(&masters, which), MAX_TTL);
    // The quorums have the same masters in another order, and under other names.
    let (ours, theirs) = (list(&[0, 1, 2]), list(&[2, 0, 1]));
    let (ours, theirs) = tokio::try_join!(masters.ready(bench, ours), masters.ready(other, theirs))?;
    for (quorum, partner) in [(&ours, other), (&theirs, bench)] {
        let message = reason_after(quorum, 0, SOON, "QuorumAgrees", "AsExpected").await?;
        let named = format!("RedisQuorum {}/q has the same list and maxTTL", partner.namespace);
        let is_named = |version: &Version<RedisQuorum>| condition(version, "QuorumAgrees").2.contains(&named);
        quorum.recorder.until(SOON, &format!("{named}, not {message}"), is_named).await?;
    }
    let (mut holds, others) = tokio::try_join!(contend(bench.clone(), "ours", 6), contend(other.clone(), "theirs", 6))?;
    holds.extend(others);
    check_exclusion(&holds)?;
    holds.sort_by_key(|hold| hold.from);
    let turns = holds.windows(2).filter(|pair| pair[0].who.split('-').next() != pair[1].who.split('-').next()).count();
    ensure!(turns > 0, "they never took turns: {holds:?}");
    Ok(())
}

/// Checks that the condition QuorumAgrees has been true since its first true version.
pub(super) fn check_never_disagreed(quorum: &Quorum) -> anyhow::Result<()> {
    let versions = quorum.recorder.versions();
    let agreed = versions.iter().skip_while(|version| condition(version, "QuorumAgrees").0 != "True");
    for version in agreed {
        let (holds, reason, message) = condition(version, "QuorumAgrees");
        ensure!(holds == "True", "the existing quorum stopped: {reason}: {message}");
    }
    Ok(())
}

pub(crate) async fn a_disagreeing_newcomer_is_refused_and_the_quorum_continues(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 4).await?;
    let list = |name, which: &[usize], max_ttl| masters.manifest(name, 0, &addresses(&masters, which), max_ttl);
    let quorum = masters.ready(&bench, list("q", &[0, 1, 2], MAX_TTL)).await?;
    let lock = held_lock(&bench, TTL).await?;

    let stranger = masters.create(&bench, list("stranger", &[0, 1, 3], MAX_TTL)).await?;
    let message = reason_after(&stranger, 0, SOON, "QuorumAgrees", "OtherMemberList").await?;
    let theirs = format!("{}/q", bench.namespace);
    for part in [&theirs, &masters.address(2), &masters.address(3)] {
        ensure!(message.contains(part.as_str()), "{part} is not named: {message}");
    }
    let shorter = masters.create(&bench, list("shorter", &[0, 1, 2], MAX_TTL / 2)).await?;
    let message = reason_after(&shorter, 0, SOON, "QuorumAgrees", "OtherMaxTTL").await?;
    for part in [&theirs, "maxTTL 4s", "wait for 2s"] {
        ensure!(message.contains(part), "{part} is not named: {message}");
    }
    // The members of both quorums are admitted, but do not vote.
    for refused in [&stranger, &shorter] {
        let all = |version: &Version<RedisQuorum>| {
            let members = version.object.status.as_ref().map(|status| status.members.as_slice()).unwrap_or_default();
            members.len() == 3 && members.iter().all(|member| member.state == MemberState::Admitted)
        };
        let version = refused.recorder.until(RESTART_LIMIT, "all members are admitted", all).await?;
        let (holds, _, _) = condition(&version, "QuorumAvailable");
        ensure!(holds == "False", "QuorumAvailable={holds}");
        let name = format!("of-{}", refused.name);
        let waits = claim(&name, &name, Some(&refused.name), Duration::from_secs(1));
        let waiting = Lock::create(&bench, with(waits, json!({"waitTimeout": "3s"}))).await?;
        let end = finished(&waiting, "WaitTimeout", SOON).await?;
        ensure!(!waiting.was_held(), "it was granted");
        ensure!(status(&end.object).fencing_token.is_none(), "{}", message_of(&end.object, "Held"));
    }
    check_never_disagreed(&quorum)?;
    check_held_throughout(&lock.recorder.versions())?;
    lock.remove().await
}

pub(crate) async fn a_longer_max_ttl_is_used_when_all_have_it(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 3).await?;
    let list = |name, max_ttl| masters.manifest(name, 0, &addresses(&masters, &[0, 1, 2]), max_ttl);
    let quorum = masters.ready(&bench, list("q", MAX_TTL)).await?;
    let lock = held_lock(&bench, TTL).await?;
    let longer = masters.create(&bench, list("longer", 2 * MAX_TTL)).await?;
    reason_after(&longer, 0, RESTART_LIMIT, "QuorumAgrees", "OtherMaxTTL").await?;
    check_never_disagreed(&quorum)?;
    check_held_throughout(&lock.recorder.versions())?;
    lock.remove().await?;
    bench.patch("rq", "q", r#"{"spec":{"maxTTL":"8s"}}"#).await?;
    for raised in [&quorum, &longer] {
        let is_raised = |version: &Version<RedisQuorum>| {
            max_ttl_in_force(&version.object) == Some(2 * MAX_TTL) && condition(version, "QuorumAgrees").0 == "True"
        };
        raised.recorder.until(RESTART_LIMIT, "maxTTLInForce is 8s", is_raised).await?;
    }
    let wide = Lock::take(&bench, claim("wide", "wide", Some("longer"), 2 * TTL)).await?;
    wide.remove().await
}

pub(crate) async fn a_master_restarted_during_an_acquisition_does_not_vote(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 3).await?;
    let manifest = masters.manifest("q", 0, &addresses(&masters, &[0, 1, 2]), MAX_TTL);
    let quorum = masters.ready(&bench, manifest).await?;
    masters.signal(0, "STOP").await?;
    masters.signal(1, "STOP").await?;
    // In the repeated attempts one master grants, and two do not answer.
    let lock = Lock::create(&bench, claim("job", "job", Some("q"), TTL)).await?;
    lock.reason("NoQuorum", SOON).await?;
    let (mark, since) = (quorum.recorder.mark(), masters.restart(1).await?);
    // The new process would grant immediately, and the two would be a majority.
    check_rejoin(&quorum, mark, "vm-1", since, MAX_TTL).await?;
    let held = lock.held(SOON).await?.object;
    let acquired = status(&held).acquired_at.context("no acquiredAt")?.as_millis();
    let last = quorum.recorder.last()?.object;
    let admitted = member_of(&last, "vm-1").and_then(|member| member.admitted_at).context("no admittedAt")?.as_millis();
    ensure!(acquired >= admitted, "its vote was counted {} ms before its admission", admitted - acquired);
    masters.signal(0, "CONT").await?;
    lock.remove().await
}

pub(crate) async fn two_addresses_of_one_process_have_one_vote(bench: Bench) -> anyhow::Result<()> {
    let masters = Masters::start(&bench, 2).await?;
    let list: Vec<String> = vec![masters.address(0), masters.address(1), masters.other_address(1)];
    let manifest: Value = masters.manifest("q", 0, &list, MAX_TTL);
    let quorum = masters.create(&bench, manifest).await?;
    // The operator admits the member that it observes first.
    let is_twin = |member: &MemberStatus| {
        member.state == MemberState::Fenced
            && member.message.as_ref().is_some_and(|message| message.contains("it is the same process as vm-"))
    };
    let either = |version: &Version<RedisQuorum>| {
        let admitted = |name| member_of(&version.object, name).is_some_and(is_admitted);
        let twin = |name| member_of(&version.object, name).is_some_and(is_twin);
        admitted("vm-0") && ((admitted("vm-1") && twin("vm-2")) || (admitted("vm-2") && twin("vm-1")))
    };
    quorum.recorder.until(RESTART_LIMIT, "one of vm-1 and vm-2 is admitted, the other named as a twin", either).await?;
    // The specification is invalid in this state, so nothing is granted until it changes.
    reason_after(&quorum, 0, SOON, "QuorumAgrees", "Joining").await?;
    let lock = Lock::create(&bench, claim("job", "job", Some("q"), Duration::from_secs(1))).await?;
    lock.reason("NoQuorum", SOON).await?;
    lock.recorder.never_during(0, Duration::from_secs(2), "it was granted", |version| is_held(&version.object)).await?;
    lock.remove().await
}

pub(crate) async fn tls_to_external_masters_checks_authority_and_name(bench: Bench) -> anyhow::Result<()> {
    let now = bench.wall().0 / 1_000;
    let (authority, other) = (issue::authority("masters", now)?, issue::authority("other", now)?);
    let masters = Masters::start_tls(&bench, 3, &authority).await?;
    for (name, quorum, authority) in
        [("ca", "q", &authority), ("other-ca", "by-another", &other), ("same-ca", "another-name", &authority)]
    {
        let labels = json!({"redlock-operator.io/quorum": quorum});
        let secret =
            json!({"metadata": {"name": name, "labels": labels}, "stringData": {"ca.crt": authority.certificate}});
        bench.create::<Secret>(secret).await?;
    }
    let manifest = |name, tls: Value| {
        let mut manifest = masters.manifest(name, 0, &addresses(&masters, &[0, 1, 2]), MAX_TTL);
        for index in 0..3 {
            manifest["spec"]["external"][index]["tls"] = tls.clone();
        }
        manifest
    };
    masters.ready(&bench, manifest("q", json!({"secretRef": {"name": "ca"}}))).await?;
    let lock = held_lock(&bench, TTL).await?;
    for (name, tls) in [
        ("by-another", json!({"secretRef": {"name": "other-ca"}})),
        ("another-name", json!({"secretRef": {"name": "same-ca"}, "serverName": "other.example"})),
        ("of-others", json!({"secretRef": {"name": "ca"}})),
        ("no-secret", json!({"secretRef": {"name": "missing"}})),
    ] {
        let quorum = masters.create(&bench, manifest(name, tls)).await?;
        let is_told = |member: &MemberStatus| {
            let response = member.message.as_deref().unwrap_or_default();
            member.state == MemberState::Starting
                && ["certificate", "no Secret missing", "is not for this RedisQuorum"]
                    .iter()
                    .any(|why| response.contains(why))
        };
        quorum.named_until(0, "vm-0", RESTART_LIMIT, "is not trusted", is_told).await?;
        let runs =
            |version: &Version<RedisQuorum>| member_of(&version.object, "vm-0").is_some_and(|m| m.run_id.is_some());
        ensure!(!quorum.recorder.versions().iter().any(runs), "{name}: the operator read its run ID");
    }
    check_held_throughout(&lock.recorder.versions())?;
    lock.remove().await
}
