//! The leader label: on the pod that leads, and on no other.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::writes::{WriteError, request};
use crate::api::leader_label;

/// Puts the label of `lock` on the pod with this UID, after it is off every other pod (docs/safety.md, invariant 6). A pod
/// that is gone needs no label.
pub async fn set(
    client: &Client,
    namespace: &str,
    lock: &str,
    pod_name: &str,
    pod_uid: &str,
) -> Result<(), WriteError> {
    clear(client, namespace, lock, Some(pod_uid)).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = match request(pods.get(pod_name)).await {
        Ok(pod) if pod.uid().as_deref() == Some(pod_uid) => pod,
        Ok(_) | Err(WriteError::Gone) => return Ok(()),
        Err(error) => return Err(error),
    };
    if pod.labels().contains_key(&leader_label(lock)) {
        return Ok(());
    }
    write(&pods, &pod, lock, json!("true")).await
}

/// Takes the label of `lock` off every pod but the one with the UID `except`. Reads the API server, not a cache.
pub async fn clear(client: &Client, namespace: &str, lock: &str, except: Option<&str>) -> Result<(), WriteError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let labelled = request(pods.list(&ListParams::default().labels(&leader_label(lock)))).await?;
    for pod in labelled.items.iter().filter(|pod| pod.uid().as_deref() != except) {
        write(&pods, pod, lock, Value::Null).await?;
    }
    Ok(())
}

/// Carries the pod's resourceVersion, so that a leader that was frozen after it read the pod cannot write over what happened
/// since.
async fn write(pods: &Api<Pod>, pod: &Pod, lock: &str, value: Value) -> Result<(), WriteError> {
    let patch = json!({"metadata": {
        "labels": {leader_label(lock): value}, "resourceVersion": pod.resource_version(), "uid": pod.uid()
    }});
    match request(pods.patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch))).await {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}
