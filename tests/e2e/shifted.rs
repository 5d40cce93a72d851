//! A replica of the operator whose wall clock is wrong.
//!
//! It is this program, started again on a node's network.
//!
//! It runs all of the operator's own code, including leadership, against the cluster's API server and members. Only
//! `CLOCK_REALTIME` is shifted. A preloaded library cannot shift it for the installed operator, which reads the
//! clock without a library.
//!
//! Input, a line each: [`Orders`], then the offset of the clock in milliseconds from that moment on. The end of the
//! input is a SIGTERM.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use clap::Parser;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use redlock_operator::{
    operator::{Operator, args::OperatorArgs, telemetry},
    redis_member::{Machine, Tcp},
    time::{Boottime, Clock, Monotonic, SystemClock, UnixMillis},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{bench::Bench, cluster::Cluster, operators, record::Version};

/// The argument that makes this program such a replica.
pub(crate) const ARGUMENT: &str = "shifted-replica";
/// The replica leads within this time after the installed replicas have ended.
const LEAD_LIMIT: Duration = Duration::from_secs(60);
/// The replica ends within this time, because it hands over and waits for its successor.
const END_LIMIT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
struct Orders {
    name: String,
    namespace: String,
    kubeconfig: PathBuf,
    /// Address of the API server on the node's network.
    server: String,
    offset: i64,
}

/// Arguments of `redlock operator`.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    operator: OperatorArgs,
}

/// The machine's clocks with a shifted wall clock.
struct Shifted(Arc<AtomicI64>);

impl Clock for Shifted {
    fn boottime(&self) -> Boottime {
        SystemClock.boottime()
    }

    fn monotonic(&self) -> Monotonic {
        SystemClock.monotonic()
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(SystemClock.wall().0 + self.0.load(Ordering::SeqCst))
    }
}

/// The main function of the process.
pub(crate) async fn run() -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let Orders { name, namespace, kubeconfig, server, offset } =
        serde_json::from_str(&lines.next_line().await?.context("no orders")?)?;
    let arguments = ["operator", "--namespace", &namespace, "--pod-name", &name, "--listen", "127.0.0.1:0"];
    let unlimited = ["--max-locks-per-namespace=0", "--max-quorums-per-namespace=0"];
    let Arguments { operator: args } = Arguments::parse_from(arguments.into_iter().chain(unlimited));
    telemetry::init(&args.log, args.log_format)?;
    let mut config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await?;
    config.cluster_url = server.parse()?;
    config.tls_server_name = None;
    let offset = Arc::new(AtomicI64::new(offset));
    let machine = Machine { clock: Arc::new(Shifted(offset.clone())), network: Arc::new(Tcp) };
    let operator = Operator::new(args, Client::try_from(config.clone())?, Client::try_from(config)?, machine);
    let terminated = CancellationToken::new();
    let tell = terminated.clone();
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(shift) = line.parse() {
                offset.store(shift, Ordering::SeqCst);
                tracing::info!(shift, "the wall clock was shifted");
            }
        }
        tell.cancel();
    });
    operator.work(terminated).await
}

/// A running replica.
///
/// It ends without a hand-over when it is dropped.
pub(crate) struct ShiftedReplica {
    /// The replica's name in the Lease.
    pub(crate) name: String,
    /// `None` after the request to end.
    stdin: Option<ChildStdin>,
    process: Child,
}

impl ShiftedReplica {
    /// Starts it on the network of `node` as a standby.
    pub(crate) async fn start(cluster: &Cluster, node: &str, offset: i64) -> anyhow::Result<Self> {
        let services: Api<Service> = Api::namespaced(cluster.client.clone(), "default");
        let service = services.get("kubernetes").await?.spec.and_then(|spec| spec.cluster_ip);
        let name = format!("shifted-{:04x}", rand::random::<u16>());
        let orders = Orders {
            name: name.clone(),
            namespace: cluster.operator_namespace.clone(),
            kubeconfig: cluster.kubeconfig.clone(),
            server: format!("https://{}", service.context("the API server has no Service")?),
            offset,
        };
        let mut command = cluster.faults.on_node(number(node)?)?;
        let log = std::fs::File::create(std::env::temp_dir().join(format!("{name}.log")))?;
        command.arg(std::env::current_exe()?).arg(ARGUMENT);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let mut process = command.spawn().context("failed to start a replica")?;
        let mut stdin = process.stdin.take().context("no stdin")?;
        stdin.write_all(format!("{}\n", serde_json::to_string(&orders)?).as_bytes()).await?;
        Ok(Self { name, stdin: Some(stdin), process })
    }

    /// Sets the offset of its wall clock in milliseconds.
    pub(crate) async fn shift(&mut self, offset: i64) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("it was told to end")?;
        stdin.write_all(format!("{offset}\n").as_bytes()).await?;
        Ok(stdin.flush().await?)
    }

    /// Requests its end, if that has not happened yet, and waits for it.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        self.stdin = None;
        let ended = timeout(END_LIMIT, self.process.wait()).await;
        let ended = ended.with_context(|| format!("{} does not end", self.name))??;
        ensure!(ended.success(), "{} ended with {ended}", self.name);
        Ok(())
    }
}

/// Runs a test while a replica with this clock leads instead of the installed operator.
///
/// The installed operator returns afterwards, even if the test fails.
pub(crate) async fn led_by_shifted(
    bench: &Bench,
    node: &str,
    offset: i64,
    what: impl AsyncFnOnce(&mut ShiftedReplica) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let leases = operators::watch_leader(&bench.cluster).await?;
    let mut replica = ShiftedReplica::start(&bench.cluster, node, offset).await?;
    let result = async {
        operators::scale(&bench.cluster, 0).await?;
        let leads = |v: &Version<Lease>| {
            v.object.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()) == Some(&replica.name)
        };
        leases.until(LEAD_LIMIT, "the replica with the wrong clock leads", leads).await?;
        what(&mut replica).await
    }
    .await;
    let back = operators::scale(&bench.cluster, operators::REPLICAS).await;
    let ended = replica.end().await;
    result.and(back).and(ended)
}

fn number(node: &str) -> anyhow::Result<usize> {
    node.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().with_context(|| format!("which node is {node}?"))
}
