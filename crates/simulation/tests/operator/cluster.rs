//! Connects the simulated cluster with the world.
//!
//! Containers of members become Redis servers, and disconnected machines are cut from the network.

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use hyper::body::Bytes;
use redlock_api::JOB_TOKEN_ANNOTATION;
use serde_json::{Value, json};

use crate::plan::Plan;
use crate::rng::hash;
use crate::servers::RedisHost;
use crate::time::At;
use crate::users::SHOP;
use crate::world::World;
use redlock_simulation::kube::Millis;
use redlock_simulation::kube::api::{Answer, ApiServer, Change, Entry, Kind, Shared};
use redlock_simulation::kube::cluster::truth::{Happening, Running};
use redlock_simulation::kube::cluster::{Cluster, Fault, MachineSpec, Settings};
use redlock_simulation::kube::users::{Deed, Surroundings, Users};
use redlock_simulation::redis::Config;

/// The interval between two checks of the users, in microseconds.
const USERS_POLL: u64 = 100_000;

/// Another namespace, whose locks use the same keys.
const ANNEX: &str = "annex";

/// A hold of a Job: the Job's UID, and the token.
pub(crate) type JobHold = (String, i64);

/// Reads the annotation that the operator puts on the template of a Job.
fn made_under(pod: &Shared, owners: &[String]) -> Option<JobHold> {
    let token = pod.annotation(JOB_TOKEN_ANNOTATION)?.parse().ok()?;
    Some((owners.first()?.clone(), token))
}

/// Machines, their workloads, and the users.
pub(crate) struct ClusterSide {
    pub(crate) cluster: Cluster,
    users: Users,
    looked: At,
    /// The server of each container that runs Redis.
    servers: BTreeMap<String, usize>,
    /// Hosts on disconnected machines.
    unreachable: BTreeSet<String>,
    /// Owners of each pod that ever existed, by UIDs.
    pub(crate) owners: BTreeMap<String, Vec<String>>,
    /// The hold under which each pod of a Job was created, by the pod's UID.
    made_under: BTreeMap<String, JobHold>,
}

/// The keys of locks.
///
/// A key that outside clients use begins with a prefix and a slash.
pub(crate) fn keys(plan: &Plan) -> Vec<String> {
    (0..plan.keys).map(|number| format!("x/k{number}")).collect()
}

impl ClusterSide {
    pub(crate) fn new(seed: u64, plan: &Plan, api: &mut ApiServer, now: i64) -> Self {
        let mut specs: Vec<MachineSpec> = ["a", "b", "c", "d"].map(MachineSpec::named).to_vec();
        if plan.provider {
            specs.iter_mut().for_each(|spec| spec.provider_id = Some(format!("cloud:///{}", spec.node)));
        }
        let settings = if plan.long { Settings::USUAL } else { Settings::QUICK };
        let settings = Settings { suspends_jobs: plan.jobs, ..settings };
        let cluster = Cluster::new(seed, settings, &specs, api, now);
        let namespaces = if plan.annex { &[SHOP, ANNEX][..] } else { &[SHOP] };
        let quorums = if plan.second { &["q", "r"][..] } else { &["q"] };
        let around = Surroundings {
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            quorums: quorums.iter().map(|name| (SHOP.to_owned(), (*name).to_owned())).collect(),
            habits: plan.habits,
            keys: keys(plan),
            max_ttl: plan.max_ttl,
            members: plan.members as u64,
            masters: plan.masters,
            spare_masters: plan.pool() - plan.masters,
            locks: plan.keys * plan.claims + 8,
        };
        let users = Users::new(around);
        Self {
            cluster,
            users,
            looked: At::default(),
            servers: BTreeMap::new(),
            unreachable: BTreeSet::new(),
            owners: BTreeMap::new(),
            made_under: BTreeMap::new(),
        }
    }

    /// Whether a container of one of these owners runs.
    ///
    /// An owner is a pod or a Job.
    pub(crate) fn runs_for(&self, owners: &[String]) -> bool {
        self.running_for(owners).next().is_some()
    }

    /// Whether a container of these owners runs that can have held a claim deleted at this time.
    ///
    /// A container that has started since then holds nothing.
    pub(crate) fn holds_for(&self, owners: &[String], deleted: Millis) -> bool {
        self.running_for(owners).any(|running| !running.restarted || running.since <= deleted)
    }

    fn running_for(&self, owners: &[String]) -> impl Iterator<Item = &Running> {
        self.cluster.truth().running().filter(|running| {
            let of_job = self.owners.get(&running.pod_uid).into_iter().flatten().any(|owner| owners.contains(owner));
            of_job || owners.contains(&running.pod_uid)
        })
    }
}

impl ClusterSide {
    /// Whether a container runs in a pod that was created under this hold.
    pub(crate) fn runs_under(&self, hold: &JobHold) -> bool {
        self.cluster.truth().running().any(|running| self.made_under.get(&running.pod_uid) == Some(hold))
    }

    /// The hold under which a pod was created.
    pub(crate) fn hold_of(&self, pod_uid: &str) -> Option<&JobHold> {
        self.made_under.get(pod_uid)
    }
}

impl World {
    /// Handles a request from within the control plane.
    ///
    /// The request takes no time.
    pub(crate) fn api_request(&mut self, method: &str, path: &str, content: &str, body: &Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.header("user-agent", "simulation").body(Bytes::from(text)).expect("a request");
        let clock = self.api.clock(self.now);
        let Answer::Unary(response) = self.api.server.handle(&request, clock) else { return (200, Value::Null) };
        self.api_changed();
        let value = serde_json::from_slice(response.body()).unwrap_or_default();
        (response.status().as_u16(), value)
    }

    pub(crate) fn api_create(&mut self, path: &str, object: &Value) -> u16 {
        let (status, answer) = self.api_request("POST", path, "application/json", object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.note(format_args!("create {name} -> {status}"));
        assert!(status < 500, "{object} -> {answer}");
        status
    }

    /// Creates workloads, the default quorum, and its outside clients.
    pub(crate) fn cluster_begins(&mut self) {
        let clock = self.api.clock(self.now);
        let number = hash(self.seed, [30]);
        let users = &mut self.cluster.users;
        users.furnish(number, &mut self.api.server, clock);
        let quorum = self.api.server.get(Kind::RedisQuorum, SHOP, "q").expect("the quorum");
        let verbatim = quorum.value["spec"]["keys"] == "Verbatim";
        let prefix = if verbatim { "x/".to_owned() } else { format!("{SHOP}/") };
        let keys = self.users.keys.iter().map(|key| if verbatim { key.clone() } else { format!("{SHOP}/{key}") });
        self.users.redis_keys = keys.collect();
        if self.plan.masters > 0 {
            // The operator cannot make users on external masters, so there are no clients outside.
            return self.masters_begin();
        }
        let patch = json!({"spec": {"clients": [{"name": "outside", "namespace": SHOP, "keyPrefix": prefix}]}});
        let path = format!("/apis/redlock-operator.io/v1alpha1/namespaces/{SHOP}/redisquorums/q");
        let (status, answer) = self.api_request("PATCH", &path, "application/merge-patch+json", &patch);
        assert!(status < 400, "{answer}");
    }

    /// Runs the due tasks of the cluster.
    pub(crate) fn cluster_step(&mut self) {
        let clock = self.api.clock(self.now);
        let ClusterSide { cluster, users, looked, .. } = &mut self.cluster;
        if self.now.0 >= looked.0 + USERS_POLL {
            *looked = self.now;
            users.tick(&mut self.api.server, clock);
            if self.users.resting {
                users.confirm(&mut self.api.server, cluster, true, clock);
                users.replace_lost(&mut self.api.server, clock);
            }
            self.by_hand();
            self.check_members();
            self.check_replicas();
            self.check_locks();
        }
        let ClusterSide { cluster, .. } = &mut self.cluster;
        if cluster.is_due(&self.api.server, clock) {
            let happenings = cluster.step(&mut self.api.server, clock);
            self.api_changed();
            happenings.into_iter().for_each(|happening| self.happened(happening));
        }
    }

    /// Restores the connections to an address that another member has taken over from an outsider.
    fn mend_taken_address(&mut self, running: &Running) {
        let is_outsider = running.pod.strip_suffix("-0").is_some_and(|member| self.outsiders.contains(member));
        if self.outsiders.is_empty() || is_outsider {
            return;
        }
        for process in 0..self.processes.len() {
            self.mend(&(process, running.ip.clone()));
        }
    }

    fn happened(&mut self, happening: Happening) {
        match happening {
            Happening::Started { running, files, .. } => {
                let Running { pod, container, ip, .. } = &running;
                self.note(format_args!("container {container} of {pod} runs at {ip}"));
                self.judge_start(&running.pod_uid);
                if let Some(acl) = files.get(&("config".to_owned(), "users.acl".to_owned())) {
                    let acl = String::from_utf8_lossy(acl).into_owned();
                    self.redis_started(&running, acl);
                    self.mend_taken_address(&running);
                }
            }
            Happening::Ended(running) => {
                self.note(format_args!("container {} of {} has ended", running.container, running.pod));
                if let Some(server) = self.cluster.servers.remove(&running.container) {
                    let silently = !self.cluster.cluster.machine_state(running.machine).0;
                    self.end_server(server, silently);
                }
            }
        }
    }

    fn redis_started(&mut self, running: &Running, acl: String) {
        let member = running.pod.trim_end_matches("-0").rsplit('-').next().and_then(|text| text.parse::<usize>().ok());
        let clocks = self.plan.servers[member.unwrap_or(0) % self.plan.servers.len()];
        let seed = hash(self.seed, [22, self.servers.all.len() as u64]);
        let config = Config { acl: Some(acl), port: 6379, seed };
        let host = RedisHost::new(&running.pod, &running.ip, config, self.now, clocks.wrong * 1_000, clocks.drift);
        self.servers.all.push(host);
        self.cluster.servers.insert(running.container.clone(), self.servers.all.len() - 1);
    }

    /// Applies a fault of the cluster, or a repair.
    pub(crate) fn inflict(&mut self, fault: &Fault) {
        let clock = self.api.clock(self.now);
        self.cluster.cluster.inflict(fault, &mut self.api.server, clock);
        self.api_changed();
        self.reach_machines();
    }

    /// Cuts the connections to disconnected machines, and restores the rest.
    pub(crate) fn reach_machines(&mut self) {
        let truth = self.cluster.cluster.truth();
        let cut = truth.running().filter(|running| truth.is_cut(running.machine)).map(|running| running.ip.clone());
        let cut: BTreeSet<String> = cut.collect();
        let before = std::mem::replace(&mut self.cluster.unreachable, cut.clone());
        for process in 0..self.processes.len() {
            for host in cut.difference(&before) {
                self.cut(&(process, host.clone()), true, true);
            }
            for host in before.difference(&cut) {
                self.mend(&(process, host.clone()));
            }
        }
    }

    /// Carries out an action of a user.
    pub(crate) fn deed(&mut self, deed: Deed) {
        let clock = self.api.clock(self.now);
        let words = self.cluster.users.act(deed, &mut self.api.server, clock);
        if let Some(words) = words {
            self.note(format_args!("{words}"));
        }
        self.by_hand();
    }

    /// Records the latest writes as those of users.
    fn by_hand(&mut self) {
        self.oracle.by_hand = true;
        self.api_changed();
        self.oracle.by_hand = false;
    }

    pub(crate) fn cluster_heals(&mut self) {
        let clock = self.api.clock(self.now);
        self.cluster.cluster.heal_all(&mut self.api.server, clock);
        self.api_changed();
        self.reach_machines();
    }

    pub(crate) fn observe_cluster(&mut self, entry: &Entry) {
        if entry.kind == Kind::Pod && entry.change == Change::Added {
            let owners = entry.object.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let owners: Vec<String> = owners.filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect();
            if let Some(hold) = made_under(&entry.object, &owners) {
                self.cluster.made_under.insert(entry.object.uid().to_owned(), hold);
            }
            self.cluster.owners.insert(entry.object.uid().to_owned(), owners);
        }
    }

    /// The container of a member.
    pub(crate) fn container_of(&self, member: usize) -> Option<String> {
        let server = self.server_of(member)?;
        self.cluster.servers.iter().find(|(_, of)| **of == server).map(|(container, _)| container.clone())
    }

    /// The address of a host name.
    ///
    /// The Service of a member has the name of its StatefulSet.
    pub(crate) fn resolve(&self, host: &str) -> String {
        let pod = format!("{}-0", host.split('.').next().unwrap_or_default());
        let server =
            self.cluster.servers.values().map(|server| &self.servers.all[*server]).find(|server| server.name == pod);
        server.map_or_else(|| host.to_owned(), |server| server.host.clone())
    }

    pub(crate) fn server_of(&self, member: usize) -> Option<usize> {
        if let Some(number) = self.master_of(member) {
            return self.server_of_master(number);
        }
        let name = format!("q-{member}-0");
        self.cluster.servers.values().copied().filter(|server| self.servers.all[*server].name == name).max()
    }
}
