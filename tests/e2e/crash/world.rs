//! An environment for replicas that die.
//!
//! It has three Redis servers on this machine as the members of a quorum, one replica that survives, and a lock that
//! must not be affected. The installed operator is scaled down during the test.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::reflector::ObjectRef,
};
use redlock_operator::{
    api::{MEMBER_LABEL, QUORUM_LABEL, RedisQuorum},
    quorum::model::auth::Auth,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    gate::{Gate, Proxy, SUBJECT},
    redis::Server,
    replica::{Reach, Replica},
};
use crate::{
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, status, with},
    operators,
    pods::{container_security, pod_security},
    poll, quorums,
};

/// Prefix of the members' loopback addresses in their pods.
const DIRECT: &str = "127.77.0.";
/// Prefix of the same members' addresses through the gate.
const GATED: &str = "127.78.0.";
const MEMBERS: usize = 3;
const MAX_TTL: Duration = Duration::from_secs(30);
/// A ttl that is shorter than a change of leader.
///
/// It is twice the minimum ttl, because this machine also runs the cluster.
pub(crate) const SHORT: Duration = Duration::from_secs(2);

/// The environment.
pub(crate) struct World {
    pub(crate) bench: Bench,
    pub(crate) servers: Vec<Server>,
    /// A lock that is held all the time.
    pub(crate) steady: Lock,
    survivor: Replica,
    through: watch::Sender<Gate>,
    _proxies: Vec<Proxy>,
}

/// Runs a test in an environment, and starts the installed operator afterwards, even if the test fails.
pub(crate) async fn within(bench: &Bench, what: impl AsyncFnOnce(&World) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let test = async {
        let result = async {
            let world = World::open(bench).await?;
            let result = what(&world).await;
            result.and(world.steady.remove().await)
        };
        let result = result.await;
        // The operator of the next tests must not find this quorum.
        result.and(remove_quorum(bench).await)
    };
    operators::while_stopped(&bench.cluster, test).await
}

async fn remove_quorum(bench: &Bench) -> anyhow::Result<()> {
    let recorder = bench.record::<RedisQuorum>("q").await?;
    bench.delete::<RedisQuorum>("q").await?;
    recorder.until_gone(SOON).await.map(drop)
}

impl World {
    async fn open(bench: &Bench) -> anyhow::Result<Self> {
        let auth = Auth::random();
        let (mut servers, mut proxies) = (Vec::new(), Vec::new());
        let (through, gate) = watch::channel(Gate::open());
        for number in 1..=MEMBERS {
            let direct = format!("{DIRECT}{number}");
            servers.push(Server::start(&direct, &member(number), &bench.namespace, &auth).await?);
            let near = format!("{GATED}{number}:6379");
            proxies.push(Proxy::start(&near, format!("{direct}:6379"), gate.clone()).await?);
        }
        admit(bench, &auth, &servers).await?;
        let survivor = Replica::start("survivor", reach(bench, Gate::open(), str::to_owned)).await?;
        survivor.lead();
        let steady = Lock::take(bench, claim("steady", "steady", Some("q"), SHORT)).await?;
        Ok(Self { bench: bench.clone(), servers, steady, survivor, through, _proxies: proxies })
    }

    /// A replica that leads instead of the survivor, and whose writes are counted.
    pub(crate) async fn victim(&self) -> anyhow::Result<(Replica, Gate)> {
        let (victim, gate) = self.standby().await?;
        self.hand_over_to(&victim).await;
        self.steady.renewed(SOON).await.context("the victim leads")?;
        Ok((victim, gate))
    }

    /// A standby whose requests and watches pass this gate.
    pub(crate) async fn standby(&self) -> anyhow::Result<(Replica, Gate)> {
        let gate = Gate::open();
        self.through.send_replace(gate.clone());
        let place = |address: &str| address.replace(DIRECT, GATED);
        let replica = Replica::start("victim", reach(&self.bench, gate.clone(), place)).await?;
        Ok((replica, gate))
    }

    /// Makes the replica the leader instead of the survivor.
    pub(crate) async fn hand_over_to(&self, replica: &Replica) {
        self.survivor.hand_over();
        replica.lead();
    }

    /// Makes the survivor the leader again.
    pub(crate) fn survivor_leads(&self) {
        self.survivor.lead();
    }

    /// Checks that the steady lock was held all the time.
    pub(crate) fn check_steady(&self) -> anyhow::Result<()> {
        check_never_lost(&self.steady.recorder.versions()).context("the steady lock")
    }

    /// The name of the tested key in Redis.
    pub(crate) fn key(&self) -> String {
        self.bench.key(SUBJECT)
    }

    /// Checks that every member has the value of the holder in the statuses.
    ///
    /// Without a holder there must be no value.
    pub(crate) async fn keys_agree(&self, locks: &[&Lock]) -> anyhow::Result<()> {
        let agreed = async || {
            let named = locks.iter().find_map(|lock| {
                let last = lock.recorder.last().ok().filter(|last| !last.gone)?;
                status(&last.object).holder?.nonce
            });
            for server in &self.servers {
                match (server.get(&self.key()).await?, &named) {
                    (Some(value), Some(nonce)) if value.starts_with(nonce.as_str()) => {}
                    (None, None) => {}
                    _ => return Ok(None),
                }
            }
            Ok(Some(()))
        };
        poll::until(SOON, "the members have what the statuses name on the key", agreed).await
    }

    /// A pod that no kubelet runs.
    pub(crate) async fn pod(&self, name: &str) -> anyhow::Result<()> {
        pod(&self.bench, name, json!({"app": SUBJECT}), "").await.map(drop)
    }

    /// Reports the containers of those pods as terminated, like their kubelet.
    pub(crate) async fn end_pods(&self) -> anyhow::Result<()> {
        let pods = self.bench.api::<Pod>();
        for pod in self.pods().await? {
            let name = pod.name_any();
            let state =
                json!({"terminated": {"exitCode": 0, "reason": "Completed", "containerID": format!("test://{name}")}});
            let container = json!({"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "containerID": format!("test://{name}"), "state": state});
            let ended = json!({"status": {"phase": "Succeeded", "containerStatuses": [container]}});
            pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ended)).await?;
        }
        Ok(())
    }

    pub(crate) async fn delete_pods(&self) -> anyhow::Result<()> {
        for pod in self.pods().await? {
            self.bench.delete::<Pod>(&pod.name_any()).await?;
        }
        Ok(())
    }

    async fn pods(&self) -> anyhow::Result<Vec<Pod>> {
        let selector = ListParams::default().labels(&format!("app={SUBJECT}"));
        Ok(self.bench.api::<Pod>().list(&selector).await?.items)
    }
}

fn member(number: usize) -> String {
    format!("q-{}", number - 1)
}

fn reach(bench: &Bench, gate: Gate, place: fn(&str) -> String) -> Reach {
    let quorum = ObjectRef::new("q").within(&bench.namespace);
    Reach { config: bench.cluster.config.clone(), gate, place, quorum }
}

/// Writes these servers into the status of quorum `q` as admitted members.
async fn admit(bench: &Bench, auth: &Auth, servers: &[Server]) -> anyhow::Result<()> {
    // This is the maximum for the minimum ttl, because this machine also runs a whole cluster.
    let manifest = with(quorums::manifest(bench, "q", MAX_TTL), json!({"nodeTimeout": "100ms"}));
    let mut quorum: RedisQuorum = bench.create(manifest).await?;
    let uid = quorum.metadata.uid.clone();
    let owner = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum", "name": "q", "uid": uid,
        "controller": true});
    let data = serde_json::to_value(auth.data())?;
    bench.create::<Secret>(json!({"metadata": {"name": "q-auth", "ownerReferences": [owner]}, "data": data})).await?;
    let mut members = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        let (name, ip) = (member(index + 1), format!("{DIRECT}{}", index + 1));
        let labels = json!({QUORUM_LABEL: "q", MEMBER_LABEL: name});
        let pod = pod(bench, &format!("{name}-0"), labels, &ip).await?;
        members.push(json!({"name": name, "podName": format!("{name}-0"), "podUID": pod.metadata.uid,
            "address": format!("{ip}:6379"), "state": "Admitted", "runID": server.run_id.as_str(),
            "admittedAt": "2026-01-01T00:00:00.000Z"}));
    }
    quorum.status = Some(serde_json::from_value(json!({"quorum": 2, "ready": "3/3", "membershipEpoch": 1,
        "tokenFloor": 0, "maxTTLInForce": "30s", "members": members}))?);
    bench.api::<RedisQuorum>().replace_status("q", &PostParams::default(), &quorum).await?;
    Ok(())
}

async fn pod(bench: &Bench, name: &str, labels: Value, ip: &str) -> anyhow::Result<Pod> {
    let image = &bench.cluster.member_image;
    let container = json!({"name": "app", "image": image, "securityContext": container_security()});
    let spec = json!({"schedulerName": "nobody", "automountServiceAccountToken": false,
        "securityContext": pod_security(), "containers": [container]});
    let mut pod: Pod = bench.create(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await?;
    let started = "2026-01-01T00:00:00Z";
    let mut running = json!({"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}],
        "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": format!("test://{name}"), "state": {"running": {"startedAt": started}}}]});
    if !ip.is_empty() {
        running["podIP"] = json!(ip);
        running["podIPs"] = json!([{"ip": ip}]);
    }
    pod.status = Some(serde_json::from_value(running)?);
    let pods: Api<Pod> = bench.api();
    Ok(pods.replace_status(name, &PostParams::default(), &pod).await?)
}
