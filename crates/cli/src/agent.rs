//! `redlock agent`: reports to an application on this machine, over HTTP, whether it leads.
//!
//! One `task` owns the pure `state`. Its inputs are requests (`http`), and reports of attempts and of the `election`. It performs the
//! actions that the state returns.
//!
//! A promise is valid no longer than the hold, and the agent releases no lock before its last promise has expired. So a dead or hanging
//! application blocks other holders only until then. While a live application relies on a promise, no other holder gets the lock.

mod election;
mod hooks;
mod http;
mod leadership;
mod lock;
mod request;
mod response;
mod state;
mod task;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, bail};
use axum::http::Method;
use election::{Election, Follower};
use futures::FutureExt as _;
use hooks::HookArgs;
use http::{HttpState, router};
use lock::Order;
use state::AgentState;
use task::Task;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::ClusterArgs;
use crate::console;
use crate::hold::{
    DirectArgs, LockArgs, LockName, LockSource, Signals, block_on, environment, exit, of_process, own_pod, refuse_urls,
};
use crate::loopback::{Listener, Place};
use redlock_api::GoDuration;

/// Minimum time without a request after which an application is treated as gone.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// The default port of an agent.
const PORT: u16 = 4040;
/// Timeout of `--check`.
const CHECK: Duration = Duration::from_secs(2);
/// Time to send the last responses.
const GOODBYE: Duration = Duration::from_secs(1);

/// The lock, the application, and the addresses on which the agent listens.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  redlock agent --lock shop/reindex --listen 127.0.0.1:4040")]
#[group(id = "what", required = true, multiple = false, args = ["lock", "election", "check"])]
pub struct AgentArgs {
    /// The lock that the application holds when it leads: `<namespace>/<key>`.
    #[arg(long, value_name = "LOCK")]
    lock: Option<LockName>,
    /// An election among pods, in which the operator picks the leader: `<name>` or `<namespace>/<name>`.
    #[arg(long, value_name = "NAME", conflicts_with = "direct")]
    election: Option<String>,
    /// Ask the agent that listens there whether it runs, for probes: the exit code is 0 if it does.
    #[arg(long)]
    check: bool,
    /// Where to listen: an address on loopback, or `unix:<path>`. Can be given several times.
    ///
    /// Default: 127.0.0.1:4040, and `[::1]:4040` where the machine has IPv6.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Place>,
    /// Mode of socket files, in octal digits as for chmod. It decides which users can connect.
    #[arg(long, value_name = "MODE", default_value = "0666", value_parser = mode)]
    socket_mode: u32,
    /// How long the lock outlives this agent at most. With --lock.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    ttl: GoDuration,
    /// Longest time to lead without a break. With --lock.
    #[arg(long, value_name = "DURATION")]
    max_hold: Option<GoDuration>,
    /// Place in the queue: higher numbers first, then older claims. With --lock.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// The RedisQuorum, as `<name>` or `<namespace>/<name>`. Default: the default quorum of the operator. With --lock.
    #[arg(long, value_name = "QUORUM")]
    quorum: Option<String>,
    /// Names the holder. Default: the own pod, or `<user>@<host>/<process ID>`. With --lock.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// The UID of the pod that the application runs in. Default: the own pod, by its service account token. With --election.
    #[arg(long, value_name = "UID", env = "REDLOCK_POD_UID")]
    pod_uid: Option<String>,
    /// The lock is given back if the application sends no request for this time. Default: the ttl, at least 10s. With --lock.
    #[arg(long, value_name = "DURATION")]
    patience: Option<GoDuration>,
    /// How far the clock of this machine and those of the cluster can be apart. Without --members-secret only.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    skew: GoDuration,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    direct: DirectArgs,
}

/// Serves one application until the agent is stopped. With `--check` it probes a running agent.
pub fn run(args: &AgentArgs) -> ExitCode {
    exit::of_result(if args.check { block_on(check(args)) } else { block_on(serve(args)) })
}

fn mode(text: &str) -> Result<u32, &'static str> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or("a mode has octal digits, for example 0660")
}

/// Checks that an agent answers.
async fn check(args: &AgentArgs) -> anyhow::Result<()> {
    let places = args.places();
    let place = places.first().context("give --listen")?;
    let (status, _) =
        place.ask(Method::GET, "/healthz", CHECK).await.with_context(|| format!("no agent answers at {place}"))?;
    if !status.is_success() {
        bail!("the agent at {place} answers {status}");
    }
    Ok(())
}

impl AgentArgs {
    /// The addresses to listen on.
    fn places(&self) -> Vec<Place> {
        let by_default = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        match &self.listen[..] {
            [] => by_default.map(|address| Place::Loopback((address, PORT).into())).into(),
            places => places.to_vec(),
        }
    }

    /// The arguments for the locks that the agent takes.
    fn template(&self, lock: LockName) -> LockArgs {
        let pod_name = || own_pod().map(|pod| pod.name);
        LockArgs {
            lock,
            ttl: self.ttl,
            wait: None,
            try_once: false,
            max_hold: self.max_hold,
            min_hold: None,
            slots: None,
            priority: self.priority,
            quorum: self.quorum.clone(),
            identity: Some(self.identity.clone().or_else(pod_name).unwrap_or_else(of_process)),
            container: None,
            skew: self.skew,
            cluster: self.cluster.clone(),
            direct: self.direct.clone(),
        }
    }

    fn election(&self, name: &str) -> anyhow::Result<Election> {
        let own = own_pod();
        let pod_uid = self.pod_uid.clone().or_else(|| own.as_ref().map(|pod| pod.uid.clone())).context(
            "--election needs a pod: run in one with a service account token, or give --pod-uid (fieldRef metadata.uid)",
        )?;
        let (namespace, name) = match name.split_once('/') {
            Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
            None => {
                let own = own.context("--election names no namespace: use <namespace>/<name>")?;
                (own.namespace, name.to_owned())
            }
        };
        Ok(Election { namespace, name, pod_uid })
    }
}

async fn serve(args: &AgentArgs) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    if args.direct.without_token {
        bail!("the agent distinguishes instances of the application by the token: leave --without-token out");
    }
    let election = args.election.as_deref().map(|name| args.election(name)).transpose()?;
    let lock: LockName = match (&args.lock, &election) {
        (Some(lock), _) => lock.clone(),
        (None, Some(election)) => election.lock().parse().map_err(anyhow::Error::msg)?,
        (None, None) => bail!("give --lock or --election"),
    };
    let mut template = args.template(lock);
    if args.lock.is_some() {
        template = template.resolved().await?;
    }
    let patience = args.patience.map_or_else(|| args.ttl.get().max(LEAST_PATIENCE), GoDuration::get);
    let members = args.direct.members(environment());
    let source = match election {
        Some(_) => {
            refuse_urls(members.as_ref())?;
            None
        }
        None => Some(Arc::new(LockSource::new(&template).await?)),
    };
    let order = Order { args: template.clone(), request: None, is_unattended: false, least: Duration::ZERO };
    let state = AgentState::new(order, election.is_some(), !args.hooks.is_empty(), patience);
    let task = Task::new(state, source, args.hooks.clone());
    let election = election.map(|election| {
        Follower::new(task.agent(), election, args.cluster.clone(), members, args.skew.get()).run().boxed()
    });
    let ended = CancellationToken::new();
    let http = HttpState { agent: task.agent(), options: Arc::new(template), checks_host: true };
    let mut servers = listen(args, &http, &ended).await?;
    tokio::select! {
        // The servers answer requests until the last promise has expired.
        stopped = tokio::spawn(task.run(signals, election)) => stopped.context("the task of the agent has failed")?,
        Some(server) = servers.join_next() => {
            server?;
            bail!("a server of the agent has ended");
        }
    }
    ended.cancel();
    let goodbye = async { while servers.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
    Ok(())
}

async fn listen(args: &AgentArgs, http: &HttpState, ended: &CancellationToken) -> anyhow::Result<JoinSet<()>> {
    let mut servers = JoinSet::new();
    for place in args.places() {
        let app = |checks_host| router(HttpState { checks_host, ..http.clone() });
        let (listener, place, app) = match &place {
            Place::Loopback(address) => {
                let listener = match TcpListener::bind(address).await {
                    // A machine without IPv6.
                    Err(error) if args.listen.is_empty() && address.is_ipv6() && is_without_ipv6(&error) => continue,
                    bound => bound.with_context(|| format!("cannot listen on {address}"))?,
                };
                let address = format!("http://{}", listener.local_addr()?);
                (Listener::Loopback(listener), address, app(true))
            }
            Place::Unix(path) => {
                let listener =
                    bind(path, args.socket_mode).with_context(|| format!("cannot listen on {}", path.display()))?;
                (Listener::Unix(listener), place.to_string(), app(false))
            }
        };
        console::report(format_args!("lock {}: the agent listens on {place}", http.options.lock));
        servers.spawn(listener.serve(app, ended.clone()));
    }
    Ok(servers)
}

fn is_without_ipv6(error: &io::Error) -> bool {
    const AFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(AFNOSUPPORT)
}

/// Creates a socket file. It replaces the file of an ended agent.
fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let is_left = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err();
    if is_left {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    // By default every user can connect, because the containers of a pod run as different users. Only they have the directory.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<AgentArgs, clap::Error> {
        crate::tests::parsed(args)
    }

    /// The arguments for the locks that the agent takes.
    pub(in crate::agent) fn template() -> LockArgs {
        parsed(&["--lock", "shop/elected", "--identity", "me"]).unwrap().template("shop/elected".parse().unwrap())
    }

    /// An agent whose election sends no reports. It runs until the runtime ends.
    pub(in crate::agent) fn http_state() -> HttpState {
        let order = Order { args: template(), request: None, is_unattended: false, least: Duration::ZERO };
        let task = Task::new(AgentState::new(order, true, false, LEAST_PATIENCE), None, HookArgs::default());
        let http = HttpState { agent: task.agent(), options: Arc::new(template()), checks_host: true };
        tokio::spawn(task.run(Signals::of_one_wait().1, None));
        http
    }

    #[test]
    fn a_mode_has_the_octal_form_of_chmod() {
        assert_eq!((mode("0660"), mode("600")), (Ok(0o660), Ok(0o600)));
        assert!(mode("0888").is_err() && mode("1777").is_err() && mode("rw").is_err());
        assert_eq!(parsed(&["--check"]).unwrap().places().len(), 2);
    }

    #[tokio::test]
    async fn a_socket_file_has_the_requested_mode() {
        let path = std::env::temp_dir().join(format!("redlock-agent-{:08x}", rand::random::<u32>()));
        for mode in [0o666, 0o600] {
            let _listener = bind(&path, mode).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_agent_serves_one_lock_or_one_election() {
        assert!(parsed(&["--lock", "shop/a"]).is_ok());
        assert!(parsed(&["--election", "shop/scheduler"]).is_ok());
        assert!(parsed(&[]).is_err());
        assert!(parsed(&["--lock", "shop/a", "--election", "b"]).is_err());
        assert!(parsed(&["--election", "b", "--direct"]).is_err());
        let args = parsed(&["--election", "shop/b", "--pod-uid", "u-1"]).unwrap();
        let wanted = Election { namespace: "shop".into(), name: "b".into(), pod_uid: "u-1".into() };
        assert_eq!(args.election("shop/b").unwrap(), wanted);
    }

    #[test]
    fn the_holder_is_free_text_so_no_container_ends_the_hold_early() {
        let args = parsed(&["--lock", "shop/a", "--identity", "me"]).unwrap();
        let template = args.template("shop/a".parse().unwrap());
        assert_eq!((template.identity.as_deref(), template.container), (Some("me"), None));
        assert!(args.template("shop/a".parse().unwrap()).identity.is_some());
    }
}
