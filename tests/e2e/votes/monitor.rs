//! The process of a vote monitor: this program, started once more on a node's network.

use std::{io, time::Duration};

use futures::future::join_all;
use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};
use redlock_operator::{
    redis_member::acl::OPERATOR_USER,
    time::{Clock as _, SystemClock},
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::Attempt;

/// The argument that makes this program a monitor.
pub(crate) const COMMAND: &str = "vote-monitor";
/// Between two attempts on one member.
const PERIOD: Duration = Duration::from_millis(20);
/// An answer that takes longer is waited for in the background: another process may be at the address by now.
const PATIENCE: Duration = Duration::from_millis(500);

/// One member, and how to ask it for votes.
#[derive(Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) member: String,
    /// With the client's name and password.
    pub(super) url: String,
    /// The operator may ask a process who it is, the client may not.
    pub(super) operator_password: String,
    pub(super) key_prefix: String,
}

/// Reads the targets, a JSON array, from the first line of stdin, and runs until stdin ends.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    let targets: Vec<Target> = serde_json::from_str(&line)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || runtime.block_on(join_all(targets.into_iter().map(watch))));
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// What [`report`] printed.
pub(super) fn parse(line: &str) -> Option<Attempt> {
    let [member, run_id, sent, received, answer] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let (sent, received) = (sent.parse().ok()?, received.parse().ok()?);
    Some(Attempt { member: member.into(), run_id: run_id.into(), sent, received, voted: answer == "voted" })
}

async fn watch(target: Target) {
    let mut number = 0_u64;
    loop {
        if let Ok(Ok((connection, run_id))) = timeout(PATIENCE, connect(&target)).await {
            ask(&target, &connection, &run_id, &mut number).await;
        }
        sleep(PERIOD).await;
    }
}

/// A connection, which cannot outlive its process, and the `run_id` of that process.
async fn connect(target: &Target) -> redis::RedisResult<(MultiplexedConnection, String)> {
    let client = redis::Client::open(target.url.as_str())?;
    // Late answers count, too.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let login = client.get_connection_info().redis_settings().clone();
    let auth = |user: &str, password: &str| redis::cmd("AUTH").arg(user).arg(password).to_owned();
    auth(OPERATOR_USER, &target.operator_password).query_async::<()>(&mut connection).await?;
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
    let (user, password) = (login.username().unwrap_or_default(), login.password().unwrap_or_default());
    auth(user, password).query_async::<()>(&mut connection).await?;
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim().to_owned();
    Ok((connection, run_id))
}

/// Asks for votes until the connection breaks, or an answer takes too long.
async fn ask(target: &Target, connection: &MultiplexedConnection, run_id: &str, number: &mut u64) {
    loop {
        *number += 1;
        let mut set = redis::cmd("SET");
        set.arg(format!("{}vote-{number}", target.key_prefix)).arg("x").arg("NX").arg("PX").arg(20);
        let (mut connection, member, run_id) = (connection.clone(), target.member.clone(), run_id.to_owned());
        let mut answer = Box::pin(async move {
            let sent = SystemClock.wall().0;
            let answer = set.query_async::<redis::Value>(&mut connection).await;
            report(&member, &run_id, sent, &answer)
        });
        match timeout(PATIENCE, &mut answer).await {
            Ok(true) => sleep(PERIOD).await,
            Ok(false) => return,
            Err(_elapsed) => {
                tokio::spawn(answer);
                return;
            }
        }
    }
}

/// Prints one answer; false if there was none.
fn report(member: &str, run_id: &str, sent: i64, answer: &redis::RedisResult<redis::Value>) -> bool {
    let received = SystemClock.wall().0;
    let answer = match answer {
        // `nil`, somebody else's key, is a vote as well: the process answers to clients.
        Ok(_) => "voted",
        Err(error) if error.code().is_some() => "refused",
        Err(_) => return false,
    };
    println!("{member} {run_id} {sent} {received} {answer}");
    true
}
