//! Processes of the programs in `go/examples`, which `dev/go.sh example` builds.
//!
//! Each prints `leads MICROSECONDS [TOKEN]` while it leads.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::watch,
    time::timeout,
};

use crate::{bench::Bench, cluster, pods, poll};

/// The maximum age of a leader's last line, in microseconds.
const LATELY: i64 = 3_000_000;

/// A program with client-go's released election, and the flags of docs/any-controller.md.
pub(crate) type Released = &'static [&'static str];
pub(crate) const CLIENT_GO: Released = &["elector"];
pub(crate) const CONTROLLER_RUNTIME: Released = &[
    "manager",
    "--leader-elect",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=2s",
];
/// The ttl of a lock for these programs: twice their lease duration.
pub(crate) const TTL: Duration = Duration::from_secs(30);
/// The name of their Lease.
pub(crate) const LEASE: &str = "controller.example.com";

/// A script that writes `TOKEN` where the kubelet mounts it, and then runs the command `$0`.
const MOUNT_TOKEN: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount && \
    printf %s \"$TOKEN\" >/run/secrets/kubernetes.io/serviceaccount/token && exec \"$0\"";

/// The interval in which a process led, from its output, in microseconds of Unix time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// The token, or `None` from a program without a lock.
    pub(crate) token: Option<i64>,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// A process of one of the programs.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) child: Child,
    terms: watch::Receiver<Vec<Term>>,
}

impl Program {
    /// Starts `command`: a program of `go/examples` with its arguments.
    pub(crate) fn start(
        bench: &Bench,
        name: &str,
        command: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let (program, arguments) = command.split_first().context("no program")?;
        let mut command = Command::new(built(program)?);
        command.args(arguments);
        Self::spawn(bench, name, command, environment)
    }

    fn spawn(bench: &Bench, name: &str, mut command: Command, environment: &[(&str, &str)]) -> anyhow::Result<Self> {
        command.env("NAMESPACE", &bench.namespace).env("KUBECONFIG", &bench.cluster.kubeconfig);
        command.envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let (led, terms) = watch::channel(Vec::new());
        tokio::spawn(read(BufReader::new(stdout).lines(), led));
        Ok(Self { name: name.to_owned(), child, terms })
    }

    /// Starts a program that elects by a Lease, with a token of this pod.
    pub(crate) async fn of_pod(bench: &Bench, program: Released, pod: &str) -> anyhow::Result<Self> {
        let token = token_of_pod(bench, pod).await?;
        Self::start(bench, pod, program, &[("TOKEN", &token), ("LEASE", LEASE), ("IDENTITY", pod)])
    }

    /// Starts client-go's election with a token of this pod, on the network of the pod's node.
    ///
    /// Faults of the node's network affect the program.
    pub(crate) async fn on_node_of_pod(bench: &Bench, pod: &Pod) -> anyhow::Result<Self> {
        let (name, faults) = (pod.name_any(), &bench.cluster.faults);
        let (node, _address) = pods::place(pod).context("the pod has no node")?;
        let token = token_of_pod(bench, &name).await?;
        let mut command = faults.in_network(&node)?;
        command.arg(built("elector")?).env("API_SERVER", faults.api_server_for_nodes());
        Self::spawn(bench, &name, command, &[("TOKEN", &token), ("LEASE", LEASE), ("IDENTITY", &name)])
    }

    /// Starts a program with the files that the kubelet mounts into this pod.
    pub(crate) async fn inside_pod(
        bench: &Bench,
        pod: &str,
        program: &str,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let token = token_of_pod(bench, pod).await?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", MOUNT_TOKEN]).arg(built(program)?);
        command.env("TOKEN", token);
        Self::spawn(bench, pod, command, environment)
    }

    /// The terms of this process, even after its end.
    pub(crate) fn terms(&self) -> watch::Receiver<Vec<Term>> {
        self.terms.clone()
    }

    /// The newest term, if it has led.
    pub(crate) fn term(&self) -> Option<Term> {
        self.terms.borrow().last().copied()
    }

    pub(crate) fn is_leading(&self, bench: &Bench) -> bool {
        self.term().is_some_and(|term| bench.wall().0 * 1_000 - term.last < LATELY)
    }

    /// Waits until it leads.
    pub(crate) async fn leads(&self, limit: Duration) -> anyhow::Result<Term> {
        let term = async || Ok(self.term());
        poll::until(limit, &format!("{} leads", self.name), term).await
    }

    /// Checks that its loop has ended, and the process with it.
    pub(crate) async fn gives_up(&mut self, limit: Duration) -> anyhow::Result<()> {
        let ended = self.ended(limit).await.with_context(|| format!("{} leads on", self.name))?;
        ensure!(ended.code() == Some(1), "{ended:?}");
        Ok(())
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        Ok(timeout(limit, self.child.wait()).await.context("it has not ended")??)
    }
}

fn built(program: &str) -> anyhow::Result<PathBuf> {
    let program = cluster::checkout().join(".local/go").join(program);
    ensure!(program.exists(), "{} does not exist: run `dev/go.sh example` first", program.display());
    Ok(program)
}

async fn token_of_pod(bench: &Bench, pod: &str) -> anyhow::Result<String> {
    let name = format!("--bound-object-name={pod}");
    let token = ["create", "token", "default", "--bound-object-kind=Pod", &name, "--duration=1h"];
    Ok(bench.kubectl(&token).await?.trim().to_owned())
}

/// Grants the rights of programs that elect by a Lease to their service account.
pub(crate) async fn allow_leases(bench: &Bench) -> anyhow::Result<()> {
    let role = ["create", "role", "electors", "--verb=get,create,update", "--resource=leases.coordination.k8s.io"];
    bench.kubectl(&role).await?;
    let account = format!("--serviceaccount={}:default", bench.namespace);
    bench.kubectl(&["create", "rolebinding", "electors", "--role=electors", &account]).await.map(drop)
}

async fn read(mut lines: Lines<BufReader<ChildStdout>>, led: watch::Sender<Vec<Term>>) {
    while let Ok(Some(line)) = lines.next_line().await {
        let Some(numbers) = line.strip_prefix("leads ") else { continue };
        let mut numbers = numbers.split(' ').map(|number| number.parse::<i64>().ok());
        let Some(at) = numbers.next().flatten() else { continue };
        let token = numbers.next().flatten();
        led.send_modify(|terms| match terms.last_mut() {
            Some(term) if term.token == token => term.last = at,
            _ => terms.push(Term { token, first: at, last: at }),
        });
    }
}

/// Checks that each program led once, one after the other, with rising tokens.
pub(crate) fn check(programs: &[&Program]) -> anyhow::Result<()> {
    let terms: Vec<Term> = programs.iter().flat_map(|program| program.terms.borrow().clone()).collect();
    ensure!(terms.len() == programs.len(), "not every program led exactly once: {terms:?}");
    check_order(terms)
}

/// Checks that at most one led at a time, with rising tokens.
pub(crate) fn check_order(mut terms: Vec<Term>) -> anyhow::Result<()> {
    terms.sort_by_key(|term| term.first);
    for pair in terms.windows(2) {
        let [before, after] = pair else { continue };
        ensure!(before.last < after.first, "two lead at once: {before:?} and {after:?}");
        let rises = before.token.zip(after.token).is_none_or(|(before, after)| before < after);
        ensure!(rises, "the token does not rise: {before:?} and {after:?}");
    }
    Ok(())
}
