//! What the command does to locks and quorums.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::support::{json, prints, redlock};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, token},
    poll,
    quorums::Quorum,
    suite_lock::support::next_second,
};

const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn a_wait_ends_when_the_lock_is_held_or_free_or_the_time_has_passed(
    bench: Bench,
) -> anyhow::Result<()> {
    let key = format!("{}/reindex", bench.namespace);
    let late = redlock(&bench, &["wait", &key, "--timeout", "1s", "-o", "json"]).await?;
    let value: Value = serde_json::from_str(&late.out)?;
    ensure!(late.code == 1 && value["met"] == false, "{} {}", late.code, late.out);
    // Begun before there is a lock.
    let waits = ["wait", key.as_str(), "--for", "holder=second", "--timeout", "1m"];
    let waiting = json(&bench, &waits);
    let acting = async {
        let first = Lock::create(&bench, claim("first", "reindex", None, TTL)).await?;
        first.held(SOON).await?;
        prints(&bench, &["wait", &key]).await?;
        next_second(&bench).await;
        Lock::create(&bench, claim("second", "reindex", None, TTL)).await?.reason("Queued", SOON).await?;
        first.remove().await
    };
    let (met, acted) = futures::join!(waiting, acting);
    acted?;
    let met = met?;
    ensure!(met["met"] == true && met["items"][0]["holder"]["identity"] == "second", "{met}");
    bench.kubectl(&["delete", "dlock", "second", "--wait=false"]).await?;
    prints(&bench, &["wait", &key, "--for", "free", "--timeout", "20s"]).await?;
    prints(&bench, &["wait", &key, "--for", "gone", "--timeout", "20s"]).await?;
    Ok(())
}

pub(crate) async fn a_holder_that_is_asked_steps_down(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("first", "scheduler", None, TTL)).await?;
    let before = token(&lock.held(SOON).await?.object)?;
    let mark = lock.recorder.versions().len();
    let key = format!("{}/scheduler", bench.namespace);
    let asked = json(&bench, &["step-down", &key, "--reason", "the new version is ready"]).await?;
    ensure!(asked["asked"] == "step-down" && asked["fencingToken"] == before && asked["ttlMs"] == 3_000, "{asked}");
    let ended = |version: &crate::record::Version<_>| {
        crate::locks::status(&version.object).history.first().is_some_and(|past| past.reason == "SteppedDown")
    };
    lock.recorder.until_after(mark, SOON, "the hold ended as SteppedDown", ended).await?;
    let history = json(&bench, &["history", &key]).await?;
    let past = history["items"].as_array().context("no items")?.iter().find(|hold| hold["fencingToken"] == before);
    ensure!(past.is_some_and(|hold| hold["reason"] == "SteppedDown"), "{history}");
    Ok(())
}

pub(crate) async fn a_hold_that_is_broken_is_in_the_history_with_who_and_why(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("first", "reindex", None, TTL)).await?;
    let before = token(&lock.held(SOON).await?.object)?;
    let key = format!("{}/reindex", bench.namespace);
    let unmeant = redlock(&bench, &["break", &key, "--reason", "stuck", "--force"]).await?;
    ensure!(unmeant.code == 125 && unmeant.err.contains("--force --yes"), "{}", unmeant.err);
    let mark = lock.recorder.versions().len();
    let said = prints(&bench, &["break", &key, "--reason", "stuck since noon"]).await?;
    ensure!(said.contains("first loses the lock") && said.contains("--for free"), "{said}");
    let ended = |version: &crate::record::Version<_>| {
        crate::locks::status(&version.object).history.first().is_some_and(|past| past.reason == "Broken")
    };
    lock.recorder.until_after(mark, SOON, "the hold ended as Broken", ended).await?;
    let me = bench.cluster.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
    let text = prints(&bench, &["history", &key]).await?;
    ensure!(text.contains("Broken") && text.contains("stuck since noon") && text.contains(me.trim()), "{text}");
    let history = json(&bench, &["history", &key]).await?;
    let past = history["items"].as_array().context("no items")?.iter().find(|hold| hold["fencingToken"] == before);
    ensure!(past.is_some_and(|hold| hold["reason"] == "Broken" && hold["heldForMs"].is_i64()), "{history}");
    lock.remove().await?;
    let nothing = redlock(&bench, &["break", &key, "--reason", "again"]).await?;
    ensure!(nothing.code == 125 && nothing.err.contains("redlock list"), "{}", nothing.err);
    Ok(())
}

pub(crate) async fn an_audit_judges_what_locks_remember(bench: Bench) -> anyhow::Result<()> {
    let ns = ["-n", bench.namespace.as_str()];
    // One after the other, some released and some broken.
    for round in 0..3 {
        let name = format!("round-{round}");
        let lock = Lock::create(&bench, claim(&name, "reindex", None, TTL)).await?;
        lock.held(SOON).await?;
        bench.break_lock(&name, "break", "a test").await?;
        let ended = |version: &crate::record::Version<_>| !crate::locks::status(&version.object).history.is_empty();
        lock.recorder.until(SOON, "the hold ended", ended).await?;
        bench.patch("dlock", &name, r#"{"spec":{"suspend":true}}"#).await?;
    }
    let judged = json(&bench, &[&["audit"], &ns[..]].concat()).await?;
    ensure!(judged["well"] == true && judged["keyCount"] == 1, "{judged}");
    ensure!(judged["holdCount"].as_u64().is_some_and(|holds| holds >= 3), "{judged}");
    // The same from a file, and a file in which two held at a time.
    let history = prints(&bench, &[&["history", "reindex", "-o", "json"], &ns[..]].concat()).await?;
    let file = std::env::temp_dir().join(format!("{}.json", bench.namespace));
    let path = file.to_str().context("not a name")?;
    std::fs::write(&file, &history)?;
    ensure!(json(&bench, &["audit", "--file", path]).await?["well"] == true, "{history}");
    let mut doubled: Value = serde_json::from_str(&history)?;
    let mut second = doubled["items"][0].clone();
    second["identity"] = "another".into();
    second["fencingToken"] = 1.into();
    doubled["items"].as_array_mut().context("no items")?.push(second);
    std::fs::write(&file, doubled.to_string())?;
    let found = redlock(&bench, &["audit", "--file", path]).await?;
    std::fs::remove_file(&file)?;
    ensure!(found.code == 1 && found.out.contains("two holders"), "{} {}", found.code, found.out);
    Ok(())
}

pub(crate) async fn a_quorum_shows_its_members_and_restarts_one_at_a_time(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", TTL).await?;
    let ns = ["-n", bench.namespace.as_str()];
    let lock = Lock::create(&bench, claim("kept", "kept", Some("q"), TTL)).await?;
    let before = token(&lock.held(SOON).await?.object)?;
    let shown = json(&bench, &[&["quorum", "status", "q"], &ns[..]].concat()).await?;
    let shown = &shown["items"][0];
    ensure!(shown["voting"] == 3 && shown["quorum"] == 2 && shown["grantsLocks"] == true, "{shown}");
    ensure!(shown["members"].as_array().is_some_and(|members| members.iter().all(|member| member["votes"] == true)));
    let run_id = |shown: &Value| shown["members"][0]["runID"].as_str().map(str::to_owned);
    let process = run_id(shown).context("no runID")?;

    let mark = quorum.recorder.versions().len();
    let member = quorum.member(0);
    let arguments = [&["quorum", "restart", &member], &ns[..]].concat();
    let restart = json(&bench, &arguments);
    let second = async {
        // While the first is out, no other one is restarted.
        quorum
            .member_until(mark, 0, SOON * 3, "is out", |status| {
                status.state != redlock_operator::api::MemberState::Admitted
            })
            .await?;
        redlock(&bench, &[&["quorum", "restart", &quorum.member(1)], &ns[..]].concat()).await
    };
    let (restarted, refused) = futures::join!(restart, second);
    let (restarted, refused) = (restarted?, refused?);
    ensure!(restarted["votes"] == true && restarted["member"] == member.as_str(), "{restarted}");
    ensure!(refused.code == 125 && refused.err.contains("does not vote"), "{} {}", refused.code, refused.err);
    let after = json(&bench, &[&["quorum", "status", "q"], &ns[..]].concat()).await?;
    ensure!(run_id(&after["items"][0]).is_some_and(|now| now != process), "the process is the same: {after}");
    ensure!(after["items"][0]["voting"] == 3, "{after}");
    ensure!(token(&lock.recorder.last()?.object)? == before, "the lock was lost");
    let text = prints(&bench, &[&["quorum", "status"], &ns[..]].concat()).await?;
    ensure!(text.contains("3 of 3 members vote") && text.contains("q-0"), "{text}");
    Ok(())
}

pub(crate) async fn a_drill_restarts_a_member_and_keeps_its_lock(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", TTL).await?;
    let out = prints(&bench, &["drill", "-n", &bench.namespace, &quorum.member(2), "-o", "json"]).await?;
    let lines: Vec<Value> = out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let (end, looks) = lines.split_last().context("nothing was printed")?;
    ensure!(end["kept"] == true && end["votes"] == true && end["member"] == "q-2", "{end}");
    ensure!(looks.iter().all(|look| look["held"] == true), "{out}");
    let token = &looks[0]["fencingToken"];
    ensure!(token.is_i64() && looks.iter().all(|look| look["fencingToken"] == *token), "{out}");
    let was_out = |look: &Value| look["members"].as_array().is_some_and(|all| all[2]["state"] != "Admitted");
    ensure!(looks.iter().any(was_out), "the member was never out: {out}");
    poll::until(SOON, "the lock of the drill is gone", async || {
        let left = json(&bench, &["list", "-n", &bench.namespace]).await?;
        Ok(left["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })
    .await?;
    Ok(())
}
