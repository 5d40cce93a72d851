//! Rules of the server for writes of each kind: defaults, preserved fields, and refusals.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::meta::Names;
use super::outcome::{Part, Refusal};

/// Prepares a new object: removes a status of the client, and adds defaults.
pub(super) fn prepare_create(kind: Kind, value: &mut Value, names: &mut Names) {
    // A kubelet registers its node together with a status.
    if kind.facts().has_status
        && kind != Kind::Node
        && let Some(fields) = value.as_object_mut()
    {
        fields.remove("status");
    }
    if kind.facts().counts {
        value["metadata"]["generation"] = json!(1);
    }
    match kind {
        Kind::Pod => value["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"}),
        Kind::Namespace => {
            let name = value["metadata"]["name"].clone();
            value["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            value["spec"]["finalizers"] = json!(["kubernetes"]);
            value["status"] = json!({"phase": "Active"});
        }
        Kind::Service if value["spec"]["type"] != "ExternalName" && value["spec"]["clusterIP"].as_str().is_none() => {
            let ip = format!("10.96.{}.{}", names.below(200), 1 + names.below(250));
            value["spec"]["clusterIPs"] = json!([ip]);
            value["spec"]["clusterIP"] = json!(ip);
        }
        Kind::StatefulSet | Kind::Deployment | Kind::ReplicaSet => value["status"] = json!({"replicas": 0}),
        Kind::Job => {
            value["status"] = json!({});
            let uid = value["metadata"]["uid"].clone();
            let name = value["metadata"]["name"].clone();
            let labels = &mut value["spec"]["template"]["metadata"]["labels"];
            for label in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
                labels[label] = uid.clone();
            }
            labels["batch.kubernetes.io/job-name"] = name.clone();
            labels["job-name"] = name;
            value["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
        }
        _ => {}
    }
    defaults(kind, value);
}

/// Adds defaults of built-in kinds, as far as the product can observe them.
pub(super) fn defaults(kind: Kind, value: &mut Value) {
    let mut set = |pointer: &[&str], default: Value| {
        let field = pointer.iter().fold(&mut *value, |value, name| &mut value[*name]);
        if field.is_null() {
            *field = default;
        }
    };
    match kind {
        Kind::Pod => pod_defaults(&mut value["spec"]),
        Kind::StatefulSet => {
            set(&["spec", "podManagementPolicy"], json!("OrderedReady"));
            set(&["spec", "revisionHistoryLimit"], json!(10));
            set(&["spec", "replicas"], json!(1));
            pod_defaults(&mut value["spec"]["template"]["spec"]);
        }
        Kind::Deployment | Kind::ReplicaSet => {
            set(&["spec", "replicas"], json!(1));
            pod_defaults(&mut value["spec"]["template"]["spec"]);
        }
        Kind::Job => {
            set(&["spec", "parallelism"], json!(1));
            set(&["spec", "completions"], json!(1));
            set(&["spec", "backoffLimit"], json!(6));
            set(&["spec", "suspend"], json!(false));
            pod_defaults(&mut value["spec"]["template"]["spec"]);
        }
        Kind::Service => {
            set(&["spec", "type"], json!("ClusterIP"));
            set(&["spec", "sessionAffinity"], json!("None"));
            for port in value["spec"]["ports"].as_array_mut().into_iter().flatten() {
                let number = port["port"].clone();
                for (field, default) in [("protocol", json!("TCP")), ("targetPort", number)] {
                    if port[field].is_null() {
                        port[field] = default;
                    }
                }
            }
        }
        Kind::Secret => set(&["type"], json!("Opaque")),
        _ => {}
    }
}

fn pod_defaults(spec: &mut Value) {
    let fields = [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
    ];
    for (field, default) in fields {
        if spec[field].is_null() {
            spec[field] = default;
        }
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if container["terminationMessagePath"].is_null() {
            container["terminationMessagePath"] = json!("/dev/termination-log");
        }
    }
}

/// Restores the fields that a write of this part cannot change.
pub(super) fn prepare_update(kind: Kind, part: Part, old: &Value, new: &mut Value) {
    let keep = |new: &mut Value, field: &str| match old.get(field) {
        Some(kept) => new[field] = kept.clone(),
        None => {
            if let Some(fields) = new.as_object_mut() {
                fields.remove(field);
            }
        }
    };
    for field in ["apiVersion", "kind"] {
        keep(new, field);
    }
    match part {
        Part::Main if kind.facts().has_status => keep(new, "status"),
        Part::Main | Part::Whole => {}
        Part::Status => {
            let status = new["status"].take();
            *new = old.clone();
            new["status"] = status;
            if new["status"].is_null() {
                new.as_object_mut().map(|fields| fields.remove("status"));
            }
        }
    }
    if part == Part::Main && kind == Kind::Service {
        for field in ["clusterIP", "clusterIPs"] {
            if new["spec"][field].is_null() && !old["spec"][field].is_null() {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
    }
    defaults(kind, new);
}

/// Checks immutable fields of built-in kinds.
pub(super) fn validate_update(kind: Kind, old: &Value, new: &Value) -> Result<(), Refusal> {
    let fixed: &[&str] = match kind {
        Kind::Pod => &[
            "/spec/containers/0/name",
            "/spec/containers/0/command",
            "/spec/nodeName",
            "/spec/volumes",
            "/spec/restartPolicy",
        ],
        Kind::StatefulSet => {
            &["/spec/selector", "/spec/serviceName", "/spec/podManagementPolicy", "/spec/volumeClaimTemplates"]
        }
        Kind::Deployment | Kind::ReplicaSet => &["/spec/selector"],
        Kind::Job => &["/spec/selector", "/spec/managedBy", "/spec/completionMode"],
        Kind::Secret => &["/type"],
        _ => &[],
    };
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if kind == Kind::Job && template(old, !can_change_template(old)) != template(new, !can_change_template(old)) {
        return Err(Refusal::invalid(kind, name, "spec.template: Invalid value: field is immutable"));
    }
    if kind == Kind::Secret && old["immutable"] == json!(true) && old["data"] != new["data"] {
        return Err(Refusal::invalid(kind, name, "data: Forbidden: field is immutable when `immutable` is set"));
    }
    match fixed.iter().find(|field| old.pointer(field) != new.pointer(field)) {
        Some(field) => Err(Refusal::invalid(kind, name, &format!("{field}: Invalid value: field is immutable"))),
        None => Ok(()),
    }
}

/// Checks immutable fields of a status: the start time of a Job that is not suspended.
pub(super) fn validate_status(kind: Kind, old: &Value, new: &Value) -> Result<(), Refusal> {
    let (before, now) = (&old["status"]["startTime"], &new["status"]["startTime"]);
    if kind != Kind::Job || before.is_null() || before == now || old["spec"]["suspend"] == json!(true) {
        return Ok(());
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    Err(Refusal::invalid(
        kind,
        name,
        "status.startTime: Required value: startTime cannot be removed for unsuspended job",
    ))
}

/// Whether a write can change a Job's template.
///
/// The rule of Kubernetes 1.23 to 1.35: the Job is suspended and has no start time.
fn can_change_template(job: &Value) -> bool {
    job["spec"]["suspend"] == json!(true) && job["status"]["startTime"].is_null()
}

/// The pod template of a Job.
///
/// If `whole` is false, the fields that can change before the start are left out.
fn template(job: &Value, whole: bool) -> Value {
    let mut template = job["spec"]["template"].clone();
    if let Some(metadata) = template["metadata"].as_object_mut().filter(|_| !whole) {
        metadata.remove("annotations");
        metadata.remove("labels");
    }
    template
}

/// Whether the spec, or the corresponding field of a kind without a spec, has changed.
pub(super) fn spec_differs(old: &Value, new: &Value) -> bool {
    let rest = |value: &Value| {
        let mut value = value.clone();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("metadata");
            fields.remove("status");
        }
        value
    };
    rest(old) != rest(new)
}
