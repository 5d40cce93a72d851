//! `redlock run --agent`, and what the agent calls by itself.

use std::{
    io::{Read, Write},
    net::TcpListener,
    process::Command,
    sync::mpsc,
    time::Duration,
};

use super::client::Agent;
use crate::processes::{LOCK, Place, now, signal, until};
use crate::servers::Servers;

/// That of the agents.
const LONGEST: Duration = Duration::from_secs(3);

#[test]
fn a_command_runs_while_the_agent_leads_and_then_the_lock_is_free() {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = Agent::direct(&place, &servers, &[]);
    // Longer than one ttl.
    let output = agent.run(&place, "echo $REDLOCK_TOKEN; sleep 4; cat $REDLOCK_FILE; exit 5").output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (token, file) = said.split_once('\n').unwrap();
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    assert_eq!((file["fencingToken"].to_string().as_str(), &file["holder"]), (token, &"me".into()));
    until("released", || servers.with(LOCK) == 0);
    // The next one is another instance, with a token of its own.
    let output = agent.run(&place, "echo $REDLOCK_TOKEN").output().unwrap();
    let next: i64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(next > token.parse().unwrap());
}

#[test]
fn a_command_ends_before_the_lock_of_its_agent_does() {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = Agent::direct(&place, &servers, &[]);
    let script = "trap '' TERM; touch ready; while :; do sleep 0.05; done";
    let mut child = agent.run(&place, script).spawn().unwrap();
    until("the command is ready", || place.folder.join("ready").exists());
    servers.freeze();
    place.ends_before(now() + LONGEST);
    assert_eq!(child.wait().unwrap().code(), Some(123));
}

#[test]
fn a_command_whose_agent_is_killed_ends_in_time() {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = Agent::direct(&place, &servers, &[]);
    let script = "trap '' TERM; touch ready; while :; do sleep 0.05; done";
    let mut child = agent.run(&place, script).spawn().unwrap();
    until("the command is ready", || place.folder.join("ready").exists());
    agent.signal("KILL");
    place.ends_before_the_lock(&servers);
    assert_eq!(child.wait().unwrap().code(), Some(123));
}

#[test]
fn an_agent_of_another_lock_is_refused() {
    let (servers, place) = (Servers::start(3), Place::new());
    let agent = Agent::direct(&place, &servers, &[]);
    let listens = agent.url().replace("http://", "");
    let refused = place.redlock(&["run", "--agent", &listens, "--lock", "shop/other", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(125), "{said}");
    assert!(said.contains("shop/reindex") && said.contains("shop/other"), "{said}");
}

/// An application that is told: what was posted to it.
fn application() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut text = String::new();
            let mut bytes = [0; 4096];
            // The body is one line of JSON or one object.
            while !text.trim_end().ends_with('}') {
                let read = stream.read(&mut bytes).unwrap();
                text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    (port, told)
}

#[test]
fn an_application_is_told_when_it_leads_and_when_it_does_not_any_more() {
    let (servers, place) = (Servers::start(3), Place::new());
    let (port, told) = application();
    let script = place.folder.join("lost.sh");
    std::fs::write(&script, "#!/bin/sh\necho $REDLOCK_LOCK $REDLOCK_TOKEN > lost\n").unwrap();
    Command::new("chmod").args(["+x", script.to_str().unwrap()]).status().unwrap();
    let elected = format!("http://127.0.0.1:{port}/elected");
    let agent = Agent::direct(&place, &servers, &["--on-elected", &elected, "--on-lost", script.to_str().unwrap()]);
    let instance = agent.register();
    let token = agent.until_leads(&instance).token();
    let text = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(text.starts_with("POST /elected ") && text.contains(&format!("\"fencingToken\":{token}")), "{text}");
    servers.freeze();
    until("the loss is told", || place.read("lost") == format!("{LOCK} {token}"));
    assert_ne!(agent.leader(&instance).status, 200);
    servers.thaw();
    let text = told.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(!text.contains(&token.to_string()), "{text}");
    signal(agent.pid(), "TERM");
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn the_main_process_gets_a_signal_when_it_does_not_lead_any_more() {
    let (servers, place) = (Servers::start(3), Place::new());
    let script =
        "trap 'echo lost > lost; exit' TERM; echo $$ > app.new; mv app.new app.pid; while :; do sleep 0.05; done";
    let mut application = Command::new("sh").args(["-c", script]).current_dir(&place.folder).spawn().unwrap();
    until("its number is known", || place.folder.join("app.pid").exists());
    let hook = format!("signal:TERM:{}", place.folder.join("app.pid").display());
    let agent = Agent::direct(&place, &servers, &["--on-lost", &hook]);
    let instance = agent.register();
    agent.until_leads(&instance);
    assert_eq!(application.try_wait().unwrap(), None);
    servers.delete(LOCK);
    until("it has ended", || application.try_wait().unwrap().is_some());
    assert_eq!(place.read("lost"), "lost");
}
