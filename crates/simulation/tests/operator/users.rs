//! Users: they create the quorum, and create and delete locks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redlock_api::GoDuration;
use serde_json::{Value, json};

use crate::contender::{self, Habits, Urls};
use crate::plan::Plan;
use crate::process::Process;
use crate::replica;
use crate::rng::Rng;
use crate::time::{At, MachineClock};
use crate::world::{Event, World};
use redlock_simulation::kube::api::{Change, Entry, Kind};

/// The namespace of the quorum and the locks.
pub(crate) const SHOP: &str = "shop";

/// Users act as many times more rarely in a run of hours.
const HOURS: u64 = 200;

/// The state of the users.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Claim { name: String },
    Delete { name: String },
}

pub(crate) struct Users {
    rng: Rng,
    pub(crate) keys: Vec<String>,
    /// The names of the same keys in Redis.
    pub(crate) redis_keys: Vec<String>,
    urls: Urls,
    /// The smallest `maxTTL` of the quorum, in milliseconds. Clients outside the operator must know it.
    max_ttl: Arc<AtomicU64>,
    retired: Arc<AtomicBool>,
    /// The number of names of claims on each key, which users reuse.
    claims: usize,
    /// Whether users no longer act.
    pub(crate) resting: bool,
}

impl Users {
    pub(crate) fn new(seed: u64, plan: &Plan) -> Self {
        let keys = crate::cluster::keys(plan);
        Self {
            rng: Rng::of(seed, "people"),
            keys,
            redis_keys: Vec::new(),
            urls: Arc::new(Mutex::new(Vec::new())),
            max_ttl: Arc::new(AtomicU64::new(u64::MAX)),
            retired: Arc::default(),
            claims: plan.claims,
            resting: false,
        }
    }
}

impl World {
    /// Creates the cluster, the quorum, the operator, the contenders and the first locks.
    pub(crate) fn begin(&mut self) {
        self.api_create("/api/v1/namespaces", &json!({"metadata": {"name": replica::NAMESPACE}}));
        self.cluster_begins();
        let plan = self.plan.clone();
        for (number, machine) in plan.replicas.iter().enumerate() {
            let name = format!("r{number}");
            let main = replica::program(&plan);
            self.add_process(&name, machine.wrong, machine.drift, main);
        }
        let keys = self.users.redis_keys.clone();
        for (number, machine) in plan.contenders.iter().enumerate() {
            let Users { urls, max_ttl, retired, .. } = &self.users;
            let (urls, max_ttl, retired) = (urls.clone(), max_ttl.clone(), retired.clone());
            let habits = Habits { keys: keys.clone(), urls, max_ttl, seed: self.seed, retired };
            let name = format!("c{number}");
            let main = contender::program(&name, habits);
            self.add_process(&name, machine.wrong, machine.drift, main);
        }
        for number in 0..self.users.keys.len() * self.users.claims {
            let at = At(self.users.rng.below(3_000_000));
            self.queue.push(at, Event::Users(Step::Claim { name: format!("l{number}") }));
        }
    }

    fn add_process(&mut self, name: &str, wrong: i64, drift: i64, main: crate::process::Main) {
        let number = self.processes.len();
        let clock = MachineClock::new(self.now, wrong * 1_000);
        let mut process = Process::new(number, name, clock, drift, main);
        process.renames = self.plan.renames && number < self.plan.replicas.len();
        self.processes.push(process);
        let at = At(self.users.rng.below(400_000));
        self.queue.push(at, Event::Start { process: number });
    }

    pub(crate) fn users_step(&mut self, step: Step) {
        let locks = format!("/apis/redlock-operator.io/v1alpha1/namespaces/{SHOP}/distributedlocks");
        if self.users.resting {
            return;
        }
        match step {
            Step::Claim { name } => {
                let number: usize = name[1..].parse().expect("a number");
                let key = self.users.keys[number % self.users.keys.len()].clone();
                let ttl = self.users.rng.between(1_000, self.plan.max_ttl.min(6_000));
                let share = if self.plan.second { 30 } else { 100 };
                let mut lock = json!({
                    "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": name},
                    "spec": {"quorumRef": {"name": "q"}, "key": key, "ttl": format!("{ttl}ms"),
                        "retry": {"delay": "100ms", "jitter": "50ms"}, "claim": {"identity": name}},
                });
                if !self.users.rng.percent(share) {
                    lock["spec"].as_object_mut().map(|spec| spec.remove("quorumRef"));
                }
                let status = self.api_create(&locks, &lock);
                let again = if status == 201 { self.users.rng.between(1_000_000, 15_000_000) } else { 500_000 };
                let again = again * if self.plan.hours { HOURS } else { 1 };
                let next = if status == 201 { Step::Delete { name } } else { Step::Claim { name } };
                self.queue.push(self.now + again, Event::Users(next));
            }
            Step::Delete { name } => {
                if self.api.server.get(Kind::DistributedLock, SHOP, &name).is_some() {
                    self.oracle.counts.released += 1;
                    self.api_request("DELETE", &format!("{locks}/{name}"), "application/json", &Value::Null);
                }
                let again = self.users.rng.between(10_000, 2_000_000);
                let again = again * if self.plan.hours { HOURS } else { 1 };
                self.queue.push(self.now + again, Event::Users(Step::Claim { name }));
            }
        }
    }

    /// Stops the actions of users, so that everything can settle.
    pub(crate) fn users_rest(&mut self) {
        self.users.resting = true;
        self.users.retired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn observe_users(&mut self, entry: &Entry) {
        if entry.kind == Kind::Secret && entry.object.name() == "q-client-outside" && entry.change != Change::Deleted {
            let text = entry.object.value["data"]["urls"].as_str().unwrap_or_default();
            let text = decode(text);
            *self.users.urls.lock().unwrap() = text.split_whitespace().map(str::to_owned).collect();
        }
        if entry.kind == Kind::RedisQuorum
            && entry.object.name() == "q"
            && let Ok(max_ttl) = serde_json::from_value::<GoDuration>(entry.object.value["spec"]["maxTTL"].clone())
        {
            let max_ttl = u64::try_from(max_ttl.get().as_millis()).unwrap_or(u64::MAX);
            self.users.max_ttl.fetch_min(max_ttl, Ordering::Relaxed);
        }
    }
}

/// Decodes the value of a Secret.
pub(crate) fn decode(base64: &str) -> String {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(json!(base64)).unwrap_or_default();
    String::from_utf8_lossy(&bytes.0).into_owned()
}
