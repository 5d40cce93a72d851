//! The run in the picture of README.md: a member restarts while a lock changes hands twice.
//!
//! `RECORD=$PWD/docs/restart.json cargo test -p redlock-client --test redis recording` records it, with times as long as in the picture.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use redlock_client::{Client, Event, Guard, MemberState};
use tokio::time::{sleep, sleep_until};

use super::servers::{servers, urls};
use super::{LONG, voting_within};

/// The member that restarts.
const RESTARTED: usize = 1;

/// Events with their times, oldest first. It records from the moment in `begun`.
#[derive(Clone, Default)]
struct Recording {
    begun: Arc<OnceLock<Instant>>,
    events: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Recording {
    fn add(&self, event: String) {
        if let Some(begun) = self.begun.get() {
            self.events.lock().unwrap().push((begun.elapsed(), event));
        }
    }

    /// The time of the first event that contains this text.
    fn at(&self, text: &str) -> Duration {
        let events = self.events.lock().unwrap();
        events.iter().find(|(_, event)| event.contains(text)).unwrap_or_else(|| panic!("no {text}: {events:?}")).0
    }

    fn json(&self, ttl: Duration, max_ttl: Duration) -> String {
        let mut text =
            format!("{{\n  \"ttl\": {},\n  \"maxTTL\": {},\n  \"events\": [", ttl.as_millis(), max_ttl.as_millis());
        for (index, (at, event)) in self.events.lock().unwrap().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(text, "{comma}\n    {{\"at\": {:.1}, {event}}}", at.as_secs_f64() * 1e3).unwrap();
        }
        text + "\n  ]\n}\n"
    }
}

async fn holder(recording: Recording, client: Client, name: &str, ttl: Duration) -> Guard {
    let guard = client.lock("k").ttl(ttl).wait(10 * LONG).acquire().await.unwrap();
    recording.add(format!(r#""holder": "{name}", "event": "acquired", "token": {}"#, guard.token()));
    guard
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a recording has times")]
async fn a_restarted_member_waits_while_a_lock_changes_hands() {
    let record = std::env::var_os("RECORD");
    let unit = Duration::from_millis(if record.is_some() { 1000 } else { 400 });
    let (ttl, max_ttl) = (5 * unit, 10 * unit);
    let mut servers = servers(3).await;
    let builder = || Client::builder(urls(&servers)).wait_before_voting(max_ttl);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(builder().connect().await.unwrap());
    }
    let recording = Recording::default();
    let (ports, record_of): (Vec<_>, _) = (servers.iter().map(|server| server.port).collect(), recording.clone());
    let observer = builder().on_event(move |event| {
        let Event::Member { member, state, .. } = event else { return };
        let index = ports.iter().position(|port| member.to_string().ends_with(&port.to_string())).unwrap();
        let state = match state {
            MemberState::Voting => "voting",
            MemberState::Waiting => "waiting",
            _ => "down",
        };
        record_of.add(format!(r#""member": {index}, "state": "{state}""#));
    });
    let observer = observer.connect().await.unwrap();
    for client in clients.iter().chain([&observer]) {
        voting_within(2 * max_ttl + LONG, client, 3).await;
    }

    let begun = tokio::time::Instant::now();
    recording.begun.set(begun.into_std()).unwrap();
    let [first, second, third]: [Client; 3] = clients.try_into().unwrap();
    let first = holder(recording.clone(), first, "A", ttl).await;
    let second = tokio::spawn(holder(recording.clone(), second, "B", ttl));
    sleep_until(begun + 3 * unit).await;
    servers[RESTARTED].restart().await;
    sleep_until(begun + 6 * unit).await;
    recording.add(r#""holder": "A", "event": "released""#.to_owned());
    let _ = first.release().await;
    let second = second.await.unwrap();
    let third = tokio::spawn(holder(recording.clone(), third, "C", ttl));
    sleep_until(begun + 8 * unit).await;
    // The end of this hold is like the loss of its holder's machine.
    recording.add(r#""holder": "B", "event": "stopped""#.to_owned());
    let _held = second.into_held();
    let third = third.await.unwrap();
    voting_within(2 * max_ttl + LONG, &observer, 3).await;
    sleep(2 * unit).await;
    recording.add(r#""holder": "C", "event": "released""#.to_owned());
    let _ = third.release().await;

    let waiting = recording.at(&format!(r#""member": {RESTARTED}, "state": "waiting""#));
    let votes = recording.at(&format!(r#""member": {RESTARTED}, "state": "voting""#));
    assert!(votes - waiting >= max_ttl, "it voted after {:?}", votes - waiting);
    let handed_over = recording.at(r#""B", "event": "acquired""#) - recording.at(r#""A", "event": "released""#);
    assert!(handed_over < ttl, "{handed_over:?}");
    assert!(recording.at(r#""C", "event": "acquired""#) > recording.at(r#""B", "event": "stopped""#));
    if let Some(path) = record {
        std::fs::write(path, recording.json(ttl, max_ttl)).unwrap();
    }
}
