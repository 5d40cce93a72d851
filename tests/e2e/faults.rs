//! Faults that need the host.
//!
//! Tests can use only the host of the local cluster.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use tokio::{process::Command, time::timeout};

use crate::cluster::text_of;

/// The timeout of a command.
///
/// The API server needs several seconds to stop and to start.
const LIMIT: Duration = Duration::from_secs(120);

/// The port of the API server.
pub(crate) const API_SERVER_PORT: u16 = 6443;
/// The port of members.
pub(crate) const MEMBER_PORT: u16 = 6379;

/// Injects faults by `dev/cluster.sh`.
pub(crate) struct Faults {
    script: Option<PathBuf>,
    /// Whether this is the second of two clusters with one network.
    is_second: bool,
    api_server_is_away: AtomicBool,
    /// Nodes that are disconnected.
    cut: Mutex<Vec<String>>,
    /// Commands that end the current faults, by their number.
    going_on: Mutex<BTreeMap<u64, Vec<String>>>,
}

/// A fault that lasts until [`Faults::end`].
#[must_use]
pub(crate) struct Injected(u64);

impl Faults {
    /// A cluster that is not local: no faults.
    pub(crate) fn none() -> Self {
        Self {
            script: None,
            is_second: false,
            api_server_is_away: AtomicBool::new(false),
            cut: Mutex::default(),
            going_on: Mutex::default(),
        }
    }

    /// For the local cluster.
    pub(crate) fn local(root: &Path) -> Self {
        Self { script: Some(root.join("dev/cluster.sh")), ..Self::none() }
    }

    /// For the second one of two local clusters (`dev/clusters.sh`).
    pub(crate) fn second(root: &Path) -> Self {
        Self { script: Some(root.join("dev/clusters.sh")), is_second: true, ..Self::none() }
    }

    /// Whether faults are available.
    pub(crate) fn available(&self) -> bool {
        self.script.is_some()
    }

    /// Builds a command of `dev/cluster.sh` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let Some(script) = &self.script else { bail!("this cluster has no faults to inject") };
        let mut command = Command::new(script);
        command.args(self.is_second.then_some("two")).args(arguments);
        Ok(command)
    }

    /// Begins a fault by one command of `dev/cluster.sh`.
    ///
    /// The other command ends it, at the end of the test at the latest.
    pub(crate) async fn inject(&self, begin: &[&str], end: &[&str]) -> anyhow::Result<Injected> {
        let number = {
            let mut going_on = self.going_on.lock();
            let number = going_on.last_key_value().map_or(0, |(last, _)| last + 1);
            going_on.insert(number, end.iter().map(|argument| (*argument).to_owned()).collect());
            number
        };
        match self.run(begin).await {
            Ok(()) => Ok(Injected(number)),
            Err(error) => {
                self.going_on.lock().remove(&number);
                Err(error)
            }
        }
    }

    /// Ends a fault.
    pub(crate) async fn end(&self, Injected(number): Injected) -> anyhow::Result<()> {
        let end = self.going_on.lock().remove(&number);
        match end {
            Some(end) => self.run(&end.iter().map(String::as_str).collect::<Vec<_>>()).await,
            None => Ok(()),
        }
    }

    /// Ends all current faults.
    pub(crate) async fn end_all(&self) -> anyhow::Result<()> {
        let numbers: Vec<_> = self.going_on.lock().keys().copied().collect();
        for number in numbers {
            // The target of the fault can have ended.
            let _gone = self.end(Injected(number)).await;
        }
        self.start_api_server().await.and(self.heal_nodes().await)
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        self.output(arguments).await.map(drop)
    }

    async fn output(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command(arguments)?;
        command.stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(LIMIT, command.output()).await;
        let output = output.with_context(|| format!("cluster.sh {}: not done in {LIMIT:?}", arguments.join(" ")))??;
        ensure!(output.status.success(), "cluster.sh {} failed: {}", arguments.join(" "), text_of(&output));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a shell script on the control plane's network, synchronously.
    pub(crate) fn clean_up_beside_the_control_plane(&self, script: &str) {
        if let Some(program) = &self.script {
            let mut command = std::process::Command::new(program);
            command.args(["in-cp", "--", "bash", "-uc", script]).stdin(Stdio::null());
            // The end of the cluster removes the rest.
            let _ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }

    /// Runs a shell script on the control plane's network, which reaches pods and nodes by address.
    ///
    /// Returns its output.
    pub(crate) async fn beside_the_control_plane(&self, script: &str) -> anyhow::Result<String> {
        self.output(&["in-cp", "--", "bash", "-c", script]).await
    }

    /// A command of this machine on a node's network, with the cluster's names.
    ///
    /// The caller adds arguments.
    pub(crate) fn on_node(&self, node: usize) -> anyhow::Result<Command> {
        let mut command = self.command(&["on-node", &node.to_string(), "--"])?;
        command.kill_on_drop(true);
        Ok(command)
    }

    /// A command of this machine on a node's network, which takes signals itself.
    ///
    /// The caller adds arguments.
    pub(crate) fn in_network(&self, node: &str) -> anyhow::Result<Command> {
        self.command(&["in-network", node.trim_start_matches("node"), "--"])
    }

    /// The URL of the API server for the nodes.
    pub(crate) fn api_server_for_nodes(&self) -> &'static str {
        if self.is_second { "https://10.99.2.1:6443" } else { "https://10.99.1.1:6443" }
    }

    /// SIGKILL to the first process of a container.
    pub(crate) async fn kill_container(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<()> {
        self.run(&["kill-container", namespace, pod, container]).await
    }

    /// SIGSTOP to all processes of a container, and SIGCONT at the end of the fault.
    pub(crate) async fn freeze(&self, namespace: &str, pod: &str, container: &str) -> anyhow::Result<Injected> {
        let target = [namespace, pod, container];
        let [pause, resume] = ["pause-container", "resume-container"].map(|what| [&[what], &target[..]].concat());
        self.inject(&pause, &resume).await
    }

    /// Drops packets on a node that match one of these nftables rules, in both directions.
    pub(crate) async fn drop_on(&self, node: &str, rules: &[String]) -> anyhow::Result<Injected> {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let (node, rules) = (node.trim_start_matches("node"), rules.join("; "));
        let table = format!("e2e{}", TABLES.fetch_add(1, Ordering::Relaxed));
        let chain = |hook: &str| format!("chain {hook} {{ type filter hook {hook} priority 0; {rules}; }}; ");
        let drop = format!("table ip {table} {{ {}{} }}", chain("prerouting"), chain("postrouting"));
        let heal = ["in-node", node, "--", "nft", "delete", "table", "ip", &table];
        self.inject(&["in-node", node, "--", "nft", &drop], &heal).await
    }

    /// Drops packets on a node from the pod with this address to a port.
    pub(crate) async fn cut_off(&self, node: &str, address: &str, port: u16) -> anyhow::Result<Injected> {
        self.drop_on(node, &[format!("ip saddr {address} tcp dport {port} drop")]).await
    }

    /// Drops all packets between this cluster, the first one, and the second one.
    ///
    /// The network interfaces and routes stay.
    pub(crate) async fn cut_clusters(&self) -> anyhow::Result<Injected> {
        let rule = "table ip cut { chain forward { type filter hook forward priority 0; oifname peer drop; iifname peer drop; }; }";
        let cut = ["in-cp", "--", "nft", rule];
        self.inject(&cut, &["in-cp", "--", "nft", "delete", "table", "ip", "cut"]).await
    }

    /// Kills the API server.
    ///
    /// It does not restart.
    pub(crate) async fn stop_api_server(&self) -> anyhow::Result<()> {
        self.api_server_is_away.store(true, Ordering::SeqCst);
        self.run(&["apiserver-stop"]).await
    }

    /// Starts the API server, if it is down.
    pub(crate) async fn start_api_server(&self) -> anyhow::Result<()> {
        if self.api_server_is_away.load(Ordering::SeqCst) {
            self.run(&["apiserver-start"]).await?;
            self.api_server_is_away.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Disconnects a node of the local cluster, `nodeN`.
    pub(crate) async fn cut_node(&self, node: &str) -> anyhow::Result<()> {
        let number = node.trim_start_matches(|c: char| !c.is_ascii_digit()).to_owned();
        self.cut.lock().push(number.clone());
        self.run(&["node-cut", &number]).await
    }

    /// Restarts a node's kubelet.
    pub(crate) async fn restart_kubelet(&self, node: &str) -> anyhow::Result<()> {
        let number = node.trim_start_matches(|c: char| !c.is_ascii_digit());
        self.run(&["kubelet-stop", number]).await?;
        self.run(&["kubelet-start", number]).await
    }

    /// Connects all nodes again.
    pub(crate) async fn heal_nodes(&self) -> anyhow::Result<()> {
        let cut = std::mem::take(&mut *self.cut.lock());
        for number in cut {
            self.run(&["node-heal", &number]).await?;
        }
        Ok(())
    }
}
