//! An agent of an operator, which the test plays: by claims, and in an election.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::client::Agent;
use crate::{
    api::{ApiServer, NONCE, Operator, TOKEN, TTL},
    children::with_plugin,
    claims::secret,
    processes::{LOCK, Place, now, signal, until},
    servers::Servers,
};

fn agent(place: &Place, server: &ApiServer, options: &[&str]) -> Command {
    let mut agent = place.redlock(&[&["agent"][..], options].concat());
    agent.env("KUBECONFIG", server.kubeconfig(&place.folder));
    agent
}

fn claiming(place: &Place, server: &ApiServer, options: &[&str]) -> Agent {
    Agent::start(&mut agent(place, server, &[&["--lock", LOCK, "--identity", "me"][..], options].concat()))
}

fn elected(place: &Place, server: &ApiServer) -> Agent {
    Agent::start(&mut agent(place, server, &["--election", "shop/reindex", "--pod-uid", "u-1"]))
}

/// An agent with a registered instance, in an election that no pod leads yet.
fn electing(place: &Place, server: &ApiServer) -> (Agent, String) {
    let agent = elected(place, server);
    let instance = agent.register();
    until("no pod leads", || agent.leader(&instance).status == 409);
    (agent, instance)
}

#[test]
fn a_claim_is_made_for_an_instance_and_ends_with_its_promise() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let agent = claiming(&place, &server, &["--ttl", "8s"]);
    assert_eq!(agent.get("/leader").status, 409);
    assert!(server.claim().is_none(), "the agent made a claim without an instance");
    let instance = agent.register();
    assert_eq!(agent.until_leads(&instance).token(), TOKEN);
    let claim = server.claim().unwrap();
    assert_eq!(
        (&claim["spec"]["claim"]["identity"], &claim["spec"]["claim"]["heartbeat"]),
        (&json!("me"), &json!("4s"))
    );
    let second = agent.register();
    assert_eq!(agent.until_leads(&second).token(), TOKEN + 1, "the second instance has no claim of its own");
    assert!(server.was_released() && server.heartbeats() > 0);
}

#[test]
fn the_agent_reports_a_hold_ended_by_the_operator_at_once() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let agent = claiming(&place, &server, &["--ttl", "8s"]);
    let (instance, _) = agent.register_leader();
    server.end_hold();
    let ended = now();
    until("the instance is told", || agent.leader(&instance).status == 409);
    assert!(now().since(ended) < TTL / 2, "the instance was notified too late");
    assert!(agent.leader(&instance).body["detail"].as_str().unwrap().contains("alice"));
}

#[test]
fn an_instance_does_not_lead_while_its_claim_waits() {
    let (server, place) = (ApiServer::start(Operator::Queues, 0), Place::new());
    let agent = claiming(&place, &server, &[]);
    let instance = agent.register();
    until("the place in the queue is told", || {
        let said = agent.leader(&instance);
        said.status == 409 && said.body["detail"].as_str().unwrap().contains("lace 1 in the queue")
    });
    assert_eq!(agent.name(), "");
    agent.signal("TERM");
    assert_eq!(agent.end(), Some(0));
    assert!(server.claim().is_none(), "the claim can still get the lock");
}

#[test]
fn without_an_api_server_the_leader_is_unknown() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.set_away(true);
    let agent = claiming(&place, &server, &[]);
    let instance = agent.register();
    until("it is not known", || agent.leader(&instance).status == 503);
    server.set_away(false);
    let _ = agent.until_leads(&instance);
}

/// The clocks of the API server and of this machine differ by 30 s.
///
/// Later the API server does not answer.
#[test]
fn the_members_give_the_rest_of_the_validity_for_any_clock() {
    let (server, servers, place) = (ApiServer::start(Operator::Grants, 30), Servers::start(3), Place::new());
    let ttl = Duration::from_secs(4);
    let renew = || servers.set(LOCK, &format!("{NONCE}{}", "f".repeat(20)), 4_000);
    renew();
    let secret = secret(&place, &servers.urls());
    let agent = claiming(&place, &server, &["--ttl", "4s", "--members-secret", &secret]);
    let (instance, _) = agent.register_leader();
    server.set_away(true);
    let begun = now();
    let mut renewed = now();
    until("it leads for longer than what was published", || {
        renew();
        renewed = now();
        let said = agent.leader(&instance);
        assert!(said.status == 200 && said.end() <= now() + ttl, "{said:?}");
        now().since(begun) > TTL
    });
    until("it is not known any more", || {
        let said = agent.leader(&instance);
        assert!(said.status != 200 || said.end() <= renewed + ttl, "{said:?}");
        said.status == 503 || said.status == 409
    });
}

#[test]
fn a_machine_whose_clock_is_wrong_leads_nothing() {
    let (server, place) = (ApiServer::start(Operator::Grants, 30), Place::new());
    let agent = claiming(&place, &server, &[]);
    let instance = agent.register();
    until("it says why", || {
        let said = agent.leader(&instance);
        said.status == 503 && said.body["detail"].as_str().unwrap().contains("--skew is 1s")
    });
    assert!(server.claim().is_none());
}

#[test]
fn the_elected_pod_leads_with_tokens_after_its_registration() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.elect("pod-a", "u-1", TOKEN);
    let agent = elected(&place, &server);
    until("the leader is named", || agent.name() == "pod-a");
    let instance = agent.register();
    until("what was granted before is known", || agent.leader(&instance).reason() == "HeldBefore");
    until("the hold of before is given back", || server.was_released());
    assert_eq!(agent.name(), "", "a new program that reads the name must not be named as the leader");
    server.elect("pod-a", "u-1", TOKEN + 1);
    assert_eq!(agent.until_leads(&instance).token(), TOKEN + 1);
    assert_eq!(agent.name(), "pod-a");
    server.elect("pod-b", "u-2", TOKEN + 2);
    until("another pod leads", || agent.leader(&instance).reason() == "HeldByOther");
    assert_eq!(agent.name(), "pod-b");
    assert_eq!(agent.post(&format!("/locks/shop%2Freindex/acquire?instance={instance}")).reason(), "Election");
}

/// A second instance registers while the API server does not answer, like a restarted container.
#[test]
fn an_instance_that_starts_in_an_outage_gets_no_earlier_token() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let (agent, first) = electing(&place, &server);
    server.elect("pod-a", "u-1", TOKEN);
    let _ = agent.until_leads(&first);
    server.set_away(true);
    let second = agent.register();
    assert_eq!((agent.leader(&first).reason(), agent.leader(&second).status), ("NotServed", 409));
    server.set_away(false);
    until("the hold of before is given back", || server.was_released());
    server.elect("pod-a", "u-1", TOKEN + 2);
    assert_eq!(agent.until_leads(&second).token(), TOKEN + 2);
}

/// The instance stays registered, and the operator elects its pod again.
#[test]
fn an_instance_steps_down_by_a_release_request() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let (agent, instance) = electing(&place, &server);
    for token in [TOKEN, TOKEN + 1] {
        server.elect("pod-a", "u-1", token);
        assert_eq!(agent.until_leads(&instance).token(), token);
        let said = agent.post(&format!("/locks/shop%2Freindex/release?instance={instance}&token={token}"));
        assert_eq!(said.status, 200, "{said:?}");
        // The agent reads the end of the hold soon. Then it is unknown who leads.
        assert_ne!(agent.leader(&instance).status, 200);
        until("the operator reads the release", || server.claim().unwrap()["status"]["holder"].is_null());
    }
}

/// The operator renews the hold all the time, so only a release leads to another token.
#[test]
fn an_elected_pod_with_a_frozen_agent_gets_another_token() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let (agent, instance) = electing(&place, &server);
    server.elect("pod-a", "u-1", TOKEN);
    let _ = agent.until_leads(&instance);
    agent.signal("STOP");
    // The agent can have read a renewal after that answer.
    let end = now() + TTL;
    until("every validity that the agent has read has passed", || now() > end);
    agent.signal("CONT");
    until("the hold is given back", || server.was_released());
    server.elect("pod-a", "u-1", TOKEN + 1);
    assert_eq!(agent.until_leads(&instance).token(), TOKEN + 1);
}

#[test]
fn a_validity_that_is_not_published_again_ends() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let (agent, instance) = electing(&place, &server);
    server.elect("pod-a", "u-1", TOKEN);
    server.stop_renewing();
    let end = now() + TTL;
    let _ = agent.until_leads(&instance);
    // First the leader is unknown. Then the agent releases the hold, because no instance can use it.
    until("the instance does not lead any more", || {
        let said = agent.leader(&instance);
        assert!(said.status != 200 || said.end() <= end, "{said:?}");
        matches!(said.status, 503 | 409)
    });
    assert_eq!(agent.name(), "");
}

/// An agent tries again twice a second, and the log of a pod is limited.
#[test]
fn a_cluster_that_stays_unusable_is_one_line_of_the_log() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    let kubeconfig = with_plugin(&place, &server, "echo again >> attempts; exit 3", &[]);
    let log = place.folder.join("log");
    let mut agent =
        place.redlock(&["agent", "--election", "shop/reindex", "--pod-uid", "u-1", "--listen", "127.0.0.1:0"]);
    let mut agent = agent.env("KUBECONFIG", kubeconfig).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    until("three attempts", || place.read("attempts").lines().count() >= 3);
    signal(agent.id(), "TERM");
    assert_eq!(agent.wait().unwrap().code(), Some(0));
    assert_eq!(place.read("log").matches("failed to find a cluster").count(), 1, "{}", place.read("log"));
}

/// Each attempt creates a claim with another name.
#[test]
fn a_lock_that_stays_refused_is_one_line_of_the_log() {
    let (server, place) = (ApiServer::start(Operator::Grants, 0), Place::new());
    server.forbid("distributedlocks");
    let log = place.folder.join("log");
    let mut agent = agent(&place, &server, &["--lock", LOCK, "--identity", "me", "--listen", "unix:agent"]);
    let mut agent = agent.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    until("the agent listens", || place.folder.join("agent").exists());
    let mut register = place.redlock(&["run", "--agent", "unix:agent", "--lock", LOCK, "--", "true"]);
    let mut register = register.spawn().unwrap();
    until("three attempts", || server.creations() >= 3);
    for process in [&mut register, &mut agent] {
        signal(process.id(), "TERM");
        process.wait().unwrap();
    }
    assert_eq!(place.read("log").matches("redlock-operator-holder").count(), 1, "{}", place.read("log"));
}
