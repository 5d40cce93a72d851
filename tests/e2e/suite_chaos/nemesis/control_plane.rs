//! Faults of the operator's replicas and of the API server.

use std::collections::BTreeSet;

use anyhow::ensure;
use kube::ResourceExt as _;

use super::{Done, Kind, Nemesis, OPERATOR_BACK};
use crate::{checker::Fault, operators, suite_chaos::history::now};

impl Nemesis {
    async fn leader(&self) -> anyhow::Result<String> {
        Ok(operators::leader(&self.bench.cluster).await?.pod)
    }

    fn operators_out(pods: impl IntoIterator<Item = String>) -> Done {
        Done(Fault { operators: pods.into_iter().collect(), until: now() + OPERATOR_BACK, ..Fault::default() })
    }

    pub(super) async fn kill_operators(&mut self, kind: Kind) -> anyhow::Result<Done> {
        let (leader, pods) = (self.leader().await?, operators::pods(&self.bench.cluster).await?);
        let mut killed = BTreeSet::new();
        for pod in pods.iter().map(|pod| pod.name_any()) {
            let is_meant = match kind {
                Kind::KillLeader => pod == leader,
                Kind::KillFollower => pod != leader,
                _ => true,
            };
            let namespace = &self.bench.cluster.operator_namespace;
            if is_meant && self.bench.cluster.faults.kill_container(namespace, &pod, "operator").await.is_ok() {
                killed.insert(pod);
            }
        }
        ensure!(!killed.is_empty(), "no operator was running");
        Ok(Self::operators_out(killed))
    }

    pub(super) async fn delete_operator(&mut self) -> anyhow::Result<Done> {
        let pods = operators::pods(&self.bench.cluster).await?;
        ensure!(!pods.is_empty(), "no operator is there");
        let pod = pods[self.any(pods.len())].name_any();
        let namespace = &self.bench.cluster.operator_namespace;
        let delete = ["-n", namespace, "delete", "pod", &pod, "--force", "--grace-period=0"];
        self.bench.cluster.kubectl(&delete).await?;
        Ok(Self::operators_out([pod]))
    }

    pub(super) async fn freeze_leader(&mut self) -> anyhow::Result<Done> {
        let leader = self.leader().await?;
        let cluster = &self.bench.cluster;
        let frozen = cluster.faults.freeze(&cluster.operator_namespace, &leader, "operator").await?;
        self.lasts(1_000, 12_000).await;
        self.end(vec![frozen]).await;
        Ok(Self::operators_out([leader]))
    }

    pub(super) async fn cut_leader(&mut self, port: u16) -> anyhow::Result<Done> {
        let leader = self.leader().await?;
        let cut = operators::cut_off(&self.bench.cluster, &leader, port).await?;
        self.lasts(1_000, 12_000).await;
        self.end(vec![cut]).await;
        Ok(Self::operators_out([leader]))
    }

    pub(super) async fn kill_api_server(&mut self) -> anyhow::Result<Done> {
        self.bench.cluster.faults.stop_api_server().await?;
        self.lasts(0, 4_000).await;
        self.bench.cluster.faults.start_api_server().await?;
        Ok(Done(Fault { api_server: true, until: now() + OPERATOR_BACK, ..Fault::default() }))
    }

    pub(super) async fn api_server(&mut self, begin: &[&str], end: &[&str]) -> anyhow::Result<Done> {
        let away = self.bench.cluster.faults.inject(begin, end).await?;
        self.lasts(1_000, 8_000).await;
        self.end(vec![away]).await;
        Ok(Done(Fault { api_server: true, until: now() + OPERATOR_BACK, ..Fault::default() }))
    }
}
