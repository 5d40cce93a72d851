//! Stand-ins of what runs pods: one pod for each StatefulSet, and a Redis server in it.

use std::collections::BTreeMap;

use http::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::kube::api::{Answer, Change, Entry, Kind};
use crate::people::decode;
use crate::redis::Config;
use crate::rng::hash;
use crate::servers::RedisHost;
use crate::time::At;
use crate::world::{Event, World};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The StatefulSet controller looks at a set.
    Set { namespace: String, name: String },
    /// The kubelet starts the container of a pod.
    Start { namespace: String, name: String, uid: String },
    /// The kubelet ends a pod that was deleted.
    End { namespace: String, name: String, uid: String },
}

#[derive(Default)]
pub(crate) struct Cluster {
    seed: u64,
    addresses: u32,
    /// By the UID of a pod: its server, and how often its container has started.
    pub(crate) pods: BTreeMap<String, Running>,
}

pub(crate) struct Running {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) server: usize,
    pub(crate) starts: u64,
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }
}

impl World {
    /// A request from within the control plane, which needs no time.
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
        assert!(status < 400 || status == 409, "{object} -> {answer}");
        status
    }

    fn api_status(&mut self, path: &str, status: &Value) {
        let patch = json!({"status": status});
        self.api_request("PATCH", &format!("{path}/status"), "application/merge-patch+json", &patch);
    }

    pub(crate) fn cluster_begins(&mut self) {
        for number in 0..3 {
            let name = format!("n{number}");
            self.api_create("/api/v1/nodes", &json!({"metadata": {"name": name}, "spec": {}}));
            let info = json!({"machineID": format!("machine-{number}"), "systemUUID": format!("system-{number}"), "bootID": "b",
                "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64"});
            let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
            self.api_status(&format!("/api/v1/nodes/{name}"), &json!({"nodeInfo": info, "conditions": [ready]}));
        }
    }

    pub(crate) fn cluster_saw(&mut self, entry: &Entry) {
        let (namespace, name) = (entry.object.namespace().to_owned(), entry.object.name().to_owned());
        let later = 5_000 + hash(self.cluster.seed, [20, entry.version]) % 40_000;
        match (entry.kind, entry.change) {
            (Kind::StatefulSet, Change::Added | Change::Modified) => {
                self.queue.push(self.now + later, Event::Cluster(Step::Set { namespace, name }));
            }
            (Kind::Pod, Change::Modified) if entry.object.is_deleting() => {
                let uid = entry.object.uid().to_owned();
                self.queue.push(self.now + later, Event::Cluster(Step::End { namespace, name, uid }));
            }
            (Kind::Pod, Change::Deleted) => {
                let set = entry.object.value["metadata"]["ownerReferences"][0]["name"].as_str().map(str::to_owned);
                if let Some(name) = set {
                    self.queue.push(self.now + later, Event::Cluster(Step::Set { namespace, name }));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn cluster_step(&mut self, step: Step) {
        match step {
            Step::Set { namespace, name } => self.look_at_set(&namespace, &name),
            Step::Start { namespace, name, uid } => self.start_container(&namespace, &name, &uid),
            Step::End { namespace, name, uid } => self.end_pod(&namespace, &name, &uid),
        }
    }

    fn look_at_set(&mut self, namespace: &str, name: &str) {
        let Some(set) = self.api.server.get(Kind::StatefulSet, namespace, name) else { return };
        let template = &set.value["spec"]["template"];
        let revision = format!("{:08x}", hash(0, template.to_string().bytes().map(u64::from)) >> 32);
        let pod_name = format!("{name}-0");
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}");
        let pod = self.api.server.get(Kind::Pod, namespace, &pod_name);
        let current = pod.as_ref().and_then(|pod| pod.label("controller-revision-hash").map(str::to_owned));
        let status = json!({"observedGeneration": set.value["metadata"]["generation"], "replicas": 1,
            "updateRevision": revision, "currentRevision": current.unwrap_or_else(|| revision.clone())});
        if (0..)
            .zip(["observedGeneration", "updateRevision", "currentRevision"])
            .any(|(_, field): (u8, _)| set.value["status"][field] != status[field])
        {
            self.api_status(&path, &status);
        }
        if pod.is_some() || set.is_deleting() || set.value["spec"]["replicas"] == json!(0) {
            return;
        }
        let mut labels = template["metadata"]["labels"].clone();
        labels["controller-revision-hash"] = json!(revision);
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": set.uid(),
            "controller": true, "blockOwnerDeletion": true});
        let mut spec = template["spec"].clone();
        let node = hash(0, name.bytes().map(u64::from)) % 3;
        spec["nodeName"] = json!(format!("n{node}"));
        let made = json!({"metadata": {"name": pod_name, "labels": labels, "ownerReferences": [owner],
            "annotations": template["metadata"]["annotations"]}, "spec": spec});
        self.api_create(&format!("/api/v1/namespaces/{namespace}/pods"), &made);
        let Some(pod) = self.api.server.get(Kind::Pod, namespace, &pod_name) else { return };
        let start = Step::Start { namespace: namespace.to_owned(), name: pod_name, uid: pod.uid().to_owned() };
        let later = 50_000 + hash(self.cluster.seed, [21, self.now.0]) % 500_000;
        self.queue.push(self.now + later, Event::Cluster(start));
    }

    /// What Redis starts with: the ACL file that the pod mounts.
    fn config_of(&self, namespace: &str, pod: &Value) -> Option<Config> {
        let volumes = pod["spec"]["volumes"].as_array()?;
        let config = volumes.iter().find(|volume| volume["name"] == "config")?;
        let secret = self.api.server.get(Kind::Secret, namespace, config["secret"]["secretName"].as_str()?)?;
        let items = config["secret"]["items"].as_array()?;
        let key = items.iter().find(|item| item["path"] == "users.acl")?["key"].as_str()?;
        let acl = decode(secret.value["data"][key].as_str()?);
        Some(Config { acl: Some(acl), port: 6379, seed: hash(self.seed, [22, self.now.0]) })
    }

    fn start_container(&mut self, namespace: &str, name: &str, uid: &str) {
        let Some(pod) = self.api.server.get(Kind::Pod, namespace, name).filter(|pod| pod.uid() == uid) else { return };
        let Some(config) = self.config_of(namespace, &pod.value) else { return };
        match self.cluster.pods.get_mut(uid) {
            Some(running) => {
                running.starts += 1;
                let server = running.server;
                self.restart_server(server, config);
            }
            None => {
                self.cluster.addresses += 1;
                let host = format!("10.0.0.{}", self.cluster.addresses);
                let member = name.trim_end_matches("-0").rsplit('-').next().and_then(|n| n.parse::<usize>().ok());
                let machine = self.plan.servers[member.unwrap_or(0) % self.plan.servers.len()];
                let made = RedisHost::new(name, &host, config, self.now, machine.wrong * 1_000, machine.drift);
                self.servers.all.push(made);
                let server = self.servers.all.len() - 1;
                let running = Running { namespace: namespace.to_owned(), name: name.to_owned(), server, starts: 0 };
                self.cluster.pods.insert(uid.to_owned(), running);
            }
        }
        self.note(format_args!("container of {name} starts"));
        self.report(uid);
    }

    /// The kubelet reports.
    pub(crate) fn report(&mut self, uid: &str) {
        let Some(running) = self.cluster.pods.get(uid) else { return };
        let server = &self.servers.all[running.server];
        let time = |at: At| {
            let second = at.unix_millis().div_euclid(1_000);
            k8s_openapi::jiff::Timestamp::from_second(second).expect("a time").to_string()
        };
        let id = |start: u64| format!("containerd://{uid}-{start}");
        let up = server.is_up();
        let state = if up {
            json!({"running": {"startedAt": time(self.now)}, "terminated": null})
        } else {
            json!({"running": null, "terminated": {"exitCode": 137, "reason": "Error", "containerID": id(running.starts),
                "startedAt": time(self.now), "finishedAt": time(self.now)}})
        };
        let mut status = json!({"name": "redis", "image": "redis", "imageID": "", "ready": up, "started": up,
            "restartCount": running.starts, "containerID": id(running.starts), "state": state});
        if running.starts > 0 {
            status["lastState"] = json!({"terminated": {"exitCode": 137, "reason": "Error", "containerID": id(running.starts - 1),
                "startedAt": time(self.now), "finishedAt": time(self.now)}});
        }
        let ready =
            json!({"type": "Ready", "status": if up { "True" } else { "False" }, "lastTransitionTime": time(self.now)});
        let report = json!({"phase": "Running", "podIP": server.host, "hostIP": "10.1.0.1", "conditions": [ready],
            "containerStatuses": [status]});
        let path = format!("/api/v1/namespaces/{}/pods/{}", running.namespace, running.name);
        self.api_status(&path, &report);
    }

    fn end_pod(&mut self, namespace: &str, name: &str, uid: &str) {
        if let Some(running) = self.cluster.pods.remove(uid) {
            self.kill_server(running.server);
            // Its address is given to nobody else.
            self.servers.all[running.server].host.push_str(" (gone)");
        }
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        self.api_request("DELETE", &path, "application/json", &options);
        self.note(format_args!("pod {name} is gone"));
    }

    /// The process of a member dies; its container starts again after a while.
    pub(crate) fn crash_member(&mut self, member: usize, away: u64) {
        let Some((uid, running)) =
            self.cluster.pods.iter().find(|(_, running)| running.name == format!("q-{member}-0"))
        else {
            return;
        };
        let (uid, server, namespace, name) =
            (uid.clone(), running.server, running.namespace.clone(), running.name.clone());
        self.kill_server(server);
        self.report(&uid);
        self.queue.push(self.now + away, Event::Cluster(Step::Start { namespace, name, uid }));
    }

    /// The address of a name: the Service of a member is called like its StatefulSet.
    pub(crate) fn resolve(&self, host: &str) -> String {
        let pod = format!("{}-0", host.split('.').next().unwrap_or_default());
        let running = self.cluster.pods.values().find(|running| running.name == pod);
        running.map_or_else(|| host.to_owned(), |running| self.servers.all[running.server].host.clone())
    }

    pub(crate) fn server_of(&self, member: usize) -> Option<usize> {
        let name = format!("q-{member}-0");
        self.cluster.pods.values().find(|running| running.name == name).map(|running| running.server)
    }
}
