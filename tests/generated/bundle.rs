//! `manifests/olm`: the bundle for the Operator Lifecycle Manager, made from the chart.
//!
//! packaging/bundle.sh adds the CRDs, and dev/bundle.sh runs the validator of the Operator Framework on the bundle. The chart is rendered as for
//! OpenShift. A bundle cannot have admission policies, flow schemas and hooks (docs/installation.md).

use std::fs;
use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::chart::{annotation, with_values, yaml};
use crate::rights::of_kind;
use crate::{CHART, RENDERED, check, root};

const FOLDER: &str = "manifests/olm";
const NAMESPACE: &str = "redlock-system";
const ACCOUNT: &str = "redlock-operator";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const HOMEPAGE: &str = "https://github.com/redlock-operator/redlock-operator";
const DESCRIPTION: &str = "\
Distributed locks and leader election for Kubernetes. The operator runs several independent Redis masters, and takes and renews locks
on them with Redlock. The status of each lock has the holder, a fencing token and the end of its validity.

The bundle is for OpenShift, because its default quorum names no user.

Install it in the namespace `redlock-system`, and apply the release's `policies.yaml`. A bundle cannot contain these admission policies.
";

/// The name of an object.
fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The rules of the roles that a binding of this kind gives to the operator's account.
fn rules(objects: &[Value], binding: &str) -> Vec<Value> {
    let is_operators = |object: &&Value| {
        let place = &object["metadata"]["namespace"];
        let is_here = place.is_null() || place == NAMESPACE;
        is_here && object["subjects"].as_array().unwrap().iter().any(|subject| subject["name"] == ACCOUNT)
    };
    let roles = of_kind(objects, binding).filter(is_operators).map(|object| &object["roleRef"]);
    let rules = roles.flat_map(|of| {
        let role =
            objects.iter().find(|object| object["kind"] == of["kind"] && object["metadata"]["name"] == of["name"]);
        role.unwrap_or_else(|| panic!("no {of}"))["rules"].as_array().unwrap().clone()
    });
    rules.collect()
}

/// The operator's pods.
///
/// A variable with the namespace of the release gets it from the pod.
fn deployment(objects: &[Value]) -> Value {
    let object = of_kind(objects, "Deployment").next().unwrap();
    let mut spec = object["spec"].clone();
    for container in spec["template"]["spec"]["containers"].as_array_mut().unwrap() {
        for variable in container["env"].as_array_mut().unwrap().iter_mut().filter(|it| it["value"] == NAMESPACE) {
            *variable = json!({
                "name": variable["name"], "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            });
        }
    }
    for pointer in ["/template/metadata/labels", "/template/metadata/annotations"] {
        let labels = spec.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        labels.retain(|label, _| !label.contains("helm.sh") && label != "app.kubernetes.io/managed-by");
    }
    json!({"name": name(object), "spec": spec})
}

fn service_version(objects: &[Value]) -> Value {
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    let icon = ByteString(fs::read(root().join("docs/icon.svg")).unwrap());
    let images = annotation(&chart, "images");
    let kubernetes = chart["kubeVersion"].as_str().unwrap().trim_start_matches(">=").trim_end_matches("-0");
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{ACCOUNT}.v{VERSION}"),
            "annotations": {
                "alm-examples": annotation(&chart, "crdsExamples").to_string(),
                "capabilities": "Seamless Upgrades",
                "categories": "Integration & Delivery",
                "containerImage": images[0]["image"],
                "description": chart["description"],
                "operatorframework.io/suggested-namespace": NAMESPACE,
                "repository": HOMEPAGE,
                "support": chart["maintainers"][0]["name"],
            },
        },
        "spec": {
            "displayName": "Redlock Operator", "description": DESCRIPTION, "version": VERSION, "maturity": "alpha",
            "minKubeVersion": kubernetes, "keywords": chart["keywords"],
            "provider": {"name": chart["maintainers"][0]["name"], "url": HOMEPAGE},
            "maintainers": [{"name": chart["maintainers"][0]["name"], "email": "redlock-operator@users.noreply.github.com"}],
            "links": annotation(&chart, "links"),
            "icon": [{"base64data": icon, "mediatype": "image/svg+xml"}],
            "installModes": [
                {"type": "OwnNamespace", "supported": false}, {"type": "SingleNamespace", "supported": false},
                {"type": "MultiNamespace", "supported": false}, {"type": "AllNamespaces", "supported": true},
            ],
            "customresourcedefinitions": {"owned": annotation(&chart, "crds")},
            "install": {"strategy": "deployment", "spec": {
                "deployments": [deployment(objects)],
                "clusterPermissions": [{"serviceAccountName": ACCOUNT, "rules": rules(objects, "ClusterRoleBinding")}],
                "permissions": [{"serviceAccountName": ACCOUNT, "rules": rules(objects, "RoleBinding")}],
            }},
            "relatedImages": images,
        },
    })
}

/// The roles for users, which OLM installs with the operator.
fn user_roles(objects: &[Value]) -> Vec<Value> {
    let bound: Vec<_> = of_kind(objects, "ClusterRoleBinding").map(|object| &object["roleRef"]["name"]).collect();
    let is_for_users = |role: &&Value| !bound.contains(&&role["metadata"]["name"]) && !is_hook(role);
    of_kind(objects, "ClusterRole").filter(is_for_users).cloned().collect()
}

fn is_hook(object: &Value) -> bool {
    !object["metadata"]["annotations"]["helm.sh/hook"].is_null()
}

fn file(path: &str, object: &Value) {
    check(Path::new(FOLDER).join(path), &format!("{RENDERED}{}", serde_yaml::to_string(object).unwrap()));
}

#[test]
fn the_bundle_for_olm_has_the_rights_and_the_pods_of_the_chart() {
    let objects: Vec<Value> = with_values("openshift").into_iter().filter(|object| !is_hook(object)).collect();
    let bundle = service_version(&objects);
    let install = &bundle["spec"]["install"]["spec"];
    for rights in ["permissions", "clusterPermissions"] {
        assert!(!install[rights][0]["rules"].as_array().unwrap().is_empty(), "{rights}");
    }
    assert!(!install["deployments"].to_string().contains(NAMESPACE), "{install}");
    file("manifests/redlock-operator.clusterserviceversion.yaml", &bundle);
    let roles = user_roles(&objects);
    assert!(roles.len() >= 4, "{}", roles.len());
    for mut role in roles {
        let labels = role["metadata"]["labels"].as_object_mut().unwrap();
        labels.retain(|label, _| !label.contains("helm.sh") && label != "app.kubernetes.io/managed-by");
        let path = format!("manifests/{}_rbac.authorization.k8s.io_v1_clusterrole.yaml", name(&role));
        file(&path, &role);
    }
    file(
        "metadata/annotations.yaml",
        &json!({"annotations": {
            "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
            "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
            "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
            "operators.operatorframework.io.bundle.package.v1": ACCOUNT,
            "operators.operatorframework.io.bundle.channels.v1": "alpha",
            "operators.operatorframework.io.bundle.channel.default.v1": "alpha",
        }}),
    );
}
