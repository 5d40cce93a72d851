//! The caches of the operator. Each reader gives the same answer for a whole object and for its cached part.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Operator;
use super::args::OperatorArgs;
use crate::api::{Election, MEMBER_LABEL};
use crate::evidence;
use crate::job::model as jobs;
use crate::lock::model::instance::{self, PodEvidence};
use crate::lock::model::{candidate, job, nodes, verdict};
use crate::quorum::model::facts;
use crate::redis_member::{Connect as _, Machine, Outward};
use crate::runtime::cache::{Guarded, Kind};
use crate::runtime::fake_api;
use crate::tests::arguments;
use crate::time::{Clock, Monotonic, SystemClock, TokioClock, UnixMillis};

const NOW: UnixMillis = UnixMillis(1_767_225_660_000); // 2026-01-01T00:01:00Z

#[tokio::test]
async fn metrics_have_the_watch_of_each_kind() {
    let args: OperatorArgs = arguments(&["--pod-name", "a", "--jobs", "true"]);
    let api = || fake_api::client(|_request| (404, json!({})));
    let machine = Machine { clock: Arc::new(SystemClock), network: Arc::new(Outward::but(Vec::new())) };
    let text = Operator::new(args, api(), api(), machine).context.metrics_text(false);
    for kind in ["DistributedLock", "RedisQuorum", "Pod", "Node", "Namespace", "Job"] {
        assert!(text.contains(&format!("redlock_watch_errors_total{{kind=\"{kind}\"}}")), "{kind}: {text}");
    }
}

/// An API server whose Lease names another replica. Each read finds a renewal, if that replica lives.
fn leases(lives: bool) -> Client {
    let reads = AtomicU32::new(0);
    fake_api::client(move |_request| {
        let second = if lives { reads.fetch_add(1, Ordering::Relaxed) % 60 } else { 0 };
        (
            200,
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "redlock-operator"},
            "spec": {"holderIdentity": "b", "renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")}}),
        )
    })
}

#[tokio::test(start_paused = true)]
async fn a_stopping_replica_trusts_no_lease_of_a_dead_leader() {
    let args = arguments(&["--pod-name", "a"]);
    for (lives, seconds) in [(true, 0), (false, 25)] {
        let clock = TokioClock::new();
        let begun = clock.boottime();
        super::await_successor(&leases(lives), &args).await;
        assert_eq!(clock.boottime().since(begun).as_secs(), seconds, "lives: {lives}");
    }
}

#[tokio::test]
async fn no_external_master_is_the_operator_or_the_api_server() {
    let args = arguments(&["--pod-name", "a", "--pod-ips", "10.0.0.7,fd00::7"]);
    for address in ["10.0.0.7:8080", "[fd00::7]:8080", "10.96.0.1:443"] {
        let outward = super::outward(&args, Some("10.96.0.1"));
        let Err(refused) = outward.connect(address).await else { panic!("{address}") };
        assert!(refused.to_string().contains("the operator refuses"), "{refused}");
    }
}

/// A whole object, and the part of it that a cache keeps.
///
/// The part must be smaller, because otherwise the test would prove nothing.
fn whole_and_kept<K: Kind + DeserializeOwned + serde::Serialize>(object: &Value) -> [K; 2] {
    let whole: K = serde_json::from_value(object.clone()).unwrap();
    let kept = serde_json::from_value::<Guarded<K>>(object.clone()).unwrap().object().unwrap();
    assert!(json!(kept).to_string().len() < json!(whole).to_string().len());
    [whole, kept]
}

fn assert_same<K: Kind + DeserializeOwned + serde::Serialize>(object: &Value, answers: impl Fn(&K) -> Vec<String>) {
    let [whole, kept] = whole_and_kept::<K>(object);
    let (of_whole, of_kept) = (answers(&whole), answers(&kept));
    for (number, (whole, kept)) in of_whole.iter().zip(&of_kept).enumerate() {
        assert_eq!(whole, kept, "answer {number} from {object}");
    }
}

fn answers<const N: usize>(answers: [&dyn std::fmt::Debug; N]) -> Vec<String> {
    answers.map(|answer| format!("{answer:?}")).to_vec()
}

/// A ready pod of a Job, with more fields than the operator reads.
fn pod(labels: &Value, state: Value, last: Value) -> Value {
    let containers = ["app", "redis"].map(|name| {
        json!({"name": name, "image": "i", "imageID": "i", "ready": true, "restartCount": 1, "containerID": "c2",
            "state": state, "lastState": last})
    });
    json!({
        "metadata": {"name": "p-3", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}],
            "annotations": {"redlock-operator.io/token": "7", "redlock-operator.io/priority": "3", "note": "x",
                "controller.kubernetes.io/pod-deletion-cost": "5", "kubectl.kubernetes.io/default-container": "app"}},
        "spec": {"nodeName": "n", "restartPolicy": "Never", "serviceAccountName": "s", "initContainers": [
                {"name": "side", "restartPolicy": "Always", "image": "i", "env": [{"name": "A", "value": "1"}]}],
            "containers": [{"name": "app", "image": "i", "ports": [{"containerPort": 80}]}, {"name": "redis", "image": "i"}],
            "volumes": [{"name": "tls", "secret": {"secretName": "t", "defaultMode": 420}}, {"name": "config",
                "secret": {"secretName": "s", "items": [{"key": "acl-1", "path": "users.acl"}]}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "hostIP": "10.0.0.1", "qosClass": "BestEffort",
            "startTime": "2026-01-01T00:00:00Z", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z", "message": "m"},
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}],
            "initContainerStatuses": [{"name": "side", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                "containerID": "s1", "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}],
            "containerStatuses": containers}
    })
}

#[test]
fn a_pruned_pod_gives_the_same_evidence_and_candidates() {
    let running = || json!({"running": {"startedAt": "2026-01-01T00:00:01Z"}});
    let ended = |id: &str, reason: &str| {
        json!({"terminated": {"exitCode": 137, "containerID": id, "reason": reason, "signal": 9, "message": "m",
            "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:03Z"}})
    };
    let waiting = || json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
    let states = [
        (running(), ended("c1", "Error")),
        (ended("c2", "ContainerStatusUnknown"), json!({})),
        (ended("c2", "Completed"), ended("c1", "Error")),
        (waiting(), json!({})),
    ];
    let labels = [
        json!({"app": "a", "batch.kubernetes.io/controller-uid": "job", "batch.kubernetes.io/job-name": "j"}),
        json!({"app": "a", MEMBER_LABEL: "q-0"}),
    ];
    let election: Election = serde_json::from_value(json!({"selector": {"matchLabels": {"app": "a"}}})).unwrap();
    for labels in labels {
        for (state, last) in states.clone() {
            let is_member = labels.get(MEMBER_LABEL).is_some();
            assert_same::<Pod>(&pod(&labels, state, last), |pod| {
                let evidence = PodEvidence { pod: Some(pod), ..PodEvidence::default() };
                let owner = &pod.metadata.owner_references.as_ref().unwrap()[0];
                let elected = candidate::of_election(&election, &[Arc::new(pod.clone())], &[]);
                let last = pod.last_state();
                let mut said = answers([
                    &["c1", "c2", "s1"].map(|id| evidence::container_state(pod, id)),
                    &(evidence::has_ended(pod), evidence::has_ended_without_proof(pod)),
                    &last.as_ref().map(|last| ["c1", "c2"].map(|id| evidence::container_state(last, id))),
                    &instance::judge(Some("c2"), evidence, NOW),
                    &instance::judge_pod(evidence, NOW),
                    &verdict::belongs_to(pod, owner),
                    &candidate::bound(pod, None),
                    &candidate::bound(pod, Some("side")),
                    &candidate::electable(pod, Some("app")),
                    &elected,
                    &facts::pod_ip(pod),
                    &facts::node_name(pod),
                    &pod.keys(),
                ]);
                if is_member {
                    said.extend(answers([
                        &facts::running_container(pod),
                        &evidence::obstacle::obstacle(pod),
                        &facts::uses_tls(pod),
                        &facts::acl_key(pod),
                    ]));
                }
                said
            });
        }
    }
}

#[test]
fn a_pruned_node_gives_the_same_facts_about_its_machine() {
    for (ready, provider) in [("True", json!("aws:///i-1")), ("Unknown", json!(null)), ("False", json!(""))] {
        let node = json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"x": "y"}},
            "spec": {"providerID": provider, "podCIDR": "10.0.0.0/24", "unschedulable": true, "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:05Z"},
                {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
            "status": {"images": [{"names": ["a"], "sizeBytes": 7}], "capacity": {"cpu": "4"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "nodeInfo": {"machineID": "m",
                    "systemUUID": "s", "bootID": "b", "kernelVersion": "k", "osImage": "o", "architecture": "a",
                    "containerRuntimeVersion": "c", "kubeProxyVersion": "p", "kubeletVersion": "v", "operatingSystem": "linux"},
                "conditions": [{"type": "Ready", "status": ready, "reason": "r", "message": "m",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:01Z"}]}
        });
        assert_same::<Node>(&node, |node| {
            let seen = |then: &dyn Fn(&mut facts::Nodes)| {
                let mut nodes = facts::Nodes::default();
                nodes.observe(node, Monotonic::default());
                then(&mut nodes);
                (nodes.facts("n"), nodes.identity("n"), nodes.transition("n").map(str::to_owned))
            };
            answers([
                &(nodes::is_cordoned(node), nodes::cordoned_at(node)),
                &nodes::is_unreachable("n", &[Arc::new(node.clone())]),
                &facts::ready_transition(node),
                &seen(&|_| ()),
                &seen(&|nodes| {
                    nodes.deleted(node);
                }),
            ])
        });
    }
}

#[test]
fn a_pruned_job_is_started_and_stopped_in_the_same_way() {
    for (suspend, conditions) in [(true, json!([{"type": "Suspended", "status": "True"}])), (false, json!([]))] {
        let job = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "job", "labels": {"kueue.x-k8s.io/queue-name": "q"},
                "annotations": {"redlock-operator.io/lock": "k", "redlock-operator.io/lock-ttl": "20s",
                    "redlock-operator.io/stopping": "7", "note": "x"}},
            "spec": {"suspend": suspend, "parallelism": 2, "completions": 4, "backoffLimit": 3, "manualSelector": false,
                "selector": {"matchLabels": {"a": "b"}}, "template": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"redlock-operator.io/token": "7", "x": "y"}},
                    "spec": {"terminationGracePeriodSeconds": 5, "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "i"}]}}},
            "status": {"active": 1, "succeeded": 2, "failed": 1, "ready": 1, "terminating": 1,
                "uncountedTerminatedPods": {"succeeded": ["a"]}, "conditions": conditions}
        });
        assert_same::<Job>(&job, |job| {
            let pods = || job::pods([(Some(7), instance::Instance::Running)], 7);
            answers([
                &job::requested_lock(job),
                &job::check_startable(job, "j"),
                &job::fit(Some(job), "j", Some("job"), false),
                &(job::is_finished(job), job::is_suspended(job), job::is_at_rest(job)),
                &(job::template_token(job), job::stopping_token(job)),
                &[7, 8].map(|token| job::JobEvidence::of(Some(job), pods(), token)),
                &jobs::decide(job, None),
                &jobs::claim_name(job),
            ])
        });
    }
}
