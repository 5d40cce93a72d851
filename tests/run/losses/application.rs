//! An application that asks its agent all the time, by `/leader` and by `/watch`.

use std::{sync::Mutex, thread, time::Duration};

use redlock_operator::time::Boottime;
use serde_json::Value;

use super::{
    judge,
    kinds::{Fault, Kind},
    lock::Hold,
    world::World,
};
use crate::{
    agent::client::Agent,
    processes::{now, until},
};

/// The agent's answers about one hold.
struct Heard {
    token: i64,
    /// The deadline of its work.
    deadline: Boottime,
    /// The time of the last request that was not answered with a lead.
    refused: Option<Boottime>,
    /// The smallest other token, which must be larger than `token`.
    other: Option<i64>,
}

impl Heard {
    fn leads(&mut self, said: &Value) {
        let (Some(token), Some(deadline)) = (said["fencingToken"].as_i64(), said["deadlineBoottimeMs"].as_u64()) else {
            return;
        };
        if token == self.token {
            self.deadline = self.deadline.max(Boottime::new(Duration::from_millis(deadline)));
        } else {
            self.other = Some(self.other.map_or(token, |other| other.min(token)));
        }
    }
}

/// Sends requests until the agent has ended or the test ends.
fn ask(agent: &Agent, instance: &str, heard: &Mutex<Option<Heard>>) {
    loop {
        let asked = now();
        let said = agent.try_leader(instance);
        let mut heard = heard.lock().unwrap();
        let Some(heard) = heard.as_mut() else { return };
        match said {
            Some(said) if said.status == 200 => {
                heard.leads(&said.body);
                // `validForMs`, added to the time before the request, is never later than the real deadline.
                heard.deadline =
                    heard.deadline.max(if said.token() == heard.token { said.end() } else { heard.deadline });
            }
            _ => heard.refused = Some(asked),
        }
    }
}

/// Reads events until the agent closes the stream or has ended.
fn listen(events: impl Iterator<Item = String>, heard: &Mutex<Option<Heard>>) {
    let mut kind = String::new();
    for line in events {
        let mut heard = heard.lock().unwrap();
        let Some(heard) = heard.as_mut() else { return };
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut kind);
        } else if let Some(data) = line.strip_prefix("data: ").filter(|_| kind == "leader") {
            heard.leads(&serde_json::from_str(data).unwrap());
        }
    }
}

/// Stops all requests at the end of the test, after success and failure.
struct End<'a> {
    agent: &'a Agent,
    heard: &'a Mutex<Option<Heard>>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Ok(mut heard) = self.heard.lock() {
            heard.take();
        }
        self.agent.signal("KILL");
    }
}

/// Forces the loss of the lock, and checks that no answer permits work after the end.
pub(super) fn lose(world: &World, kind: Kind, after: Duration) -> Result<Duration, String> {
    let agent = world.agent();
    let instance = agent.register();
    let first = agent.until_leads(&instance);
    let heard = Heard { token: first.token(), deadline: first.end(), refused: None, other: None };
    let heard = Mutex::new(Some(heard));
    let events = agent.events(&format!("/watch?instance={instance}"));
    thread::scope(|scope| {
        let _end = End { agent: &agent, heard: &heard };
        scope.spawn(|| ask(&agent, &instance, &heard));
        scope.spawn(|| listen(events, &heard));
        thread::sleep(after);
        let mut hold = Hold::of(&world.servers);
        world.force(kind.fault, Some(&agent), &mut hold);
        until("the lock has ended", || hold.is_over());
        if matches!(kind.fault, Fault::AgentStopped | Fault::MinoritySilentAndAgentStopped) {
            agent.signal("CONT");
        }
        let over = now();
        until("the application is told", || {
            let heard = heard.lock().unwrap();
            let heard = heard.as_ref().unwrap();
            heard.other.is_some() || heard.refused.is_some_and(|asked| asked > over)
        });
        let heard = heard.lock().unwrap().take().unwrap();
        if let Some(token) = heard.other.filter(|token| *token < heard.token) {
            return Err(format!("token {token} after {}", heard.token));
        }
        judge("an answer goes on", heard.deadline, hold.end())
    })
}
