//! Pods whose processes are unmodified controllers, under random faults.
//!
//! A program of this machine represents the container of a pod. It runs on the network of the pod's node, with the
//! pod's token. It starts with the container, and ends before the container does. `CHAOS_SECONDS` is the length of the
//! faults, and `SEED` repeats their order.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::ResourceExt as _;
use parking_lot::Mutex as Plain;
use serde_json::json;
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    bench::Bench,
    faults::{API_SERVER_PORT, MEMBER_PORT},
    locks::{Lock, leader},
    operators, pods, poll,
    programs::{Program, Term, allow_leases, check_order},
    rng::Rng,
    runner::{given_seed, given_time},
    suite_gate::controllers::gated,
    suite_lock::support::{HTTPD, container_of, liveness, with, worker},
};

/// A request of a test during faults.
const REQUEST: Duration = Duration::from_secs(10);
/// After a fault a program leads again within this time: a hold ends, and a pod or a node returns.
const RECOVERY: Duration = Duration::from_secs(150);
/// The pause of a supervisor between two checks.
const PERIOD: Duration = Duration::from_millis(100);

/// A pod of a StatefulSet, and the programs of its containers.
struct Candidate {
    bench: Bench,
    pod: String,
    running: Mutex<Running>,
    /// The terms of all programs, including ended ones.
    terms: Plain<Vec<watch::Receiver<Vec<Term>>>>,
}

#[derive(Default)]
struct Running {
    program: Option<Program>,
    /// The containers whose end the test caused, so that no program starts for them.
    ended: Vec<String>,
}

impl Candidate {
    /// Keeps a program running while the container of the pod runs.
    async fn keep(self: Arc<Self>) {
        loop {
            let mut running = self.running.lock().await;
            let has_ended =
                running.program.as_mut().is_none_or(|program| program.child.try_wait().is_ok_and(|it| it.is_some()));
            if has_ended {
                // A fault can cause an error here. The next round tries again.
                running.program = timeout(REQUEST, self.start(&running.ended)).await.ok().and_then(Result::ok);
            }
            drop(running);
            sleep(PERIOD).await;
        }
    }

    async fn start(&self, ended: &[String]) -> anyhow::Result<Program> {
        let pod = self.bench.api::<Pod>().get(&self.pod).await?;
        let container = container_id(&pod).context("no container runs")?;
        ensure!(pods::is_ready(&pod) && pod.metadata.deletion_timestamp.is_none(), "not ready");
        ensure!(!ended.contains(&container), "the container has ended");
        let program = Program::on_node_of_pod(&self.bench, &pod).await?;
        self.terms.lock().push(program.terms());
        Ok(program)
    }

    /// Ends the program, and then its container by `how`.
    async fn end(&self, how: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut running = self.running.lock().await;
        let pod = timeout(REQUEST, self.bench.api::<Pod>().get(&self.pod)).await??;
        running.ended.extend(container_id(&pod));
        if let Some(mut program) = running.program.take() {
            program.child.kill().await?;
        }
        how().await
    }

    async fn is_leading(&self) -> bool {
        self.running.lock().await.program.as_ref().is_some_and(|program| program.is_leading(&self.bench))
    }
}

fn container_id(pod: &Pod) -> Option<String> {
    let status = container_of(pod, "app")?;
    status.state.as_ref()?.running.as_ref()?;
    status.container_id.clone()
}

/// The candidates of one cluster, and their lock.
pub(crate) struct Place {
    bench: Bench,
    lock: Lock,
    candidates: Vec<Arc<Candidate>>,
    nodes: u64,
}

impl Place {
    /// Creates the pods, one for each node, and the lock with the fields of `quorum`.
    pub(crate) async fn open(bench: &Bench, nodes: u64, quorum: serde_json::Value) -> anyhow::Result<Self> {
        allow_leases(bench).await?;
        bench.create::<StatefulSet>(controllers(bench, nodes)).await?;
        bench.kubectl(&["rollout", "status", "statefulset/app", "--timeout=120s"]).await?;
        let lock = Lock::create(bench, with(with(gated(), liveness()), quorum)).await?;
        let candidate = |number| Candidate {
            bench: bench.clone(),
            pod: format!("app-{number}"),
            running: Mutex::default(),
            terms: Plain::default(),
        };
        let candidates = (0..nodes).map(|number| Arc::new(candidate(number))).collect();
        Ok(Self { bench: bench.clone(), lock, candidates, nodes })
    }

    /// The candidate whose pod holds the lock, or else the first one.
    fn leader(&self) -> &Candidate {
        let pod = self.lock.recorder.last().ok().and_then(|version| leader(&version.object));
        let is_leader = |candidate: &&Arc<Candidate>| pod.as_ref() == Some(&candidate.pod);
        self.candidates.iter().find(is_leader).unwrap_or(&self.candidates[0])
    }

    async fn leading_operator(&self) -> anyhow::Result<Pod> {
        let cluster = &self.bench.cluster;
        let name = timeout(REQUEST, operators::leader(cluster)).await??.pod;
        let pods = timeout(REQUEST, operators::pods(cluster)).await??;
        pods.into_iter().find(|pod| pod.name_any() == name).context("the leading operator has no pod")
    }
}

/// A StatefulSet with a pod for each node.
///
/// The pods themselves run no controller.
fn controllers(bench: &Bench, replicas: u64) -> serde_json::Value {
    let mut pod = worker(bench, "app", "app", HTTPD);
    pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "app"}}}]);
    json!({"metadata": {"name": "app"}, "spec": {
        "serviceName": "app", "replicas": replicas, "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "app"}},
        "template": {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]},
    }})
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// This fault needs two clusters.
    CutClusters,
    KillContainer,
    DeletePod,
    CutNodeOfLeader,
    CutAnyNode,
    FreezeApiServer,
    RestartApiServer,
    FreezeOperator,
    DeleteOperator,
    CutOperatorFromApiServer,
    CutOperatorFromMembers,
    RestartKubelet,
}

impl Fault {
    const ALL: [Self; 12] = [
        Self::CutClusters,
        Self::KillContainer,
        Self::DeletePod,
        Self::CutNodeOfLeader,
        Self::CutAnyNode,
        Self::FreezeApiServer,
        Self::RestartApiServer,
        Self::FreezeOperator,
        Self::DeleteOperator,
        Self::CutOperatorFromApiServer,
        Self::CutOperatorFromMembers,
        Self::RestartKubelet,
    ];

    /// One fault from beginning to end.
    async fn inflict(self, place: &Place, rng: &mut Rng) -> anyhow::Result<()> {
        let (bench, faults) = (&place.bench, &place.bench.cluster.faults);
        let (namespace, operators) = (&bench.namespace, bench.cluster.operator_namespace.as_str());
        let any_node = format!("node{}", 1 + rng.below(place.nodes));
        let lasts = rng.millis(1_000, 25_000);
        match self {
            Self::CutClusters => {
                let cut = faults.cut_clusters().await?;
                sleep(2 * lasts).await;
                faults.end(cut).await
            }
            Self::KillContainer => {
                let candidate = place.leader();
                candidate.end(async || faults.kill_container(namespace, &candidate.pod, "app").await).await
            }
            Self::DeletePod => {
                let candidate = place.leader();
                let delete = ["delete", "pod", &candidate.pod, "--wait=false"];
                candidate.end(async || timeout(REQUEST, bench.kubectl(&delete)).await?.map(drop)).await
            }
            Self::CutNodeOfLeader => {
                let pod = timeout(REQUEST, bench.api::<Pod>().get(&place.leader().pod)).await??;
                let (node, _address) = pods::place(&pod).context("the leader has no node")?;
                cut(place, &node, lasts).await
            }
            Self::CutAnyNode => cut(place, &any_node, lasts).await,
            Self::FreezeApiServer => {
                let frozen = faults.inject(&["apiserver-pause"], &["apiserver-resume"]).await?;
                sleep(lasts).await;
                faults.end(frozen).await
            }
            Self::RestartApiServer => {
                faults.stop_api_server().await?;
                sleep(lasts / 2).await;
                faults.start_api_server().await
            }
            Self::FreezeOperator => {
                let pod = place.leading_operator().await?.name_any();
                let frozen = faults.freeze(operators, &pod, "operator").await?;
                sleep(lasts / 2).await;
                faults.end(frozen).await
            }
            Self::DeleteOperator => {
                let pod = place.leading_operator().await?.name_any();
                let delete = ["-n", operators, "delete", "pod", &pod, "--force", "--grace-period=0"];
                timeout(REQUEST, bench.cluster.kubectl(&delete)).await?.map(drop)
            }
            Self::CutOperatorFromApiServer => cut_operator(place, API_SERVER_PORT, lasts).await,
            Self::CutOperatorFromMembers => cut_operator(place, MEMBER_PORT, lasts).await,
            Self::RestartKubelet => faults.restart_kubelet(&any_node).await,
        }
    }
}

async fn cut(place: &Place, node: &str, lasts: Duration) -> anyhow::Result<()> {
    let faults = &place.bench.cluster.faults;
    faults.cut_node(node).await?;
    sleep(lasts).await;
    faults.heal_nodes().await
}

async fn cut_operator(place: &Place, port: u16, lasts: Duration) -> anyhow::Result<()> {
    let faults = &place.bench.cluster.faults;
    let (node, address) =
        pods::place(&place.leading_operator().await?).context("the leading operator has no address")?;
    let cut = faults.cut_off(&node, &address, port).await?;
    sleep(lasts).await;
    faults.end(cut).await
}

/// Injects faults for the given time, and checks that at most one program leads.
///
/// After each fault a program must lead again.
pub(crate) async fn suffer(places: &[Place]) -> anyhow::Result<()> {
    let (seed, length) = (given_seed(), given_time());
    let mut rng = Rng::new(seed);
    println!("seed {seed}, {} s", length.as_secs());
    let candidates: Vec<_> = places.iter().flat_map(|place| place.candidates.clone()).collect();
    let mut supervisors = JoinSet::new();
    for candidate in &candidates {
        supervisors.spawn(candidate.clone().keep());
    }
    let bench = &places.first().context("no cluster")?.bench;
    leads(&candidates).await?;
    let (begun, mut counts) = (bench.now(), BTreeMap::<Fault, u32>::new());
    let is_over = || {
        let lasted = bench.now().since(begun);
        // A few long faults can spare the leader.
        lasted >= length && (terms(&candidates).len() > 1 || lasted >= length * 4)
    };
    while !is_over() {
        let kinds = if places.len() > 1 { &Fault::ALL[..] } else { &Fault::ALL[1..] };
        let (place, fault) = (rng.below(places.len() as u64), rng.below(kinds.len() as u64));
        let (place, fault) = (&places[usize::try_from(place)?], kinds[usize::try_from(fault)?]);
        // A fault that cannot be injected because of the last one does not count.
        match fault.inflict(place, &mut rng).await {
            Ok(()) => *counts.entry(fault).or_default() += 1,
            Err(error) => {
                println!("  not done: {fault:?}: {error:#}");
                place.bench.cluster.faults.end_all().await?;
                continue;
            }
        }
        if rng.percent(50) {
            let ended = bench.now();
            leads(&candidates).await.with_context(|| format!("after {counts:?}"))?;
            bench.figures.add("after a fault: a program leads again", bench.now().since(ended));
        }
        sleep(rng.millis(200, 3_000)).await;
    }
    leads(&candidates).await?;
    supervisors.shutdown().await;
    let terms = terms(&candidates);
    let faults = counts.values().sum::<u32>();
    println!("{faults} faults, {} terms: {counts:?}", terms.len());
    ensure!(u64::from(faults) * 30 >= length.as_secs() && terms.len() > 1, "too few faults or terms");
    check_order(terms)
}

/// The terms of all candidates until now.
fn terms(candidates: &[Arc<Candidate>]) -> Vec<Term> {
    let receivers = candidates.iter().flat_map(|candidate| candidate.terms.lock().clone());
    receivers.flat_map(|terms| terms.borrow().clone()).collect()
}

async fn leads(candidates: &[Arc<Candidate>]) -> anyhow::Result<()> {
    let one = || async {
        let leading = futures::future::join_all(candidates.iter().map(|candidate| candidate.is_leading())).await;
        Ok(leading.contains(&true).then_some(()))
    };
    poll::until(RECOVERY, "a program leads", one).await
}
