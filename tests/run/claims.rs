//! `redlock run` by claims, with an API server and an operator that the test plays.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::{
    api::{ApiServer, NONCE, Operator, TOKEN, TTL},
    processes::{LOCK, Place, now, until},
    servers::{Servers, urls},
    shifted::WallClock,
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
    // Longer than one ttl: the command goes on because the status says so.
    let script = "echo $REDLOCK_TOKEN; sleep 9; exit 5";
    let output = run(&place, &server, &["--priority", "3", "--max-hold", "1h"], script).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), TOKEN.to_string());
    let claim = server.claim().unwrap();
    assert_eq!(claim["metadata"]["generateName"], "reindex-");
    let spec = &claim["spec"];
    assert_eq!((&spec["key"], &spec["priority"]), (&json!("reindex"), &json!(3)));
    assert_eq!((&spec["maxHold"], &spec["claim"]["heartbeat"]), (&json!("1h"), &json!("4s")));
    assert!(spec["ttlAfterFinished"].is_string() && spec["claim"]["identity"].is_string(), "{spec}");
    assert!(server.heartbeats() >= 5, "three for each 4 s: {}", server.heartbeats());
    assert!(server.was_released());
}

#[test]
fn a_command_ends_before_what_was_published_last() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let mut child =
        run(&place, &server, &[], "trap '' TERM; touch ready; while :; do sleep 0.05; done").spawn().unwrap();
    until("the command is ready", || place.folder.join("ready").exists());
    server.stop_renewing();
    let stopped = now();
    until("the command is gone", || place.alive().is_empty());
    assert!(now().since(stopped) < TTL, "{:?}", now().since(stopped));
    assert_eq!(child.wait().unwrap().code(), Some(123));
}

#[test]
fn a_hold_that_the_operator_ends_ends_the_command() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let script = "trap 'touch asked; exit 0' TERM; touch ready; while :; do sleep 0.05; done";
    let child = run(&place, &server, &[], script).stderr(Stdio::piped()).spawn().unwrap();
    until("the command is ready", || place.folder.join("ready").exists());
    server.end_hold();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(123), "{said}");
    assert!(said.contains("by alice (Broken)"), "{said}");
    assert!(place.folder.join("asked").exists());
}

#[test]
fn a_claim_that_has_to_wait_is_given_up_and_deleted() {
    let (server, place) = (ApiServer::start(Operator::Queues, 0), Place::new());
    let output = run(&place, &server, &["--try"], "touch ran").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(122), "{said}");
    assert!(said.contains("place 1 in the queue. another claim holds it"), "{said}");
    assert!(!place.folder.join("ran").exists() && server.claim().is_none());
}

/// A client's Secret as a pod mounts it.
pub(crate) fn secret(place: &Place, ports: &[u16]) -> String {
    let folder = place.folder.join("secret");
    std::fs::create_dir(&folder).unwrap();
    let urls = urls(ports).replace(',', "\n");
    let entries = [("urls", urls.as_str()), ("keyPrefix", "shop/"), ("maxTTL", "30s"), ("clockDrift", "10000ppm 2ms")];
    for (name, content) in entries.iter().chain(&[("nodeTimeout", "500ms"), ("quorum", "2"), ("fenced", "true")]) {
        std::fs::write(folder.join(name), content).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

/// The API server's clock is wrong by 30 s, and so would be what is read from the status.
#[test]
fn the_members_tell_what_is_left_whatever_clocks_say() {
    let (server, servers, place) = (ApiServer::start(Operator::Grants, 30), Servers::start(3), Place::new());
    let renew = || servers.set(LOCK, &format!("{NONCE}{}", "f".repeat(20)), 4_000);
    renew();
    let secret = secret(&place, &servers.ports());
    let script = "trap '' TERM; touch ready; while :; do sleep 0.05; done";
    let mut child = run(&place, &server, &["--ttl", "4s", "--members-secret", &secret], script).spawn().unwrap();
    let begun = now();
    until("it has been renewed for longer than a ttl", || {
        renew();
        place.folder.join("ready").exists() && now().since(begun) > TTL
    });
    assert!(!place.alive().is_empty(), "the command goes on");
    place.ends_before_the_lock(&servers);
    assert_eq!(child.wait().unwrap().code(), Some(123));
}

/// Without the members it relies on the clocks, so it ends its command when one is set.
#[test]
fn a_clock_that_is_set_while_it_runs_ends_the_command() {
    for seconds in [3_600, -3_600] {
        let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
        let clock = WallClock::new(&place.folder);
        let mut command = run(&place, &server, &[], "trap '' TERM; touch ready; while :; do sleep 0.05; done");
        clock.of(&mut command);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        until("the command is ready", || place.folder.join("ready").exists());
        clock.set_by(seconds);
        let set = now();
        until("the command is gone", || place.alive().is_empty());
        assert!(now().since(set) < TTL, "{:?}", now().since(set));
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(123), "{said}");
        assert!(said.contains("the clock of this machine was set by 1h"), "{said}");
    }
}

#[test]
fn a_machine_whose_clock_is_wrong_starts_nothing() {
    let (server, place) = (ApiServer::start(Operator::Grants, 30), Place::new());
    let output = run(&place, &server, &[], "touch ran").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("--skew is 1s") && said.contains("--members-secret"), "{said}");
    assert!(!place.folder.join("ran").exists() && server.claim().is_none());
}
