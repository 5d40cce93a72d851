//! The output at a real pseudo-terminal (`script` of util-linux), and for programs in every format.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::support::{fails, hold_ended, json, redlock, two_claims};
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, is_held, token},
};

const TTL: Duration = Duration::from_secs(10);
const COLOUR: &str = "\u{1b}[3";
/// Moves to the start of the line and clears it.
const AGAIN: &str = "\r\u{1b}[K";

/// Runs `redlock` at a terminal with this input.
///
/// Returns the whole screen output.
async fn at_terminal(bench: &Bench, environment: &str, arguments: &str, typed: &str) -> anyhow::Result<String> {
    let (program, kubeconfig) = (bench.cluster.redlock_path(), bench.cluster.kubeconfig.display());
    let command = format!("KUBECONFIG={kubeconfig} {program} {arguments}");
    let script = format!("{environment} TERM=xterm script --quiet --return --command '{command}' /dev/null");
    // The test checks only the output, so the exit code is ignored.
    bench.cluster.shell(&format!("printf '{typed}' | {script} || true")).await
}

/// The commands that print locks and quorums, with the name of their list in JSON.
fn queries(bench: &Bench) -> Vec<(String, &'static str)> {
    let (namespace, operator) = (&bench.namespace, &bench.cluster.operator_namespace);
    [
        (format!("list -n {namespace}"), "items"),
        (format!("status {namespace}/reindex"), "items"),
        (format!("explain dlock/second -n {namespace}"), "links"),
        (format!("history {namespace}/reindex"), "items"),
        (format!("top -n {namespace} --once"), "items"),
        (format!("quorum status -n {operator} main"), "items"),
        ("doctor".to_owned(), "items"),
    ]
    .into()
}

pub(crate) async fn a_terminal_gets_colours_and_a_pipe_does_not(bench: Bench) -> anyhow::Result<()> {
    let (_first, _second) = two_claims(&bench).await?;
    for (command, _) in queries(&bench) {
        let observed = at_terminal(&bench, "NO_COLOR=", &command, "").await?;
        ensure!(observed.contains(COLOUR), "no colour in redlock {command}: {observed:?}");
        for environment in ["NO_COLOR=1", "TERM=dumb NO_COLOR=1"] {
            let plain = at_terminal(&bench, environment, &command, "").await?;
            ensure!(!plain.contains(COLOUR), "{environment} redlock {command}: {plain:?}");
        }
        let piped = redlock(&bench, &command.split(' ').collect::<Vec<_>>()).await?.out;
        ensure!(!piped.is_empty() && !piped.contains('\u{1b}'), "redlock {command}: {piped:?}");
    }
    let list = format!("list -n {}", bench.namespace);
    let observed = at_terminal(&bench, "NO_COLOR=", &list, "").await?;
    ensure!(observed.contains("\u{1b}[32mHeld\u{1b}[0m"), "the holder is not green: {observed:?}");
    ensure!(observed.contains("\u{1b}[33mQueued\u{1b}[0m"), "the waiting claim is not yellow: {observed:?}");
    let plain = at_terminal(&bench, "NO_COLOR=1", &list, "").await?;
    ensure!(plain.contains("Held") && !plain.contains('\u{1b}'), "{plain:?}");
    Ok(())
}

pub(crate) async fn every_query_has_the_formats_for_programs(bench: Bench) -> anyhow::Result<()> {
    let (_first, _second) = two_claims(&bench).await?;
    for (command, list) in queries(&bench) {
        let words: Vec<&str> = command.split(' ').collect();
        let output =
            async |format| Ok::<_, anyhow::Error>(redlock(&bench, &[&words[..], &["-o", format]].concat()).await?.out);
        let json: Value = serde_json::from_str(&output("json").await?).with_context(|| command.clone())?;
        let yaml: Value = serde_yaml::from_str(&output("yaml").await?).with_context(|| command.clone())?;
        ensure!(json[list].is_array(), "redlock {command}: {json}");
        let names = |value: &Value| value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
        ensure!(names(&json) == names(&yaml), "redlock {command}: {json} and {yaml}");
        let (text, wide) = (redlock(&bench, &words).await?.out, output("wide").await?);
        let widest = |text: &str| text.lines().map(|line| line.split("   ").count()).max();
        ensure!(widest(&wide) >= widest(&text), "redlock {command}: {wide}");
        ensure!(output("name").await?.lines().all(|line| !line.contains(' ')), "redlock {command} -o name");
    }
    fails(&bench, &["list", "-o", "xml"], "json, yaml, wide, name").await
}

pub(crate) async fn a_terminal_shows_the_progress_of_a_wait(bench: Bench) -> anyhow::Result<()> {
    let (_first, _second) = two_claims(&bench).await?;
    let namespace = &bench.namespace;
    let run = format!("run --lock {namespace}/reindex --wait 3s -- true");
    let observed = at_terminal(&bench, "", &run, "").await?;
    let line = format!("{AGAIN}waiting for lock {namespace}/reindex: ");
    for text in [line.as_str(), "in the queue", "first"] {
        ensure!(observed.contains(text), "no {text:?}: {observed:?}");
    }
    ensure!(observed.contains(&format!("{AGAIN}redlock: ")), "the line of progress is not cleared: {observed:?}");
    let wait = format!("wait dlock/second -n {namespace} --timeout 2s");
    let observed = at_terminal(&bench, "", &wait, "").await?;
    ensure!(observed.contains("waiting: dlock/second is Queued"), "no progress: {observed:?}");
    // Without a terminal the output has lines and no control characters.
    let run = redlock(&bench, &run.split(' ').collect::<Vec<_>>()).await?;
    let has_lines = run.err.contains("redlock: waiting for lock") && !run.err.contains('\u{1b}');
    ensure!(run.code == 122 && has_lines, "{} {}", run.code, run.err);
    Ok(())
}

pub(crate) async fn a_screen_is_drawn_again_until_it_is_left(bench: Bench) -> anyhow::Result<()> {
    let (_first, _second) = two_claims(&bench).await?;
    let (program, kubeconfig) = (bench.cluster.redlock_path(), bench.cluster.kubeconfig.display());
    let (namespace, operator) = (&bench.namespace, &bench.cluster.operator_namespace);
    for screen in [format!("top -n {namespace}"), format!("quorum status -n {operator} main --watch")] {
        let command = format!("KUBECONFIG={kubeconfig} timeout --foreground --signal=INT 7 {program} {screen}");
        // `script` creates a terminal without a size if it has none itself.
        let line = format!(
            "TERM=xterm script --quiet --return --command 'stty rows 30 cols 120; {command}' /dev/null </dev/null || true"
        );
        let observed = bench.cluster.shell(&line).await?;
        if screen.starts_with("top") {
            let is_left = observed.contains("\u{1b}[?1049h") && observed.contains("\u{1b}[?1049l");
            ensure!(is_left && observed.contains("VALIDITY"), "redlock {screen} left no usable terminal: {observed:?}");
            continue;
        }
        let drawn = observed.matches("MEMBER").count();
        ensure!(drawn >= 2, "redlock {screen} was drawn {drawn} times: {observed:?}");
    }
    Ok(())
}

pub(crate) async fn a_forced_break_at_a_terminal_needs_a_confirmation(bench: Bench) -> anyhow::Result<()> {
    let lock = Lock::create(&bench, claim("first", "reindex", None, TTL)).await?;
    let before = token(&lock.held(SOON).await?.object)?;
    let command = format!("break {}/reindex --reason stuck --force", bench.namespace);
    let refused = at_terminal(&bench, "", &command, "n\\n").await?;
    ensure!(refused.contains("may still work") || refused.contains("exclusion"), "no question: {refused:?}");
    let now = lock.recorder.last()?.object;
    ensure!(is_held(&now) && token(&now)? == before, "the lock was broken despite the answer no");
    let mark = lock.recorder.versions().len();
    at_terminal(&bench, "", &command, "y\\n").await?;
    hold_ended(&lock, mark, "Broken").await?;
    let history = json(&bench, &["history", &format!("{}/reindex", bench.namespace)]).await?;
    ensure!(history["items"].as_array().is_some_and(|items| items.iter().any(|item| item["fencingToken"] == before)));
    Ok(())
}
