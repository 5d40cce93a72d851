//! An agent that takes locks from the members, without Kubernetes.

use std::time::Duration;

use super::client::{Agent, direct, get_unix};
use crate::processes::{LOCK, Place, WORKS, now, signal, until};
use crate::servers::Servers;

/// The ttl of the agents, which is `TTL` of the tests.
const TTL: Duration = Duration::from_secs(3);

#[test]
fn an_instance_that_has_registered_leads() {
    let (servers, _place, agent) = direct(&[]);
    assert_eq!((agent.leader("x").reason(), agent.get("/leader").reason()), ("NotServed", "NotRegistered"));
    assert_eq!((agent.name().as_str(), servers.with(LOCK)), ("", 0), "the agent took the lock without an instance");
    let (instance, said) = agent.register_leader();
    assert_eq!((&said.body["lock"], &said.body["holder"]), (&LOCK.into(), &"me".into()));
    assert!(said.body["validForMs"].as_u64().unwrap() <= 3_000, "{said:?}");
    assert!(servers.have_majority(LOCK));
    assert_eq!((agent.name().as_str(), agent.get("/leader").status), ("me", 409));
    // For longer than one ttl the agent renews the lock, and its answers stay the same.
    let begun = now();
    while now().since(begun) < TTL + Duration::from_secs(1) {
        let again = agent.leader(&instance);
        assert_eq!((again.status, again.body["fencingToken"].as_i64()), (200, Some(said.token())), "{again:?}");
    }
}

#[test]
fn a_new_instance_gets_its_own_token_after_the_earlier_promise() {
    let (_servers, _place, agent) = direct(&[]);
    let (first, promise) = agent.register_leader();
    let second = agent.register();
    assert_eq!(agent.leader(&first).reason(), "NotServed");
    let refused = agent.leader(&second);
    assert_eq!(refused.status, 409, "{refused:?}");
    let said = agent.until_leads(&second);
    assert!(said.token() > promise.token());
    // This is the agent's own deadline. `Reply::end` is earlier, because it uses the time before the request.
    let earliest = Duration::from_millis(promise.body["deadlineBoottimeMs"].as_u64().unwrap());
    assert!(now().since_boot() >= earliest, "the first instance can still work");
}

#[test]
fn no_answer_outlives_the_lock() {
    let (servers, _place, agent) = direct(&[]);
    let (instance, _) = agent.register_leader();
    let mut events = agent.events(&format!("/watch?instance={instance}"));
    assert!(events.any(|line| line == "event: leader"));
    servers.freeze();
    let end = now() + TTL;
    let mut last = agent.leader(&instance);
    until("it is not known any more who leads", || {
        if last.status == 200 {
            assert!(last.end() <= end, "{last:?}");
        }
        last = agent.leader(&instance);
        last.status == 503
    });
    assert_eq!((last.reason(), agent.name().as_str()), ("Unknown", ""));
    assert!(events.any(|line| line == "event: unknown"));
    assert_eq!(agent.get("/healthz").status, 200);
}

#[test]
fn the_agent_reports_a_lost_lock_and_acquires_it_again() {
    let (servers, _place, agent) = direct(&[]);
    let (instance, first) = agent.register_leader();
    servers.delete(LOCK);
    until("the instance is told", || agent.leader(&instance).status == 409);
    assert!(agent.until_leads(&instance).token() > first.token());
}

#[test]
fn an_application_that_stops_its_requests_loses_the_lock() {
    let (servers, place, agent) = direct(&["--patience", "1s"]);
    let (instance, promise) = agent.register_leader();
    // Another holder gets the lock, but only after the promise has expired.
    let output = place.output(&servers, &["--wait", "20s"], &["true"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(now().since_boot() >= Duration::from_millis(promise.body["deadlineBoottimeMs"].as_u64().unwrap()));
    // The application was only slow, and can lead again.
    assert!(agent.until_leads(&instance).token() > promise.token());
}

#[test]
fn a_release_frees_the_lock_at_once_without_a_new_acquisition() {
    let (servers, place, agent) = direct(&[]);
    let (instance, first) = agent.register_leader();
    let path = "/locks/shop%2Freindex";
    assert_eq!(agent.post(&format!("{path}/release?instance={instance}&token=7")).reason(), "OtherToken");
    let released = agent.post(&format!("{path}/release?instance={instance}&token={}", first.token()));
    assert_eq!(released.status, 200, "{released:?}");
    let output = place.output(&servers, &["--wait", "2s"], &["true"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(agent.leader(&instance).status, 409);
    let again = agent.post(&format!("{path}/acquire?instance={instance}&wait=20s"));
    assert!(again.status == 200 && again.token() > first.token(), "{again:?}");
    assert_eq!(agent.leader(&instance).token(), again.token());
}

#[test]
fn locks_are_acquired_renewed_and_released() {
    let (servers, place) = (Servers::start(3), Place::new());
    let (one, two) = (Agent::direct(&place, &servers, &[]), Agent::direct(&place, &servers, &["--patience", "1m"]));
    let (a, b) = (one.register(), two.register());
    let path = "/locks/shop%2Fjobs%2Facquire";
    assert_eq!(one.get(&format!("{path}?instance={a}")).status, 404);
    assert_eq!(one.post(&format!("{path}/acquire")).reason(), "NotRegistered");
    let held = one.post(&format!("{path}/acquire?instance={a}&request=r1"));
    assert_eq!((held.status, &held.body["lock"]), (200, &"shop/jobs/acquire".into()), "{held:?}");
    assert_eq!(
        one.post(&format!("{path}/acquire?instance={a}&request=r1")).token(),
        held.token(),
        "a repeated request must return the same hold"
    );
    assert_eq!(one.post(&format!("{path}/acquire?instance={a}&request=r2")).reason(), "Taken");
    let refused = two.post(&format!("{path}/acquire?instance={b}"));
    assert_eq!((refused.status, refused.reason()), (409, "NotHeld"), "{refused:?}");
    let renewed = one.post(&format!("{path}/renew?instance={a}&token={}", held.token()));
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(one.post(&format!("{path}/renew?instance={a}&token=7")).reason(), "OtherToken");
    let released = one.post(&format!("{path}/release?instance={a}&token={}", held.token()));
    assert_eq!(released.status, 200, "{released:?}");
    let next = two.post(&format!("{path}/acquire?instance={b}&wait=10s&holdFor=1s"));
    assert!(next.status == 200 && next.token() > held.token(), "{next:?}");
    until("it is held no longer than it was asked for", || servers.with("shop/jobs/acquire") == 0);
}

#[test]
fn cross_site_requests_to_an_agent_are_refused() {
    let (_servers, _place, agent) = direct(&[]);
    assert_eq!(agent.ask("POST", "/register", "Host: localhost\r\n").reason(), "NoHeader");
    assert_eq!(agent.ask("GET", "/leader", "Host: example.com\r\n").reason(), "NotLoopback");
    assert_eq!(agent.get("/nothing").status, 404);
    assert_eq!(agent.get("/register").status, 405);
    assert_eq!(agent.get("/leader?instanc=x").reason(), "BadParameter");
    assert_eq!(agent.get("/openapi.json").body["openapi"], "3.1.0");
}

#[test]
fn a_socket_file_serves_the_same_and_replaces_an_old_one() {
    let (servers, place) = (Servers::start(3), Place::new());
    let path = place.folder.join("agent.sock");
    let listen = format!("unix:{}", path.display());
    for _ in 0..2 {
        let agent = Agent::direct(&place, &servers, &["--listen", &listen]);
        let (instance, _) = agent.register_leader();
        let said = get_unix(&path, &format!("/leader?instance={instance}&wait=5s"));
        assert_eq!(said.status, 200, "{said:?}");
        // The socket file stays after SIGKILL.
        agent.signal("KILL");
        let _ = agent.end();
        until("the lock has run out", || servers.with(LOCK) == 0);
    }
}

#[test]
fn a_stopped_agent_releases_the_lock_after_its_promise() {
    let (servers, _place, agent) = direct(&[]);
    let (instance, promise) = agent.register_leader();
    agent.signal("TERM");
    until("it is told that the agent ends", || agent.leader(&instance).status == 409);
    assert_eq!(agent.end(), Some(0));
    assert!(now().since_boot() >= Duration::from_millis(promise.body["deadlineBoottimeMs"].as_u64().unwrap()));
    assert_eq!(servers.with(LOCK), 0, "the lock was not released");
}

/// The agent can be frozen before it reads its clock, or between that and its answer.
#[test]
fn a_frozen_agent_does_not_promise_an_expired_lock() {
    let (servers, place, agent) = direct(&[]);
    let (instance, first) = agent.register_leader();
    agent.signal("STOP");
    until("the lock has run out", || servers.with(LOCK) == 0);
    let other = place.start(&servers, &[], WORKS);
    agent.signal("CONT");
    let said = agent.leader(&instance);
    assert_ne!(said.status, 200, "{said:?}");
    signal(other.pid(), "TERM");
    let _ = other.end();
    assert!(agent.until_leads(&instance).token() > first.token());
}

/// The test measures the agent's own memory, without the program, which all containers of a node share.
#[test]
fn an_agent_stays_small() {
    const MOST_KB: u64 = 15_000;
    let (_servers, _place, agent) = direct(&[]);
    let (instance, _) = agent.register_leader();
    for _ in 0..2_000 {
        agent.leader(&instance);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    let kilobytes: u64 = own.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < MOST_KB, "{kilobytes} kB");
}
