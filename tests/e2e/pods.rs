//! Pods of tests.
//!
//! They meet the pod security standard `restricted`.

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::{bench::Bench, operators};

/// User of the Redis images.
const REDIS_UID: i64 = 999;

/// The security context of a pod.
pub(crate) fn pod_security() -> Value {
    json!({"runAsNonRoot": true, "runAsUser": REDIS_UID, "runAsGroup": REDIS_UID, "fsGroup": REDIS_UID,
        "seccompProfile": {"type": "RuntimeDefault"}})
}

/// The security context of a container.
pub(crate) fn container_security() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}

/// A container that runs a shell script.
pub(crate) fn container(bench: &Bench, name: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": bench.cluster.member_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "securityContext": container_security(),
    })
}

/// Whether the pod is Ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the node is Ready.
pub(crate) fn node_is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The node and the address of a pod, when it has both.
pub(crate) fn place(pod: &Pod) -> Option<(String, String)> {
    Some((pod.spec.as_ref()?.node_name.clone()?, pod.status.as_ref()?.pod_ip.clone()?))
}

/// A Deployment whose pods return their name: `CONFIG GET dbfilename` on port 6379.
///
/// Redis serves as the application.
pub(crate) fn application(name: &str, replicas: i32, image: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": false,
                    "securityContext": pod_security(),
                    "containers": [{
                        "name": "app",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["redis-server", "--save", "", "--protected-mode", "no", "--dbfilename", "$(POD_NAME)"],
                        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                        "readinessProbe": {"tcpSocket": {"port": 6379}, "periodSeconds": 1},
                        "securityContext": container_security(),
                    }],
                },
            },
        },
    })
}

/// A pod with the command at `/redlock/redlock` and a client's Secret at `/client`.
///
/// An init container of the operator's image copies the command. `main` is the container that uses it. The pod runs
/// once.
pub(crate) async fn with_command(bench: &Bench, name: &str, secret: &str, mut main: Value) -> anyhow::Result<Value> {
    let security = container_security();
    main["name"] = json!("main");
    main["imagePullPolicy"] = json!("IfNotPresent");
    main["volumeMounts"] =
        json!([{"name": "redlock", "mountPath": "/redlock"}, {"name": "client", "mountPath": "/client"}]);
    main["securityContext"] = security.clone();
    Ok(json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": pod_security(),
            "volumes": [{"name": "redlock", "emptyDir": {}}, {"name": "client", "secret": {"secretName": secret}}],
            "initContainers": [{
                "name": "redlock", "image": operators::image(&bench.cluster).await?, "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/local/bin/redlock", "install", "/redlock"],
                "volumeMounts": [{"name": "redlock", "mountPath": "/redlock"}], "securityContext": security,
            }],
            "containers": [main],
        },
    }))
}
