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
struct HoldAnswers {
    token: i64,
    /// The deadline of its work.
    deadline: Boottime,
    /// The time of the last request that was not answered with a lead.
    refused: Option<Boottime>,
    /// The smallest other token, which must be larger than `token`.
    other: Option<i64>,
}

impl HoldAnswers {
    fn leads(&mut self, answer: &Value) {
        let (Some(token), Some(deadline)) = (answer["fencingToken"].as_i64(), answer["deadlineBoottimeMs"].as_u64())
        else {
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
fn ask(agent: &Agent, instance: &str, answers: &Mutex<Option<HoldAnswers>>) {
    loop {
        let asked = now();
        let answer = agent.try_leader(instance);
        let mut answers = answers.lock().unwrap();
        let Some(answers) = answers.as_mut() else { return };
        match answer {
            Some(answer) if answer.status == 200 => {
                answers.leads(&answer.body);
                // `validForMs`, added to the time before the request, is never later than the real deadline.
                answers.deadline =
                    answers.deadline.max(if answer.token() == answers.token { answer.end() } else { answers.deadline });
            }
            _ => answers.refused = Some(asked),
        }
    }
}

/// Reads events until the agent closes the stream or has ended.
fn listen(events: impl Iterator<Item = String>, answers: &Mutex<Option<HoldAnswers>>) {
    let mut kind = String::new();
    for line in events {
        let mut answers = answers.lock().unwrap();
        let Some(answers) = answers.as_mut() else { return };
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut kind);
        } else if let Some(data) = line.strip_prefix("data: ").filter(|_| kind == "leader") {
            answers.leads(&serde_json::from_str(data).unwrap());
        }
    }
}

/// Stops all requests at the end of the test, after success and failure.
struct End<'a> {
    agent: &'a Agent,
    answers: &'a Mutex<Option<HoldAnswers>>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Ok(mut answers) = self.answers.lock() {
            answers.take();
        }
        self.agent.signal("KILL");
    }
}

/// Forces the loss of the lock, and checks that no answer permits work after the end.
pub(super) fn lose(world: &World, kind: Kind, after: Duration) -> Result<Duration, String> {
    let agent = world.agent();
    let instance = agent.register();
    let first = agent.until_leads(&instance);
    let answers = HoldAnswers { token: first.token(), deadline: first.end(), refused: None, other: None };
    let answers = Mutex::new(Some(answers));
    let events = agent.events(&format!("/watch?instance={instance}"));
    thread::scope(|scope| {
        let _end = End { agent: &agent, answers: &answers };
        scope.spawn(|| ask(&agent, &instance, &answers));
        scope.spawn(|| listen(events, &answers));
        thread::sleep(after);
        let mut hold = Hold::of(&world.servers);
        world.force(kind.fault, Some(&agent), &mut hold);
        until("the lock has ended", || hold.is_over());
        if matches!(kind.fault, Fault::AgentStopped | Fault::MinoritySilentAndAgentStopped) {
            agent.signal("CONT");
        }
        let over = now();
        until("the application has the loss", || {
            let answers = answers.lock().unwrap();
            let answers = answers.as_ref().unwrap();
            answers.other.is_some() || answers.refused.is_some_and(|asked| asked > over)
        });
        let answers = answers.lock().unwrap().take().unwrap();
        if let Some(token) = answers.other.filter(|token| *token < answers.token) {
            return Err(format!("token {token} after {}", answers.token));
        }
        judge("an answer is still true", answers.deadline, hold.end())
    })
}
