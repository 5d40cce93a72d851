use serde_json::{Value, json};

use super::super::api::{ApiServer, DeleteOptions, Kind, Part, Propagation, Shared};
use super::super::chance::Seeded;
use super::*;

mod broken_nodes;
mod jobs;
mod soak;
mod working;

const START: Millis = 1_767_225_600_000;

/// A cluster and its server.
///
/// The tests advance the time.
struct World {
    api: ApiServer,
    cluster: Cluster,
    now: Millis,
    happenings: Vec<Happening>,
}

impl World {
    fn new(seed: u64, nodes: usize) -> Self {
        Self::with(seed, nodes, Settings::QUICK)
    }

    fn with(seed: u64, nodes: usize, settings: Settings) -> Self {
        let mut api = ApiServer::new(seed, START);
        let specs: Vec<_> = ["a", "b", "c", "d", "e"][..nodes].iter().map(|node| MachineSpec::named(node)).collect();
        let cluster = Cluster::new(seed, settings, &specs, &mut api, START);
        Self { api, cluster, now: START, happenings: Vec::new() }
    }

    fn run(&mut self, millis: Millis) {
        let until = self.now + millis;
        while self.now < until {
            self.now += 1;
            if self.cluster.is_due(&self.api, self.now) {
                let happenings = self.cluster.step(&mut self.api, self.now);
                self.happenings.extend(happenings);
            }
        }
    }

    fn create(&mut self, kind: Kind, value: Value) -> Shared {
        let namespace = if kind.facts().namespaced { "default" } else { "" };
        self.api.create(kind, namespace, value, by(self.now, "test")).unwrap()
    }

    fn delete(&mut self, kind: Kind, name: &str, options: &DeleteOptions) {
        let namespace = if kind.facts().namespaced { "default" } else { "" };
        self.api.delete(kind, (namespace, name), options, by(self.now, "test")).unwrap();
    }

    fn inflict(&mut self, fault: Fault) {
        self.cluster.inflict(&fault, &mut self.api, self.now);
    }

    fn pod(&self, name: &str) -> Option<Shared> {
        self.api.get(Kind::Pod, "default", name)
    }

    /// The only running container of a pod.
    fn container(&self, uid: &str) -> String {
        let running: Vec<_> = self.cluster.truth().running().filter(|running| running.pod_uid == uid).collect();
        assert_eq!(running.len(), 1, "{running:?}");
        running[0].container.clone()
    }

    fn machine_of(&self, uid: &str) -> MachineId {
        self.cluster.truth().running().find(|running| running.pod_uid == uid).unwrap().machine
    }
}

fn background() -> DeleteOptions {
    DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() }
}

fn stateful_set(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "serviceName": name, "selector": {"matchLabels": {"app": name}}, "updateStrategy": {"type": "OnDelete"},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"terminationGracePeriodSeconds": 2, "containers": [{"name": "redis"}]}},
    }})
}

fn status<'a>(pod: &'a Shared, pointer: &str) -> &'a Value {
    pod.value["status"].pointer(pointer).unwrap_or(&Value::Null)
}
