//! `redlock run` by claims, with an API server and an operator that the test plays.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::json;

use crate::{
    api::{ApiServer, NONCE, Operator, TOKEN, TTL},
    processes::{IGNORES_TERM, LOCK, Place, errors_of, now, signal, until},
    servers::Servers,
};

fn run(place: &Place, server: &ApiServer, options: &[&str], script: &str) -> Command {
    let kubeconfig = server.kubeconfig(&place.folder);
    let ttl = if options.contains(&"--ttl") { &[][..] } else { &["--ttl", "8s"] };
    let mut run = place.redlock(&[&["run", "--lock", LOCK][..], ttl, options, &["--", "sh", "-c", script]].concat());
    run.env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    run
}

#[test]
fn a_claim_is_made_followed_and_released() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    // The command runs for longer than one ttl, which needs a renewed validity in the status.
    let script = "echo $REDLOCK_TOKEN; sleep 9; exit 5";
    let output = run(&place, &server, &["--priority", "3", "--max-hold", "1h"], script).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), TOKEN.to_string());
    let claim = server.claim().unwrap();
    let name = claim["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("reindex-") && name.len() == 16, "{name}");
    let spec = &claim["spec"];
    assert_eq!((&spec["key"], &spec["priority"]), (&json!("reindex"), &json!(3)));
    assert_eq!((&spec["maxHold"], &spec["claim"]["heartbeat"]), (&json!("1h"), &json!("4s")));
    assert!(spec["ttlAfterFinished"].is_string() && spec["claim"]["identity"].is_string(), "{spec}");
    assert!(server.heartbeats() >= 5, "fewer heartbeats than three in 4 s: {}", server.heartbeats());
    assert!(server.was_released());
}

/// The inner run would wait for a lock that the outer run releases only after the inner run ends.
#[test]
fn a_run_inside_another_does_not_wait_for_its_own_lock() {
    let (server, servers, place) = (ApiServer::start(Operator::Grants, 0), Servers::start(3), Place::new());
    let direct = format!("{} --lock {LOCK}", servers.run());
    let claim = format!("{} run --lock {LOCK} --ttl 8s", env!("CARGO_BIN_EXE_redlock"));
    for (outer, inner) in [(&claim, &direct), (&direct, &claim)] {
        let script = format!("{outer} -- {inner} -- touch ran");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(&place.folder).env("KUBECONFIG", server.kubeconfig(&place.folder));
        let text = errors_of(&command.output().unwrap(), 125);
        assert!(text.contains("holds lock shop/reindex by another way"), "{text}");
        assert!(!place.folder.join("ran").exists());
    }
}

#[test]
fn a_command_ends_before_the_last_published_validity() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let running = place.started(run(&place, &server, &[], IGNORES_TERM));
    server.stop_renewing();
    let stopped = now();
    until("the command is gone", || place.alive().is_empty());
    assert!(now().since(stopped) < TTL, "{:?}", now().since(stopped));
    running.ends_with(123);
}

#[test]
fn a_hold_that_the_operator_ends_ends_the_command() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let script = "trap ': >asked; exit 0' TERM; touch ready; while :; do sleep 0.05; done";
    // With the shortest ttl the grace is 250 ms, which is too short for a shell on a busy machine.
    let options = ["--ttl", "24s", "--grace", "2s"];
    let running = place.started(run(&place, &server, &options, script));
    server.end_hold();
    let said = running.ends_with(123);
    assert!(said.contains("by alice (Broken)"), "{said}");
    assert!(place.folder.join("asked").exists());
}

#[test]
fn a_claim_that_has_to_wait_is_given_up_and_deleted() {
    let (server, place) = (ApiServer::start(Operator::Queues, 0), Place::new());
    let said = errors_of(&run(&place, &server, &["--try"], "touch ran").output().unwrap(), 122);
    assert!(said.contains("place 1 in the queue. another claim holds it"), "{said}");
    assert!(!place.folder.join("ran").exists() && server.claim().is_none());
}

/// Writes a client's Secret as a pod mounts it, and returns its folder.
pub(crate) fn secret(place: &Place, urls: &str) -> String {
    let folder = place.folder.join("secret");
    std::fs::create_dir_all(&folder).unwrap();
    let urls = urls.replace(',', "\n");
    let entries = [("urls", urls.as_str()), ("keyPrefix", "shop/"), ("maxTTL", "30s"), ("clockDrift", "10000ppm 2ms")];
    for (name, content) in entries.iter().chain(&[("nodeTimeout", "500ms"), ("quorum", "2"), ("fenced", "true")]) {
        // The rename is atomic, so that no reader gets half a file.
        std::fs::write(folder.join("new"), content).unwrap();
        std::fs::rename(folder.join("new"), folder.join(name)).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

/// The API server's clock is wrong by 30 s, so the validity in the status is useless.
#[test]
fn a_run_uses_the_members_validity_despite_a_wrong_clock() {
    let (server, servers, place) = (ApiServer::start(Operator::Grants, 30), Servers::start(3), Place::new());
    let renew = || servers.set(LOCK, &format!("{NONCE}{}", "f".repeat(20)), 4_000);
    renew();
    let secret = secret(&place, &servers.urls());
    let mut child = run(&place, &server, &["--ttl", "4s", "--members-secret", &secret], IGNORES_TERM).spawn().unwrap();
    let begun = now();
    until("it has been renewed for longer than a ttl", || {
        renew();
        place.folder.join("ready").exists() && now().since(begun) > TTL
    });
    assert!(!place.alive().is_empty(), "the command has ended");
    place.ends_before_the_lock(&servers);
    assert_eq!(child.wait().unwrap().code(), Some(123));
}

/// The members do not show the hold yet, so `redlock run` reads them again, for at most half a ttl.
#[test]
fn a_signal_before_the_members_show_the_hold_releases_it() {
    let (server, servers, place) = (ApiServer::start(Operator::Grants, 0), Servers::start(3), Place::new());
    let secret = secret(&place, &servers.urls());
    let mut child = run(&place, &server, &["--ttl", "5m", "--members-secret", &secret], "touch ran").spawn().unwrap();
    until("the members are read", || servers.clients() > 0);
    signal(child.id(), "TERM");
    until("redlock run has ended", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(server.was_released() && !place.folder.join("ran").exists());
}

/// The API server creates the claim, but its answer is lost.
///
/// `redlock run` finds the same claim by its name, and queues no second one.
#[test]
fn a_creation_without_an_answer_leaves_one_claim() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.lose_answers(2);
    let output = run(&place, &server, &["--wait", "20s"], "echo ran").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]), "{errors}");
    assert!(server.creations() >= 2 && server.was_released(), "{errors}");
}

/// The API server creates the claim, but all answers are lost.
///
/// `redlock run` deletes the claim. Its exit code differs from that of a taken lock.
#[test]
fn a_claim_whose_creation_had_no_answer_is_deleted() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.lose_answers(usize::MAX);
    let options = ["--wait", "0s", "--not-acquired-exit-code", "0"];
    let errors = errors_of(&run(&place, &server, &options, "touch ran").output().unwrap(), 125);
    assert!(errors.contains("the API server does not answer"), "{errors}");
    assert!(server.creations() > 1 && server.claim().is_none() && !place.folder.join("ran").exists());
}

/// The API server has created the claim, and a signal comes before its answer.
#[test]
fn a_signal_during_the_creation_leaves_no_claim() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.delay_creations(Duration::from_secs(60));
    let mut child = run(&place, &server, &[], "touch ran").spawn().unwrap();
    until("the claim exists", || server.creations() > 0);
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(server.claim().is_none() && !place.folder.join("ran").exists());
}

/// The API server answers again within the time of `--wait`.
#[test]
fn a_run_waits_until_the_api_server_answers() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.set_away(true);
    let mut command = run(&place, &server, &["--wait", "30s"], "echo ran");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let waits = errors.find(|line| line.as_ref().is_ok_and(|line| line.contains("the API server does not answer")));
    assert!(waits.is_some());
    server.set_away(false);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]));
}

/// Like kubectl, `redlock run` uses no proxy for this machine.
///
/// The variables name a proxy that does not answer.
#[test]
fn an_api_server_on_this_machine_is_reached_without_the_proxy() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let mut command = run(&place, &server, &["--try"], "echo ran");
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"] {
        command.env(name, "http://127.0.0.1:1");
    }
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]), "{output:?}");
}

/// Every claim waits for the operator's first answer, so `redlock run` does not report a short wait.
#[test]
fn a_lock_that_is_granted_at_once_causes_no_message() {
    let (server, place) = (ApiServer::start(Operator::Silent, 0), Place::new());
    let child = run(&place, &server, &[], "true").stderr(Stdio::piped()).spawn().unwrap();
    until("the claim exists", || server.creations() == 1);
    let created = now();
    until("the operator has its time", || now().since(created) > Duration::from_millis(300));
    server.grant();
    let output = child.wait_with_output().unwrap();
    // A slow machine can report the wait.
    if now().since(created) < Duration::from_secs(1) {
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// Without an answer of the operator, `redlock run` must not report another holder.
#[test]
fn a_silent_operator_is_an_error_of_its_own() {
    let (server, place) = (ApiServer::start(Operator::Silent, 0), Place::new());
    let options = ["--wait", "100ms", "--not-acquired-exit-code", "0"];
    let errors = errors_of(&run(&place, &server, &options, "touch ran").output().unwrap(), 125);
    assert!(errors.contains("the operator has not answered"), "{errors}");
    assert!(!place.folder.join("ran").exists() && server.claim().is_none());
}

/// Without `--wait` a command whose user cannot watch its claim would wait without end.
#[test]
fn a_user_who_cannot_watch_claims_gets_an_error() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.forbid("distributedlocks");
    let errors = errors_of(&run(&place, &server, &["--wait", "5s"], "touch ran").output().unwrap(), 125);
    assert!(errors.contains("failed to watch claims in namespace shop"), "{errors}");
    assert!(errors.contains("next: Bind the ClusterRole redlock-operator-holder"), "{errors}");
    assert!(!place.folder.join("ran").exists() && server.claim().is_none());
}

/// A full standard error must not change the exit code.
#[test]
fn a_standard_error_that_takes_nothing_stops_nothing() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (server, place) = (ApiServer::start(Operator::Queues, 0), Place::new());
    let status = run(&place, &server, &["--try"], "touch ran").stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(122));
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let mut child = run(&place, &server, &[], IGNORES_TERM).stderr(full()).spawn().unwrap();
    until("the command is ready", || place.folder.join("ready").exists());
    server.end_hold();
    assert_eq!(child.wait().unwrap().code(), Some(123));
}

#[test]
fn a_machine_whose_clock_is_wrong_starts_nothing() {
    let (server, place) = (ApiServer::start(Operator::Grants, 30), Place::new());
    let said = errors_of(&run(&place, &server, &[], "touch ran").output().unwrap(), 125);
    assert!(said.contains("--skew is 1s") && said.contains("--members-secret"), "{said}");
    assert!(!place.folder.join("ran").exists() && server.claim().is_none());
}
