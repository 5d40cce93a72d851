//! `redlock run --agent`, and what the agent calls on its own.

use std::{process::Command, time::Duration};

use super::client::{Agent, direct};
use crate::processes::{IGNORES_TERM, LOCK, Place, WORKS_UNTIL_END, errors_of, now, until};
use crate::servers::Servers;

/// The longest validity: the ttl of the agents.
const LONGEST: Duration = Duration::from_secs(3);

#[test]
fn a_command_runs_while_the_agent_leads_and_frees_the_lock() {
    let (servers, place, agent) = direct(&[]);
    // The command runs for longer than one ttl.
    let output = agent.run(&place, &[], "echo $REDLOCK_TOKEN; sleep 4; cat $REDLOCK_FILE; exit 5").output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (token, file) = said.split_once('\n').unwrap();
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    assert_eq!((file["fencingToken"].to_string().as_str(), &file["holder"]), (token, &"me".into()));
    until("released", || servers.with(LOCK) == 0);
    // The next command is another instance, with its own token.
    let output = agent.run(&place, &[], "echo $REDLOCK_TOKEN").output().unwrap();
    let next: i64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(next > token.parse().unwrap());
}

#[test]
fn a_second_command_does_not_end_the_first_one() {
    let (_servers, place, agent) = direct(&[]);
    let first = place.started(agent.run(&place, &[], WORKS_UNTIL_END));
    let second = agent.run(&place, &["--try"], "touch second").output().unwrap();
    assert_eq!(second.status.code(), Some(122), "{second:?}");
    assert!(!place.folder.join("second").exists());
    let waiting = agent.run(&place, &["--wait", "1m"], "touch third").spawn().unwrap();
    std::fs::write(place.folder.join("end"), "").unwrap();
    first.ends_with(0);
    // The first command has unregistered from the agent, so the next command does not wait for its timeout.
    assert_eq!(waiting.wait_with_output().unwrap().status.code(), Some(0));
    assert!(place.folder.join("third").exists());
}

#[test]
fn a_probe_checks_whether_an_agent_runs() {
    let (_servers, place, agent) = direct(&[]);
    let listens = agent.url().replace("http://", "");
    let check = || place.redlock(&["agent", "--check", "--listen", &listens]).output().unwrap();
    assert_eq!(check().status.code(), Some(0));
    drop(agent);
    let errors = errors_of(&check(), 125);
    assert!(errors.contains("no agent answers at 127.0.0.1:"), "{errors}");
}

#[test]
fn a_command_ends_before_the_lock_of_its_agent_does() {
    let (servers, place, agent) = direct(&[]);
    let running = place.started(agent.run(&place, &[], IGNORES_TERM));
    servers.freeze();
    place.ends_before(now() + LONGEST);
    running.ends_with(123);
}

#[test]
fn a_command_whose_agent_is_killed_ends_in_time() {
    let (servers, place, agent) = direct(&[]);
    let running = place.started(agent.run(&place, &[], IGNORES_TERM));
    agent.signal("KILL");
    place.ends_before_the_lock(&servers);
    running.ends_with(123);
}

#[test]
fn an_agent_of_another_lock_is_refused() {
    let (_servers, place, agent) = direct(&[]);
    let listens = agent.url().replace("http://", "");
    let refused = place.redlock(&["run", "--agent", &listens, "--lock", "shop/other", "--", "true"]).output().unwrap();
    let said = errors_of(&refused, 125);
    assert!(said.contains("shop/reindex") && said.contains("shop/other"), "{said}");
    // A key alone needs no cluster.
    let same = place.redlock(&["run", "--agent", &listens, "--lock", "reindex", "--", "true"]).output().unwrap();
    errors_of(&same, 0);
}

#[test]
fn the_main_process_gets_a_signal_when_it_no_longer_leads() {
    let (servers, place) = (Servers::start(3), Place::new());
    let script =
        "trap 'echo lost > lost; exit' TERM; echo $$ > app.new; mv app.new app.pid; while :; do sleep 0.05; done";
    let mut application = Command::new("sh").args(["-c", script]).current_dir(&place.folder).spawn().unwrap();
    until("its number is known", || place.folder.join("app.pid").exists());
    let hook = format!("signal:TERM:{}", place.folder.join("app.pid").display());
    let agent = Agent::direct(&place, &servers, &["--on-lost", &hook]);
    agent.register_leader();
    assert_eq!(application.try_wait().unwrap(), None);
    servers.delete(LOCK);
    until("it has ended", || application.try_wait().unwrap().is_some());
    assert_eq!(place.read("lost"), "lost");
}
