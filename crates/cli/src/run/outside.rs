//! A hold that another process keeps: a `redlock agent`, or the `redlock run` around this command. Both answer `GET /leader`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use axum::http::{Method, StatusCode};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::outer_locks::is_named;
use crate::hold::{
    End, HeldLock, LONGEST_SLEEP, LockArgs, LockResponse, NotHeld, Renewal, Signals, Source, Validity, Wait,
};
use crate::loopback::Place;
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// A hold that an agent or an outer `run` renews.
struct Followed {
    outside: Outside,
    task: AbortOnDropHandle<()>,
}

impl Renewal for Followed {
    fn release(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>> {
        self.task.abort();
        Box::pin(async move { self.outside.unregister().await })
    }
}

/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(2);
/// Time for the agent to take a free lock, with --try.
const TRY: Duration = Duration::from_secs(10);
/// Minimum pause between two requests.
const LEAST_PAUSE: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(100);

/// The server of the outer hold.
#[derive(Clone)]
struct Outside {
    place: Place,
    /// The ID of this process as an instance of an agent. `None` for an outer `run`.
    instance: Option<String>,
}

/// The reply of an agent or an outer `run`.
enum Reply {
    /// This process has the lock until then.
    Leads { answer: LockResponse, until: Boottime },
    /// The agent does not hold the lock for this instance.
    DoesNot { why: String },
    /// The agent does not know this instance. It has restarted, or another instance has registered.
    NotServed { why: String },
    /// The state is not known, or there is no reply.
    Unknown { why: String },
}

/// Shares the hold of the outer `run`.
pub(super) async fn take_from_outer_run(socket: PathBuf, lock: String) -> Result<HeldLock, NotHeld> {
    let outer = Outside { place: Place::Unix(socket), instance: None };
    match outer.ask(ANSWER).await {
        Reply::Leads { answer, until } => Ok(outer.held(lock, &answer, until)),
        Reply::DoesNot { why } | Reply::NotServed { why } | Reply::Unknown { why } => Err(NotHeld::Failed(anyhow!(
            "the `redlock run` around this command, which has lock {lock}, has ended or does not answer: {why}"
        ))),
    }
}

/// Registers at an agent, and waits until this instance leads.
pub(super) async fn take_from_agent(
    place: &Place,
    args: &LockArgs,
    signals: &mut Signals,
) -> Result<HeldLock, NotHeld> {
    let lock = args.lock.to_string();
    let begun = SystemClock.boottime();
    let deadline = |free: Duration| match args.wait() {
        Wait::Never => Some(begun + free),
        Wait::For(wait) => Some(begun + wait),
        Wait::Forever => None,
    };
    let mut agent = signals.unless_ending(Outside::registered(place, &lock, deadline(Duration::ZERO))).await?;
    match signals.unless_ending(agent.until_leads(&lock, deadline(TRY))).await {
        Ok((answer, until)) => Ok(agent.held(answer.lock.clone(), &answer, until)),
        Err(not_held) => {
            let _ = agent.unregister().await;
            Err(not_held)
        }
    }
}

/// Waits before the next request.
///
/// # Errors
/// If the lock was not acquired until the deadline. `is_certain` means that the agent has answered why.
async fn pause(lock: &str, deadline: Option<Boottime>, why: &str, is_certain: bool) -> Result<(), NotHeld> {
    if deadline.is_some_and(|deadline| deadline <= SystemClock.boottime()) {
        return Err(NotHeld::after_wait(lock, why, is_certain));
    }
    sleep(RETRY).await;
    Ok(())
}

impl Outside {
    /// Registers a new instance as soon as the agent serves no other one.
    async fn registered(place: &Place, lock: &str, deadline: Option<Boottime>) -> Result<Self, NotHeld> {
        loop {
            let asked = place.ask(Method::POST, "/register?ifNone=true", ANSWER).await;
            let (status, body) = asked.context("the agent does not answer: is --agent where it listens?")?;
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            if status == StatusCode::CREATED {
                return Ok(Self::of_registration(place, lock, &body)?);
            }
            let why = detail(&body);
            if status != StatusCode::CONFLICT {
                return Err(anyhow!("the agent did not register this instance: {status} {why}").into());
            }
            pause(lock, deadline, &why, true).await?;
        }
    }

    fn of_registration(place: &Place, lock: &str, body: &Value) -> anyhow::Result<Self> {
        let of_agent = body["lock"].as_str().unwrap_or_default();
        if !is_named(of_agent, lock) {
            bail!("the agent is that of lock {}, not of {lock}", body["lock"]);
        }
        let id = body["instance"].as_str().context("the agent's answer names no instance")?.to_owned();
        Ok(Self { place: place.clone(), instance: Some(id) })
    }

    /// Waits until this instance leads. It registers again if the agent does not know it.
    async fn until_leads(
        &mut self,
        lock: &str,
        deadline: Option<Boottime>,
    ) -> Result<(LockResponse, Boottime), NotHeld> {
        loop {
            let (why, is_certain) = match self.ask(ANSWER).await {
                Reply::Leads { answer, until } => return Ok((answer, until)),
                Reply::DoesNot { why } => (why, true),
                Reply::NotServed { why } => {
                    *self = Self::registered(&self.place, lock, deadline).await?;
                    (why, false)
                }
                Reply::Unknown { why } => (why, false),
            };
            pause(lock, deadline, &why, is_certain).await?;
        }
    }

    fn held(self, lock: String, answer: &LockResponse, until: Boottime) -> HeldLock {
        let left = until.since(SystemClock.boottime());
        let (published, validity) = watch::channel(Validity { until, end: None });
        let (token, holder) = (answer.fencing_token, answer.holder.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(self.clone().follow(token, published)));
        let renewal = Box::new(Followed { outside: self, task });
        HeldLock { lock, token, holder, validity, source: Source::Outer { left }, renewal }
    }

    /// Requests the state of the hold. The validity begins at a reading of the clock before the request.
    async fn ask(&self, longest: Duration) -> Reply {
        let asked = SystemClock.boottime();
        let instance = self.instance.as_ref().map_or_else(String::new, |id| format!("?instance={id}"));
        let (status, body) = match self.place.ask(Method::GET, &format!("/leader{instance}"), longest).await {
            Ok(answered) => answered,
            Err(error) => return Reply::Unknown { why: format!("{error:#}") },
        };
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let why = detail(&problem);
        match (status, serde_json::from_slice::<LockResponse>(&body)) {
            (StatusCode::OK, Ok(answer)) => {
                let until = asked + Duration::from_millis(answer.valid_for_ms);
                Reply::Leads { answer, until }
            }
            (StatusCode::CONFLICT, _) if problem["reason"] == "NotServed" => Reply::NotServed { why },
            (StatusCode::CONFLICT, _) => Reply::DoesNot { why },
            _ => Reply::Unknown { why },
        }
    }

    async fn follow(self, token: i64, published: watch::Sender<Validity>) {
        let ends = |why: String| published.send_modify(|validity| validity.end = Some(End::Lost(why)));
        loop {
            let left = published.borrow().until.since(SystemClock.boottime());
            if left.is_zero() {
                return;
            }
            sleep((left / 6).clamp(LEAST_PAUSE, LONGEST_SLEEP)).await;
            match self.ask(left).await {
                Reply::Leads { answer, until } if answer.fencing_token == token => {
                    published.send_if_modified(|validity| validity.extend(until));
                }
                Reply::Leads { .. } => return ends("it has another token now".to_owned()),
                Reply::DoesNot { why } | Reply::NotServed { why } => return ends(why),
                Reply::Unknown { .. } => {}
            }
        }
    }

    /// Unregisters this instance at an agent. An outer `run` keeps its lock.
    async fn unregister(&self) -> anyhow::Result<()> {
        let Some(id) = &self.instance else { return Ok(()) };
        let asked = self.place.ask(Method::POST, &format!("/unregister?instance={id}"), ANSWER).await;
        let (status, _) = asked.context("the agent did not get the end of the command, and releases the lock later")?;
        // A conflict means that another instance has registered.
        if status == StatusCode::OK || status == StatusCode::CONFLICT {
            return Ok(());
        }
        bail!("the agent did not take the end of this instance: {status}")
    }
}

fn detail(body: &Value) -> String {
    body["detail"].as_str().unwrap_or("no reason was given").to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::Uri;
    use axum::routing::{get, post};
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::loopback::Listener;

    const LOCK: &str = "shop/a";

    /// Serves an agent until the result is dropped.
    async fn serve(agent: Router) -> (Place, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = Place::Loopback(listener.local_addr().unwrap());
        let server = Listener::Loopback(listener).serve(agent, CancellationToken::new());
        (place, AbortOnDropHandle::new(tokio::spawn(server)))
    }

    fn soon() -> Option<Boottime> {
        Some(SystemClock.boottime() + ANSWER)
    }

    /// An agent that does not know its first instance, as after a restart. The second one leads.
    fn restarted() -> Router {
        let number = Arc::new(AtomicUsize::new(1));
        let register = move || {
            let instance = number.fetch_add(1, Ordering::SeqCst).to_string();
            async move { (StatusCode::CREATED, json!({"lock": LOCK, "instance": instance}).to_string()) }
        };
        let leader = |uri: Uri| async move {
            match uri.query() {
                Some("instance=2") => (StatusCode::OK, LockResponse::new(LOCK.to_owned(), "me".to_owned(), 7).line()),
                _ => (StatusCode::CONFLICT, json!({"reason": "NotServed", "detail": "a restart"}).to_string()),
            }
        };
        Router::new().route("/register", post(register)).route("/leader", get(leader))
    }

    #[tokio::test]
    async fn an_instance_registers_again_at_a_restarted_agent() {
        let (place, _server) = serve(restarted()).await;
        let mut agent = Outside::registered(&place, LOCK, soon()).await.unwrap();
        let (answer, _) = agent.until_leads(LOCK, soon()).await.unwrap();
        assert_eq!((answer.fencing_token, agent.instance.as_deref()), (7, Some("2")));
    }

    /// The end of a wait whose deadline has passed.
    async fn end(agent: &mut Outside) -> NotHeld {
        agent.until_leads(LOCK, Some(SystemClock.boottime())).await.unwrap_err()
    }

    /// A cron job with `--not-acquired-exit-code 0` must not hide that its agent never answers.
    #[tokio::test]
    async fn only_an_answer_shows_another_holder() {
        for status in [StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE] {
            let leader = move || async move { (status, json!({"reason": "NotHeld", "detail": "no"}).to_string()) };
            let (place, server) = serve(Router::new().route("/leader", get(leader))).await;
            let mut agent = Outside { place, instance: Some("1".to_owned()) };
            let ended = end(&mut agent).await;
            assert_eq!(matches!(ended, NotHeld::NotAcquired(_)), status == StatusCode::CONFLICT, "{ended:?}");
            assert_eq!(matches!(ended, NotHeld::NotAnswered(_)), status != StatusCode::CONFLICT, "{ended:?}");
            drop(server);
            let ended = end(&mut agent).await;
            assert!(matches!(ended, NotHeld::NotAnswered(_)), "{ended:?}");
        }
    }
}
