//! The processes of [`super::outside`]: one on the network of each node.

use std::{collections::BTreeMap, process::Stdio, sync::Arc};

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::ChildStdin,
    sync::watch,
};

use super::{
    history::History,
    outside::{ARGUMENT, Line, Orders},
};
use crate::cluster::Cluster;

/// Runs clients, and replaces those that end.
pub(crate) struct Clients {
    cluster: Arc<Cluster>,
    history: Arc<History>,
    urls: watch::Receiver<Vec<String>>,
    /// Process IDs in the PID namespace of the nodes, by node.
    running: Mutex<BTreeMap<usize, u32>>,
}

impl Clients {
    pub(crate) fn new(cluster: Arc<Cluster>, history: Arc<History>, urls: watch::Receiver<Vec<String>>) -> Arc<Self> {
        Arc::new(Self { cluster, history, urls, running: Mutex::default() })
    }

    /// Keeps a client running on a node while this future is polled.
    ///
    /// `orders` returns the task of the n-th process.
    pub(crate) async fn keep(&self, node: usize, orders: impl Fn(u64) -> Orders) -> anyhow::Result<()> {
        for life in 0.. {
            self.live(node, &orders(life)).await.with_context(|| format!("the client on node{node}"))?;
        }
        Ok(())
    }

    async fn live(&self, node: usize, orders: &Orders) -> anyhow::Result<()> {
        let program = std::env::current_exe()?;
        let mut command = self.cluster.faults.command(&["in-node", &node.to_string(), "--"])?;
        command.arg(program).arg(ARGUMENT);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut input = child.stdin.take().context("no input")?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?).lines();
        write(&mut input, orders).await?;
        let mut urls = self.urls.clone();
        urls.mark_changed();
        loop {
            tokio::select! {
                changed = urls.changed() => {
                    changed?;
                    let now = urls.borrow_and_update().clone();
                    // A killed client does not read. The end of its output follows.
                    let _gone = write(&mut input, &now).await;
                }
                line = output.next_line() => {
                    let Some(line) = line? else { break };
                    // The last line of a killed process can be incomplete.
                    let Ok(line) = serde_json::from_str(&line) else { continue };
                    if let Line::Started { pid } = line {
                        self.running.lock().insert(node, pid);
                    }
                    self.history.record(line);
                }
            }
        }
        self.running.lock().remove(&node);
        Ok(())
    }

    /// The PID of the client on a node.
    pub(crate) fn pid(&self, node: usize) -> Option<u32> {
        self.running.lock().get(&node).copied()
    }
}

async fn write<T: serde::Serialize>(input: &mut ChildStdin, line: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    input.write_all(&text).await?;
    Ok(input.flush().await?)
}
