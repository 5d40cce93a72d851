//! A `run` inside a `run` of the same lock: it asks the outer one for its token and deadline.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::holding::{Answer, End, Held, Keeper, LONGEST_SLEEP, NotHeld, Source, Validity};
use super::share::{LOCK, SOCKET};
use crate::time::{Boottime, Clock, SystemClock};

/// For the first answer.
const FIRST: Duration = Duration::from_secs(2);
/// Between two questions at the least.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// The socket of an outer `run` that has this lock.
pub(super) fn socket(lock: &str) -> Option<PathBuf> {
    let is_same = std::env::var(LOCK).is_ok_and(|outer| outer == lock);
    std::env::var_os(SOCKET).filter(|_| is_same).map(PathBuf::from)
}

/// Shares the hold of the outer `run`.
pub(super) async fn take(socket: PathBuf, lock: String) -> Result<Held, NotHeld> {
    let begun = SystemClock.boottime();
    let answer = timeout(FIRST, ask(&socket)).await.map_err(anyhow::Error::from).flatten();
    let answer = answer.with_context(|| {
        format!("the `redlock run` around this command, which has lock {lock}, has ended or does not answer")
    })?;
    let left = Duration::from_millis(answer.valid_for_ms);
    let (published, validity) = watch::channel(Validity { until: begun + left, end: None });
    let task = tokio::spawn(follow(socket, answer.fencing_token, published));
    let (token, holder) = (answer.fencing_token, answer.holder);
    Ok(Held { lock, token, holder, validity, source: Source::Outer { left }, keeper: Keeper::Outer(task) })
}

async fn ask(socket: &PathBuf) -> anyhow::Result<Answer> {
    let stream = UnixStream::connect(socket).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    Ok(serde_json::from_str(&line)?)
}

async fn follow(socket: PathBuf, token: i64, published: watch::Sender<Validity>) {
    loop {
        let left = published.borrow().until.since(SystemClock.boottime());
        if left.is_zero() {
            return;
        }
        sleep((left / 6).clamp(LEAST_PAUSE, LONGEST_SLEEP)).await;
        match later(&socket, token, left).await {
            Ok(until) => {
                published.send_if_modified(|validity| {
                    let is_later = until > validity.until;
                    validity.until = validity.until.max(until);
                    is_later
                });
            }
            Err(error) if error.downcast_ref::<tokio::time::error::Elapsed>().is_some() => {}
            Err(error) => {
                let why = format!("the outer `redlock run` has ended: {error:#}");
                published.send_modify(|validity| validity.end = Some(End::Lost(why)));
                return;
            }
        }
    }
}

/// Counted from before the question.
async fn later(socket: &PathBuf, token: i64, longest: Duration) -> anyhow::Result<Boottime> {
    let asked = SystemClock.boottime();
    let answer = timeout(longest, ask(socket)).await??;
    if answer.fencing_token != token {
        bail!("it has another token now");
    }
    Ok(asked + Duration::from_millis(answer.valid_for_ms))
}
