//! Commands that print state.

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::support::{json as as_json, prints, redlock, two_claims};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, token},
    poll,
    suite_causes::surfaces::lock_names,
};

const TTL: Duration = Duration::from_secs(10);

pub(crate) async fn locks_are_listed_and_described_in_text_and_json(bench: Bench) -> anyhow::Result<()> {
    let (namespace, ns) = (bench.namespace.clone(), ["-n", bench.namespace.as_str()]);
    let empty = prints(&bench, &[&["list"], &ns[..]].concat()).await?;
    ensure!(empty == format!("No locks in namespace {namespace}.\n"), "{empty}");
    let (first, _second) = two_claims(&bench).await?;
    let token = token(&first.recorder.last()?.object)?;

    let table = prints(&bench, &[&["list"], &ns[..]].concat()).await?;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let key = format!("{namespace}/reindex");
    ensure!(lines.len() == 3 && lines[0][..2] == ["LOCK", "OBJECT"], "{table}");
    ensure!(lines[1][..4] == [key.as_str(), "first", "first", "Held"] && lines[1][5] == token.to_string(), "{table}");
    ensure!(lines[2][..4] == [key.as_str(), "second", "-", "Queued"] && lines[2][7] == "1", "{table}");
    ensure!(!table.contains('\u{1b}'), "colours without a terminal");

    let listed = as_json(&bench, &[&["list"], &ns[..]].concat()).await?;
    let item = &listed["items"][0];
    ensure!(item["lock"] == key.as_str() && item["fencingToken"] == token && item["held"] == true, "{item}");
    let left = item["validForMs"].as_i64().unwrap_or_default();
    ensure!(left > 0 && left <= 10_000, "validForMs is {left}");
    ensure!(item["quorum"]["name"] == "main" && item["holder"]["identity"] == "first", "{item}");
    let waiting = as_json(&bench, &[&["list", "--waiting"], &ns[..]].concat()).await?;
    ensure!(waiting["items"].as_array().map(Vec::len) == Some(1), "{waiting}");
    let everywhere = as_json(&bench, &["list", "-A", "--held"]).await?;
    ensure!(everywhere["items"].as_array().is_some_and(|items| items.iter().any(|item| item["lock"] == key.as_str())));
    let names = prints(&bench, &[&["list", "-o", "name"], &ns[..]].concat()).await?;
    ensure!(names == "dlock/first\ndlock/second\n", "{names}");

    let status = prints(&bench, &["status", &key]).await?;
    ensure!(status.starts_with(&format!("{key} is held.\n  holder:      first\n  token:       {token}\n")), "{status}");
    let one = as_json(&bench, &[&["status", "dlock/second"], &ns[..]].concat()).await?;
    ensure!(one["held"] == false && one["items"][0]["queuePosition"] == 1, "{one}");
    ensure!(one["items"][0]["conditions"].as_array().is_some_and(|all| !all.is_empty()), "{one}");

    let top = as_json(&bench, &[&["top"], &ns[..]].concat()).await?;
    ensure!(top["held"] == 1 && top["waiting"] == 1 && top["items"][0]["lock"] == key.as_str(), "{top}");
    let screen = prints(&bench, &["top", "-A", "--once"]).await?;
    ensure!(screen.contains("3 of 3 members vote") && screen.contains("LONGEST-WAIT"), "{screen}");
    for (command, expected) in [("explain", "To do:"), ("status", "second")] {
        let text = prints(&bench, &[&[command, "dlock/second"], &ns[..]].concat()).await?;
        ensure!(text.contains(expected), "{text}");
    }
    Ok(())
}

pub(crate) async fn a_watch_prints_each_change(bench: Bench) -> anyhow::Result<()> {
    let log = std::env::temp_dir().join(format!("{}.watch", bench.namespace));
    let mut watching = bench.cluster.redlock_into(&["list", "--watch", "-o", "json", "-n", &bench.namespace], &log)?;
    let lock = Lock::create(&bench, claim("first", "reindex", None, TTL)).await?;
    let observed = async |what: &str, is_so: fn(&Value) -> bool| {
        poll::until(SOON, what, async || {
            let text = std::fs::read_to_string(&log)?;
            let mut lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            Ok(lines.any(|line: Value| is_so(&line)).then_some(()))
        })
        .await
    };
    observed("the lock is held", |line| line["held"] == true).await?;
    lock.remove().await?;
    let gone =
        observed("the lock is gone", |line| *line == json!({"gone": true, "lock": line["lock"], "name": "first"}))
            .await;
    watching.kill().await?;
    std::fs::remove_file(&log)?;
    gone
}

pub(crate) async fn a_claim_that_waits_is_explained_from_the_quorum_to_the_queue(bench: Bench) -> anyhow::Result<()> {
    let (_first, _second) = two_claims(&bench).await?;
    let ns = ["-n", bench.namespace.as_str()];
    let second = as_json(&bench, &[&["explain", "dlock/second"], &ns[..]].concat()).await?;
    ensure!(second["held"] == false, "{second}");
    let link = |explained: &Value, about: &str| {
        let links = explained["links"].as_array().cloned().unwrap_or_default();
        links.into_iter().find(|link| link["about"] == about).unwrap_or_default()
    };
    let (quorum, claim_link) = (link(&second, "quorum"), link(&second, "claim"));
    ensure!(
        quorum["state"] == "Fine" && quorum["lines"][0].as_str().is_some_and(|reports| reports.contains("3 of 3")),
        "{quorum}"
    );
    ensure!(link(&second, "accepted")["state"] == "Fine", "{second}");
    let reports = claim_link["lines"].to_string();
    ensure!(
        claim_link["state"] == "Waits" && reports.contains("Queued") && reports.contains("has the key by dlock/first"),
        "{reports}"
    );
    ensure!(second["toDo"].as_str().is_some_and(|text| text.contains("priority")), "{second}");
    lock_names(&bench, "second", "Queued", &["\"first\""]).await?;

    let all = as_json(&bench, &[&["explain", "reindex"], &ns[..]].concat()).await?;
    ensure!(all["held"] == true && link(&all, "queue")["lines"].to_string().contains("dlock/second"), "{all}");

    let third = Lock::create(&bench, claim("third", "third", Some("absent"), TTL)).await?;
    third.reason("NotAccepted", SOON).await?;
    let third = as_json(&bench, &[&["explain", "dlock/third"], &ns[..]].concat()).await?;
    let absent = format!("RedisQuorum {}/absent does not exist.", bench.namespace);
    ensure!(link(&third, "quorum")["lines"][0] == absent && link(&third, "quorum")["state"] == "Stops", "{third}");
    ensure!(link(&third, "accepted")["lines"].to_string().contains("QuorumNotFound"), "{third}");
    Ok(())
}

/// The viewer has a role of the chart.
///
/// The command uses the flags for another kubeconfig and context.
pub(crate) async fn a_viewer_can_list_locks_and_doctor_names_the_missing_role(bench: Bench) -> anyhow::Result<()> {
    let (_first, _second) = two_claims(&bench).await?;
    let (namespace, key) = (bench.namespace.as_str(), format!("{}/reindex", bench.namespace));
    bench.create_account("viewer", "redlock-operator-view").await?;
    let token = bench.kubectl(&["create", "token", "viewer"]).await?;
    let config = std::env::temp_dir().join(format!("{namespace}.viewer"));
    std::fs::copy(&bench.cluster.kubeconfig, &config)?;
    let file = config.to_str().unwrap_or_default();
    let cluster = bench.cluster.kubectl(&["config", "view", "--minify", "-o", "jsonpath={.clusters[0].name}"]).await?;
    let set = async |arguments: &[&str]| {
        bench.cluster.kubectl(&[&["--kubeconfig", file, "config"], arguments].concat()).await
    };
    set(&["set-credentials", "viewer", &format!("--token={}", token.trim())]).await?;
    set(&["set-context", "viewer", &format!("--cluster={cluster}"), "--user=viewer", "--namespace", namespace]).await?;
    let cluster_flags = ["--kubeconfig", file, "--context", "viewer"];
    let ran = async |arguments: &[&str]| redlock(&bench, &[arguments, &cluster_flags].concat()).await;

    let listed = ran(&["list"]).await?;
    ensure!(listed.code == 0 && listed.out.contains("Queued"), "{}{}", listed.out, listed.err);
    let explained = ran(&["explain", &key]).await?;
    ensure!(explained.code == 0 && explained.out.contains("You cannot read RedisQuorum"), "{}", explained.out);
    let broken = ran(&["break", &key, "--reason", "a test"]).await?;
    ensure!(broken.code == 125 && broken.err.contains("forbidden") && broken.err.contains("next:"), "{}", broken.err);
    let everywhere = ran(&["list", "-A"]).await?;
    ensure!(everywhere.code == 125 && everywhere.err.contains("cannot list"), "{}", everywhere.err);
    let doctor = ran(&["doctor", "-o", "json"]).await?;
    let found: Value = serde_json::from_str(&doctor.out)?;
    let missing = found["items"].as_array().is_some_and(|items| {
        items.iter().any(|item| item["mend"].as_str().is_some_and(|mend| mend.contains("redlock-operator-break")))
    });
    ensure!(missing, "{found}");
    std::fs::remove_file(config)?;
    Ok(())
}
