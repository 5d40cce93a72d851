//! A `run` whose lock an agent holds (`redlock agent`): it registers as the application's instance, and asks until when it leads.

use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::holding::{
    Answer, End, Held, Keeper, LONGEST_SLEEP, LockArgs, NotHeld, Signals, Source, Validity, Wait,
};
use super::super::loopback::{Place, Question};
use crate::time::{Boottime, Clock, SystemClock};

/// For an answer that waits for nothing.
const ANSWER: Duration = Duration::from_secs(2);
/// With --try: for the agent to take a lock that is free.
const TRY: Duration = Duration::from_secs(10);
/// Between two questions at the least.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(100);

/// One instance of an application, as an agent knows it.
#[derive(Clone)]
struct Instance {
    place: Place,
    id: String,
}

/// What the agent says.
enum Said {
    Leads {
        answer: Answer,
        until: Boottime,
    },
    DoesNot {
        why: String,
    },
    /// Not now, or there is no answer.
    Unknown {
        why: String,
    },
}

/// Registers, and waits until the agent says that this instance leads.
pub(super) async fn take(place: &Place, args: &LockArgs, signals: &mut Signals) -> Result<Held, NotHeld> {
    let lock = args.lock.to_string();
    let instance = Instance::register(place, &lock).await?;
    let (answer, until) = tokio::select! {
        biased;
        signal = signals.ending() => return Err(NotHeld::Signal(signal)),
        leads = instance.until_leads(args) => leads?,
    };
    let left = until.since(SystemClock.boottime());
    let (published, validity) = watch::channel(Validity { until, end: None });
    let (token, holder) = (answer.fencing_token, answer.holder);
    let task = tokio::spawn(follow(instance.clone(), token, published));
    let release = Box::pin(async move { instance.release(token, &answer.lock).await });
    Ok(Held { lock, token, holder, validity, source: Source::Outer { left }, keeper: Keeper::Agent { task, release } })
}

impl Instance {
    async fn register(place: &Place, lock: &str) -> anyhow::Result<Self> {
        let asked = place.ask(Question::post("/register".to_owned(), String::new()), ANSWER).await;
        let (status, body) = asked.context("the agent does not answer: is --agent where it listens?")?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status != StatusCode::CREATED {
            bail!("the agent did not register this instance: {status} {}", detail(&body));
        }
        if body["lock"] != lock {
            bail!("the agent is that of lock {}, not of {lock}", body["lock"]);
        }
        let id = body["instance"].as_str().context("the agent's answer names no instance")?.to_owned();
        Ok(Self { place: place.clone(), id })
    }

    async fn until_leads(&self, args: &LockArgs) -> Result<(Answer, Boottime), NotHeld> {
        let begun = SystemClock.boottime();
        let longest = match args.wait() {
            Wait::Never => Some(TRY),
            Wait::For(wait) => Some(wait),
            Wait::Forever => None,
        };
        loop {
            let why = match self.ask(ANSWER).await {
                Said::Leads { answer, until } => return Ok((answer, until)),
                Said::DoesNot { why } | Said::Unknown { why } => why,
            };
            if longest.is_some_and(|longest| SystemClock.boottime().since(begun) >= longest) {
                return Err(NotHeld::NotAcquired(format!("lock {} was not acquired: {why}", args.lock)));
            }
            sleep(RETRY).await;
        }
    }

    /// The validity counts from before the question.
    async fn ask(&self, longest: Duration) -> Said {
        let asked = SystemClock.boottime();
        let question = Question::get(format!("/leader?instance={}", self.id));
        let (status, body) = match self.place.ask(question, longest).await {
            Ok(answered) => answered,
            Err(error) => return Said::Unknown { why: format!("the agent does not answer: {error:#}") },
        };
        match (status, serde_json::from_slice::<Answer>(&body)) {
            (StatusCode::OK, Ok(answer)) => {
                let until = asked + Duration::from_millis(answer.valid_for_ms);
                Said::Leads { answer, until }
            }
            (StatusCode::CONFLICT, _) => {
                Said::DoesNot { why: detail(&serde_json::from_slice(&body).unwrap_or_default()) }
            }
            _ => Said::Unknown { why: detail(&serde_json::from_slice(&body).unwrap_or_default()) },
        }
    }

    async fn release(&self, token: i64, lock: &str) -> anyhow::Result<()> {
        let path = lock.replace('/', "%2F");
        let target = format!("/locks/{path}/release?instance={}&token={token}", self.id);
        let asked = self.place.ask(Question::post(target, String::new()), ANSWER).await;
        let (status, _) =
            asked.context("the agent was not told that the command has ended; it gives the lock back later")?;
        // Another answer says that the lock was lost before.
        if status == StatusCode::OK || status == StatusCode::CONFLICT {
            return Ok(());
        }
        bail!("the agent did not release lock {lock}: {status}")
    }
}

fn detail(body: &Value) -> String {
    body["detail"].as_str().unwrap_or("the agent gives no reason").to_owned()
}

async fn follow(instance: Instance, token: i64, published: watch::Sender<Validity>) {
    loop {
        let left = published.borrow().until.since(SystemClock.boottime());
        if left.is_zero() {
            return;
        }
        sleep((left / 6).clamp(LEAST_PAUSE, LONGEST_SLEEP)).await;
        let Ok(said) = timeout(left, instance.ask(left)).await else { return };
        match said {
            Said::Leads { answer, until } if answer.fencing_token == token => {
                published.send_if_modified(|validity| {
                    let is_later = until > validity.until;
                    validity.until = validity.until.max(until);
                    is_later
                });
            }
            Said::Leads { .. } => return ends(&published, "it has another token now".to_owned()),
            Said::DoesNot { why } => return ends(&published, why),
            Said::Unknown { .. } => {}
        }
    }
}

fn ends(published: &watch::Sender<Validity>, why: String) {
    published.send_modify(|validity| validity.end = Some(End::Lost(why)));
}
