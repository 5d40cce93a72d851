//! The process of a vote monitor: this program, started again on a node's network.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use anyhow::Context as _;
use parking_lot::Mutex;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, aio::MultiplexedConnection};
use redlock_operator::{
    redis_member::acl::OPERATOR_USER,
    time::{Clock as _, SystemClock},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;

use super::Attempt;

/// The argument that makes this program a monitor.
pub(crate) const COMMAND: &str = "vote-monitor";
/// The pause between two attempts on one member.
const PERIOD: Duration = Duration::from_millis(20);
/// The wait for a reply before the next attempt.
///
/// Then the monitor connects again, because another process can have the address. It still records a later reply.
const PATIENCE: Duration = Duration::from_millis(500);

/// One member, and the login for vote requests.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) member: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// With TLS: the trusted authorities, in PEM.
    pub(super) authorities: Option<String>,
    pub(super) user: String,
    pub(super) password: String,
    /// The password for the query of the run ID, which a client's user cannot read.
    pub(super) operator_password: String,
    pub(super) key_prefix: String,
}

/// The current targets.
type Targets = Arc<Mutex<Vec<Target>>>;

/// Reads the targets, a JSON array, from each line of stdin.
///
/// It uses the targets of the last line, and ends with stdin.
pub(crate) fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (targets, mut known) = (Targets::default(), BTreeSet::new());
    for line in io::stdin().lines() {
        let read: Vec<Target> = serde_json::from_str(&line?)?;
        targets.lock().clone_from(&read);
        for member in read.into_iter().map(|target| target.member).filter(|member| known.insert(member.clone())) {
            runtime.spawn(watch(member, targets.clone()));
        }
    }
    // Attempts that wait for a member are not needed after the end.
    runtime.shutdown_background();
    Ok(())
}

fn current(targets: &Targets, member: &str) -> Option<Target> {
    let targets = targets.lock();
    targets.iter().find(|target| target.member == member).cloned()
}

async fn watch(member: String, targets: Targets) {
    let mut number = 0_u64;
    loop {
        if let Some(target) = current(&targets, &member)
            && let Ok(Ok((connection, run_id))) = timeout(PATIENCE, connect(&target)).await
        {
            let is_current = || current(&targets, &member).as_ref() == Some(&target);
            ask(&target, &connection, &run_id, &mut number, is_current).await;
        }
        sleep(PERIOD).await;
    }
}

/// A connection, which cannot outlive its process, and the `run_id` of that process.
async fn connect(target: &Target) -> anyhow::Result<(MultiplexedConnection, String)> {
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
    stream.set_nodelay(true)?;
    let mut connection = match &target.authorities {
        None => log_in(target, stream).await?,
        Some(authorities) => {
            let name = ServerName::try_from(target.host.clone())?;
            log_in(target, connector(authorities)?.connect(name, stream).await?).await?
        }
    };
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).context("no run_id")?.trim().to_owned();
    let client = redis::cmd("AUTH").arg(&target.user).arg(&target.password).to_owned();
    client.query_async::<()>(&mut connection).await?;
    Ok((connection, run_id))
}

fn connector(authorities: &str) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authorities.as_bytes()).flatten());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Logs in as the operator first.
async fn log_in<S>(target: &Target, stream: S) -> anyhow::Result<MultiplexedConnection>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let operator = RedisConnectionInfo::default().set_username(OPERATOR_USER).set_password(&target.operator_password);
    // Late replies are attempts, so there is no timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&operator.set_skip_set_lib_name(), stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// Requests votes until the connection breaks, a reply takes too long, or the targets change.
async fn ask(
    target: &Target,
    connection: &MultiplexedConnection,
    run_id: &str,
    number: &mut u64,
    is_current: impl Fn() -> bool,
) {
    while is_current() {
        *number += 1;
        let mut set = redis::cmd("SET");
        set.arg(format!("{}vote-{number}", target.key_prefix)).arg("x").arg("NX").arg("PX").arg(20);
        let (mut connection, member, run_id) = (connection.clone(), target.member.clone(), run_id.to_owned());
        let mut answer = Box::pin(async move {
            let sent = SystemClock.wall().0;
            let answer = set.query_async::<redis::Value>(&mut connection).await;
            report(member, run_id, sent, &answer)
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

/// Prints one reply.
///
/// Returns false if there was none.
fn report(member: String, run_id: String, sent: i64, answer: &redis::RedisResult<redis::Value>) -> bool {
    let received = SystemClock.wall().0;
    let voted = match answer {
        // `nil`, the key of another client, is a vote as well: the process answers clients.
        Ok(_) => true,
        Err(error) if error.code().is_some() => false,
        Err(_) => return false,
    };
    println!("{}", json!(Attempt { member, run_id, sent, received, voted }));
    true
}
