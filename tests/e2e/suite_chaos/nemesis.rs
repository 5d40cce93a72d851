//! Injects faults, one kind after the other in an order that the seed decides, and records them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use redlock_operator::api::{MemberState, PREDECESSOR_DEAD_ANNOTATION, RedisQuorum};
use tokio::time::sleep;

mod control_plane;

use super::{
    clients::Clients,
    history::{History, now},
    kinds::Kind,
};
use crate::{
    bench::Bench,
    checker::Fault,
    faults::{API_SERVER_PORT, Injected, MEMBER_PORT},
    locks, operators, pods,
    quorums::member_of,
    rng::Rng,
};

/// A killed operator works again within this time, in milliseconds.
const OPERATOR_BACK: i64 = 5_000;
/// The leader fences a member with a stepped clock within this time.
///
/// The leader detects the step at its next reading. There can be no leader for a while.
const FENCED_LIMIT: Duration = Duration::from_secs(30);
/// Nodes of the local cluster.
const NODES: u64 = 3;
/// The smaller and the larger number of members, between which the quorum alternates.
const FEW: i32 = 3;
const MANY: i32 = 5;

/// The servers that vote.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Their pods, with a container named `redis`.
    pub(crate) pods: Vec<String>,
    /// Whether a supervisor restarts Redis immediately, like systemd.
    ///
    /// Redis is not the container's first process then.
    pub(crate) supervised: bool,
}

pub(crate) struct Nemesis {
    pub(crate) bench: Bench,
    pub(crate) history: Arc<History>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) target: Target,
    pub(crate) rng: Rng,
    /// A counter that makes each change differ from the last one.
    pub(crate) changes: u64,
}

/// The effect of a fault, during it and afterwards.
struct Done(Fault);

impl Nemesis {
    /// One fault from beginning to end.
    ///
    /// A fault that fails because of an earlier one is not recorded.
    pub(crate) async fn inflict(&mut self, kind: Kind) -> anyhow::Result<()> {
        self.find_target().await;
        let from = now();
        let Done(fault) = self.perform(kind).await?;
        let until = fault.until.max(now());
        self.history.fault(Fault { kind: kind.name(), from, until, ..fault });
        Ok(())
    }

    /// Finds the current members, which can have changed since the last fault.
    ///
    /// Without an API server the earlier ones stay.
    async fn find_target(&mut self) {
        if self.target.supervised {
            return;
        }
        let Ok(quorum) = self.bench.api::<RedisQuorum>().get("q").await else { return };
        let mut pods: Vec<_> =
            quorum.status.into_iter().flat_map(|status| status.members).map(|member| member.name + "-0").collect();
        pods.sort();
        if !pods.is_empty() {
            self.target.pods = pods;
        }
    }

    async fn perform(&mut self, kind: Kind) -> anyhow::Result<Done> {
        let any = self.any(self.target.pods.len());
        let next = (any + 1) % self.target.pods.len();
        match kind {
            Kind::KillMember => self.kill(&[any]).await,
            Kind::KillTwoMembers => self.kill(&[any, next]).await,
            Kind::KillAllMembers => self.kill(&(0..self.target.pods.len()).collect::<Vec<_>>()).await,
            Kind::FreezeMember => self.freeze(&[any]).await,
            Kind::FreezeTwoMembers => self.freeze(&[any, next]).await,
            Kind::DeletePod => self.delete(any, &["--wait=false"]).await,
            Kind::ForceDeletePod => self.delete_by_force(any).await,
            Kind::CutMember => self.cut(any, &["ip saddr {} drop", "ip daddr {} drop"]).await,
            Kind::DeafMember => self.cut(any, &["ip daddr {} drop"]).await,
            Kind::MuteMember => self.cut(any, &["ip saddr {} drop"]).await,
            // Handshakes and keep-alives pass, but segments with data do not.
            Kind::HalfOpenMember => {
                let rules = ["ip daddr {} tcp flags & psh == psh drop", "ip saddr {} tcp flags & psh == psh drop"];
                self.cut(any, &rules).await
            }
            Kind::CutNode | Kind::DeafNode => self.cut_node(kind).await,
            Kind::StepClockAhead => self.step_clock(any, 20_000).await,
            Kind::StepClockBack => self.step_clock(any, -20_000).await,
            Kind::BusyScript => self.busy(any).await,
            Kind::Roll => {
                let cpu = format!("{}m", 10 + self.changes % 7);
                self.patch(&format!(r#"{{"spec":{{"pod":{{"resources":{{"requests":{{"cpu":"{cpu}"}}}}}}}}}}"#)).await
            }
            Kind::ChangeMaxTtl => {
                let ttl = 3 + self.changes % 3;
                self.patch(&format!(r#"{{"spec":{{"maxTTL":"{ttl}s"}}}}"#)).await
            }
            Kind::ChangeMembers => {
                let quorum: RedisQuorum = self.bench.api().get("q").await?;
                let members = if quorum.spec.members == FEW { MANY } else { FEW };
                self.patch(&format!(r#"{{"spec":{{"members":{members}}}}}"#)).await
            }
            Kind::KillLeader | Kind::KillFollower | Kind::KillOperators => self.kill_operators(kind).await,
            Kind::DeleteOperatorPod => self.delete_operator().await,
            Kind::FreezeLeader => self.freeze_leader().await,
            Kind::CutLeaderFromApiServer => self.cut_leader(API_SERVER_PORT).await,
            Kind::CutLeaderFromMembers => self.cut_leader(MEMBER_PORT).await,
            Kind::KillApiServer => self.kill_api_server().await,
            Kind::FreezeApiServer => self.api_server(&["apiserver-pause"], &["apiserver-resume"]).await,
            Kind::DeafApiServer => {
                let cut = "table ip chaos { chain cut { type filter hook input priority 0; iifname br0 tcp dport 6443 drop; }; }";
                let heal = ["in-cp", "--", "nft", "delete", "table", "ip", "chaos"];
                self.api_server(&["in-cp", "--", "nft", cut], &heal).await
            }
            Kind::RestartKubelet => {
                let node = format!("node{}", 1 + self.rng.below(NODES));
                self.bench.cluster.faults.restart_kubelet(&node).await?;
                Ok(Done(Fault::default()))
            }
            Kind::KillElected => self.kill_elected().await,
            Kind::KillClient | Kind::FreezeClient => self.hit_client(kind).await,
        }
    }

    fn any(&mut self, of: usize) -> usize {
        usize::try_from(self.rng.below(of as u64)).unwrap_or(0)
    }

    fn member(&self, index: usize) -> String {
        let pod = &self.target.pods[index];
        pod.strip_suffix("-0").unwrap_or(pod).to_owned()
    }

    fn members(&self, indexes: &[usize]) -> BTreeSet<String> {
        indexes.iter().map(|index| self.member(*index)).collect()
    }

    /// These members are out during the fault.
    fn out(&self, indexes: &[usize]) -> Done {
        Done(Fault { members: self.members(indexes), ..Fault::default() })
    }

    async fn lasts(&mut self, least: u64, most: u64) {
        sleep(self.rng.millis(least, most)).await;
    }

    async fn end(&self, injected: Vec<Injected>) {
        for one in injected {
            // The frozen container can have ended.
            let _gone = self.bench.cluster.faults.end(one).await;
        }
    }

    async fn kill(&mut self, indexes: &[usize]) -> anyhow::Result<Done> {
        let (bench, target) = (&self.bench, &self.target);
        let kills = indexes.iter().map(async |index| {
            let pod = &target.pods[*index];
            if target.supervised {
                let script = "kill -9 $(pidof redis-server)";
                return bench.kubectl(&["exec", pod, "--", "sh", "-c", script]).await.map(drop);
            }
            bench.cluster.faults.kill_container(&bench.namespace, pod, "redis").await
        });
        let results = futures::future::join_all(kills).await;
        // A kill fails if the member does not run, but then it does not vote either.
        ensure!(results.iter().any(Result::is_ok), "none of these members runs");
        Ok(self.out(indexes))
    }

    async fn freeze(&mut self, indexes: &[usize]) -> anyhow::Result<Done> {
        let mut injected = Vec::new();
        for index in indexes {
            let pod = &self.target.pods[*index];
            match self.bench.cluster.faults.freeze(&self.bench.namespace, pod, "redis").await {
                Ok(one) => injected.push(one),
                Err(error) if injected.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        self.lasts(500, 4_000).await;
        self.end(injected).await;
        Ok(self.out(indexes))
    }

    async fn delete(&mut self, index: usize, how: &[&str]) -> anyhow::Result<Done> {
        let arguments = [&["delete", "pod", &self.target.pods[index]], how].concat();
        self.bench.kubectl(&arguments).await?;
        Ok(self.out(&[index]))
    }

    /// Deletes a pod by force, and confirms the end of the old process like an administrator.
    ///
    /// Without the confirmation the successor waits for two minutes.
    async fn delete_by_force(&mut self, index: usize) -> anyhow::Result<Done> {
        let pod = self.bench.api::<Pod>().get(&self.target.pods[index]).await?;
        let uid = pod.uid().context("no UID")?;
        let node = pod.spec.and_then(|spec| spec.node_name).context("no node")?;
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let id = statuses.into_iter().find_map(|status| status.container_id).context("no container")?;
        let id = id.trim_start_matches("containerd://").to_owned();
        let done = self.delete(index, &["--force", "--grace-period=0"]).await?;
        let ended = format!("! ctr --namespace k8s.io tasks ls | grep {id} | grep -q RUNNING");
        let look = ["in-node", node.trim_start_matches("node"), "--", "sh", "-c", &ended];
        while self.bench.cluster.faults.run(&look).await.is_err() {
            self.lasts(200, 200).await;
        }
        let annotation = format!("{PREDECESSOR_DEAD_ANNOTATION}={uid}");
        self.bench.kubectl(&["annotate", "--overwrite", "rq", "q", &annotation]).await?;
        Ok(done)
    }

    /// Node and address of a pod.
    async fn place(&self, pod: &str) -> anyhow::Result<(String, String)> {
        let pod: Pod = self.bench.api().get(pod).await?;
        let (node, address) = pods::place(&pod).context("no node or no address")?;
        Ok((node.trim_start_matches("node").to_owned(), address))
    }

    async fn cut(&mut self, index: usize, rules: &[&str]) -> anyhow::Result<Done> {
        let (node, address) = self.place(&self.target.pods[index]).await?;
        let rules: Vec<_> = rules.iter().map(|rule| rule.replace("{}", &address)).collect();
        let cut = self.bench.cluster.faults.drop_on(&node, &rules).await?;
        self.lasts(500, 5_000).await;
        self.end(vec![cut]).await;
        Ok(self.out(&[index]))
    }

    async fn cut_node(&mut self, kind: Kind) -> anyhow::Result<Done> {
        let number = 1 + self.rng.below(NODES);
        let mut fault = Fault::default();
        for (index, pod) in self.target.pods.clone().iter().enumerate() {
            if self.place(pod).await.is_ok_and(|(node, _)| node == number.to_string()) {
                fault.members.extend(self.members(&[index]));
            }
        }
        for pod in operators::pods(&self.bench.cluster).await? {
            if pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&format!("node{number}")) {
                fault.operators.insert(pod.name_any());
            }
        }
        let node = number.to_string();
        let cut = if kind == Kind::CutNode {
            self.bench.cluster.faults.inject(&["node-cut", &node], &["node-heal", &node]).await?
        } else {
            self.bench.cluster.faults.drop_on(&node, &["iifname eth0 drop".to_owned()]).await?
        };
        // Shorter than the time after which the node is lost. Another test covers that case.
        self.lasts(1_000, 8_000).await;
        self.end(vec![cut]).await;
        fault.until = now() + OPERATOR_BACK;
        Ok(Done(fault))
    }

    async fn step_clock(&mut self, index: usize, by: i64) -> anyhow::Result<Done> {
        let from = now();
        let step = format!("echo $(($(cat /dev/shm/clock 2>/dev/null || echo 0) + {by})) > /dev/shm/clock");
        self.bench.kubectl(&["exec", &self.target.pods[index], "-c", "redis", "--", "sh", "-c", &step]).await?;
        let fenced = tokio::time::timeout(FENCED_LIMIT, self.fenced(index)).await;
        fenced.context("a member whose clock was stepped is not fenced")??;
        Ok(Done(Fault { clock: by > 0, from, members: self.members(&[index]), ..Fault::default() }))
    }

    /// Waits until the status records that the member cannot vote, and then until it is closed.
    async fn fenced(&mut self, index: usize) -> anyhow::Result<()> {
        let name = self.member(index);
        loop {
            let quorum: RedisQuorum = self.bench.api().get("q").await?;
            if member_of(&quorum, &name).is_none_or(|member| member.state != MemberState::Admitted) {
                // The users and the clients' connections are closed after the write of the status.
                self.lasts(1_000, 1_000).await;
                return Ok(());
            }
            self.lasts(50, 50).await;
        }
    }

    /// Keeps a member busy by a script of a client's user.
    ///
    /// The script ends with an error when the operator kills it.
    async fn busy(&mut self, index: usize) -> anyhow::Result<Done> {
        let urls = super::members::urls(&self.bench).await?;
        let url = urls.get(index).context("no such member")?;
        let url = url.replace(url.split_once('@').context("no host")?.1, "127.0.0.1:6379");
        let script = "timeout 5 redis-cli --no-auth-warning -u \"$0\" EVAL 'while true do end' 0 2>&1 || true";
        let pod = &self.target.pods[index];
        let answer = self.bench.kubectl(&["exec", pod, "-c", "redis", "--", "sh", "-c", script, &url]).await?;
        ensure!(!answer.contains("NOPERM"), "the member is fenced, and runs no scripts");
        Ok(self.out(&[index]))
    }

    /// Changes the quorum, which must not affect locks.
    async fn patch(&mut self, patch: &str) -> anyhow::Result<Done> {
        self.changes += 1;
        self.bench.patch("rq", "q", patch).await?;
        Ok(Done(Fault::default()))
    }

    /// Kills the elected pod, whose beliefs end at this time.
    async fn kill_elected(&mut self) -> anyhow::Result<Done> {
        let election = self.bench.api().get("app").await?;
        let leader = locks::leader(&election).context("no pod leads")?;
        let at = now();
        self.bench.cluster.faults.kill_container(&self.bench.namespace, &leader, "app").await?;
        self.history.died(&leader, at);
        Ok(Done(Fault { holder: Some(leader), ..Fault::default() }))
    }

    async fn hit_client(&mut self, kind: Kind) -> anyhow::Result<Done> {
        let number = 1 + self.any(usize::try_from(NODES)?);
        let Some(pid) = self.clients.pid(number) else { bail!("no client runs on node{number}") };
        let (node, pid) = (number.to_string(), pid.to_string());
        let kill = |signal: &'static str| ["in-node", &node, "--", "kill", signal, &pid];
        if kind == Kind::KillClient {
            self.bench.cluster.faults.run(&kill("-KILL")).await?;
        } else {
            let frozen = self.bench.cluster.faults.inject(&kill("-STOP"), &kill("-CONT")).await?;
            self.lasts(500, 6_000).await;
            self.end(vec![frozen]).await;
        }
        Ok(Done(Fault::default()))
    }
}
