//! Commands that change locks and quorums.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::MemberState;
use serde_json::Value;

use super::support::{fails, hold_ended, json, prints, redlock};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, token},
    quorums::Quorum,
    suite_lock::support::next_second,
};

const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn a_wait_ends_at_a_held_or_free_lock_or_its_timeout(bench: Bench) -> anyhow::Result<()> {
    let key = format!("{}/reindex", bench.namespace);
    let late = redlock(&bench, &["wait", &key, "--timeout", "1s", "-o", "json"]).await?;
    let value: Value = serde_json::from_str(&late.out)?;
    ensure!(late.code == 1 && value["met"] == false, "{} {}", late.code, late.out);
    // The command starts before the lock exists.
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

pub(crate) async fn a_holder_steps_down_on_request(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("first", "scheduler", None, TTL)).await?;
    let before = token(&lock.held(SOON).await?.object)?;
    let mark = lock.recorder.versions().len();
    let key = format!("{}/scheduler", bench.namespace);
    let asked = json(&bench, &["step-down", &key, "--reason", "the new version is ready"]).await?;
    ensure!(asked["asked"] == "step-down" && asked["fencingToken"] == before && asked["ttlMs"] == 3_000, "{asked}");
    hold_ended(&lock, mark, "SteppedDown").await?;
    let history = json(&bench, &["history", &key]).await?;
    let past = history["items"].as_array().context("no items")?.iter().find(|hold| hold["fencingToken"] == before);
    ensure!(past.is_some_and(|hold| hold["reason"] == "SteppedDown"), "{history}");
    Ok(())
}

pub(crate) async fn the_history_names_user_and_reason_of_a_broken_hold(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("first", "reindex", None, TTL)).await?;
    let before = token(&lock.held(SOON).await?.object)?;
    let key = format!("{}/reindex", bench.namespace);
    fails(&bench, &["break", &key, "--reason", "stuck", "--force"], "--force --yes").await?;
    let mark = lock.recorder.versions().len();
    let output = prints(&bench, &["break", &key, "--reason", "stuck since noon"]).await?;
    ensure!(output.contains("\"first\" loses the lock") && output.contains("--for free"), "{output}");
    hold_ended(&lock, mark, "Broken").await?;
    let (user, text) = (bench.user().await?, prints(&bench, &["history", &key]).await?);
    ensure!(text.contains("Broken") && text.contains("stuck since noon") && text.contains(&user), "{text}");
    let history = json(&bench, &["history", &key]).await?;
    let past = history["items"].as_array().context("no items")?.iter().find(|hold| hold["fencingToken"] == before);
    ensure!(past.is_some_and(|hold| hold["reason"] == "Broken" && hold["heldForMs"].is_i64()), "{history}");
    lock.remove().await?;
    fails(&bench, &["break", &key, "--reason", "again"], "redlock list").await
}

pub(crate) async fn a_quorum_shows_its_members_and_restarts_one_at_a_time(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", TTL).await?;
    let status = ["quorum", "status", "q", "-n", &bench.namespace];
    let lock = Lock::create(&bench, claim("kept", "kept", Some("q"), TTL)).await?;
    let before = token(&lock.held(SOON).await?.object)?;
    let reported = json(&bench, &status).await?;
    let reported = &reported["items"][0];
    ensure!(reported["voting"] == 3 && reported["quorum"] == 2 && reported["grantsLocks"] == true, "{reported}");
    ensure!(reported["members"].as_array().is_some_and(|members| members.iter().all(|member| member["votes"] == true)));
    let run_id = |reported: &Value| reported["members"][0]["runID"].as_str().map(str::to_owned);
    let process = run_id(reported).context("no runID")?;

    let mark = quorum.recorder.versions().len();
    let member = quorum.member(0);
    let arguments = ["quorum", "restart", &member, "-n", &bench.namespace];
    let restart = json(&bench, &arguments);
    let second = async {
        // While the first member does not vote, the command must restart no other one.
        quorum.member_until(mark, 0, SOON * 3, "is out", |member| member.state != MemberState::Admitted).await?;
        redlock(&bench, &["quorum", "restart", &quorum.member(1), "-n", &bench.namespace]).await
    };
    let (restarted, refused) = futures::join!(restart, second);
    let (restarted, refused) = (restarted?, refused?);
    ensure!(restarted["votes"] == true && restarted["member"] == member.as_str(), "{restarted}");
    ensure!(refused.code == 125 && refused.err.contains("does not vote"), "{} {}", refused.code, refused.err);
    let after = json(&bench, &status).await?;
    ensure!(run_id(&after["items"][0]).is_some_and(|now| now != process), "the process is the same: {after}");
    ensure!(after["items"][0]["voting"] == 3, "{after}");
    ensure!(token(&lock.recorder.last()?.object)? == before, "the lock was lost");
    let text = prints(&bench, &["quorum", "status", "-n", &bench.namespace]).await?;
    ensure!(text.contains("3 of 3 members vote") && text.contains("q-0"), "{text}");
    Ok(())
}
