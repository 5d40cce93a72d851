//! The chart and the plain manifest under other names and in another namespace, and what Artifact Hub reads of the chart.

use std::{collections::BTreeMap, env, fs, process::Command};

use redlock_operator::api;
use serde_json::{Value, json};

use crate::{
    CHART, KUBE_VERSION,
    chart::{annotation, images, values_of, with_values, yaml},
    helm_output, read,
    rights::{container, objects, of_kind, rendered, variable},
    root, run_helm, tool,
};

/// Kinds whose objects have no namespace.
///
/// kustomize gives them one, and the API server ignores it.
const OF_THE_CLUSTER: &str = "ClusterRole ClusterRoleBinding CustomResourceDefinition FlowSchema Namespace \
    ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding";

fn is_of_the_cluster(kind: &str) -> bool {
    OF_THE_CLUSTER.split(' ').any(|other| other == kind)
}

#[test]
fn names_and_namespace_can_be_overridden() {
    let objects = with_values("elsewhere");
    for object in &objects {
        let (kind, metadata) = (object["kind"].as_str().unwrap(), &object["metadata"]);
        let name = metadata["name"].as_str().unwrap();
        if kind != "CustomResourceDefinition" {
            assert!(name.starts_with("team-locks"), "{kind} {name}");
        }
        if !is_of_the_cluster(kind) {
            assert_eq!(metadata["namespace"], "0815", "{kind} {name}");
        }
        let text = object.to_string();
        assert!(!text.contains("redlock-system"), "{kind} {name}: {text}");
    }
    let objects = rendered(&["nameOverride=locks"]);
    let deployment = of_kind(&objects, "Deployment").next().unwrap();
    assert_eq!(deployment["metadata"]["name"], "redlock-operator-locks");
}

#[test]
fn a_new_release_elsewhere_serves_the_quorums_that_stayed() {
    let page = read("docs/installation.md");
    let (_, command) = page.split_once("helm install locks ").expect("the command in docs/installation.md");
    let words = command.split_once("```").unwrap().0.split_whitespace().map(|word| word.trim_matches('\''));
    let settings: Vec<&str> = words.filter(|word| word.contains('=')).collect();
    let objects = rendered(&[&settings[..], &["namespaceOverride=team-locks"]].concat());
    for name in ["REDLOCK_QUORUM_NAMESPACES", "REDLOCK_DEFAULT_QUORUM_NAMESPACE"] {
        assert_eq!(variable(&objects, name), "redlock-system", "{name}");
    }
    let mut roles = of_kind(&objects, "Role").filter(|role| role["metadata"]["namespace"] == "redlock-system");
    assert!(roles.any(|role| role["rules"].to_string().contains("redisquorums/status")));
}

#[test]
fn a_namespace_and_a_release_of_digits_are_text() {
    let values = values_of("monitoring");
    let arguments = ["template", "17", CHART, "--values", &values, "--set-string", "namespaceOverride=18"];
    for object in objects(&run_helm(&[&arguments[..], KUBE_VERSION].concat())) {
        let metadata = &object["metadata"];
        for (text, expected) in [
            (&metadata["namespace"], "18"),
            (&metadata["labels"]["app.kubernetes.io/instance"], "17"),
            (&object["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/instance"], "17"),
        ] {
            assert!(text.is_null() || text == expected, "{} {}: {text}", object["kind"], metadata["name"]);
        }
    }
}

#[test]
fn crds_are_kept_unless_a_value_disables_it() {
    const KEEP: &str = "helm.sh/resource-policy";
    let annotations = |settings: &[&str]| -> Vec<Value> {
        let objects = rendered(settings);
        of_kind(&objects, "CustomResourceDefinition").map(|crd| crd["metadata"]["annotations"].clone()).collect()
    };
    assert!(annotations(&[]).iter().all(|all| all[KEEP] == "keep"));
    assert_eq!(annotations(&["crds.keep=false"]), [json!({}), json!({})]);
    let added = annotations(&["crds.annotations.team=platform"]);
    assert!(added.iter().all(|all| all[KEEP] == "keep" && all["team"] == "platform"), "{added:?}");
}

/// Helm checks the value of the condition with the schema of this chart.
#[test]
fn a_chart_can_depend_on_this_one_by_a_condition() {
    assert_eq!(rendered(&["enabled=true"]), rendered(&[]));
}

#[test]
fn a_tag_is_text() {
    let (succeeded, text) = helm_output(&[&["template", "r", CHART, "--set", "image.tag=8"], KUBE_VERSION].concat());
    assert!(!succeeded && text.contains("/image/tag"), "{text}");
    assert!(images(&rendered(&["image.tag=1.10"]))[1].ends_with(":1.10"));
}

#[test]
fn additions_reach_the_operators_pods() {
    let objects = with_values("everything");
    let deployment = of_kind(&objects, "Deployment").next().unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(deployment["metadata"]["annotations"]["example.com/reload"], "true");
    assert_eq!(deployment["spec"]["revisionHistoryLimit"], 3);
    assert_eq!(pod["dnsConfig"]["options"][0]["name"], "ndots");
    assert_eq!(pod["nodeSelector"], json!({"kubernetes.io/os": "linux", "example.com/pool": "locks"}));
    assert_eq!(pod["containers"][0]["args"], json!(["operator", "--lease=second"]));
    assert_eq!(pod["containers"][0]["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    let policy = of_kind(&objects, "NetworkPolicy").next().unwrap();
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["spec"]["egress"][0]["ports"].as_array().unwrap().len(), 5);
    let added: Vec<_> = of_kind(&objects, "ConfigMap").map(|map| map["metadata"]["name"].clone()).collect();
    assert!(added.contains(&json!("notes")) && added.contains(&json!("redlock-operator-text")), "{added:?}");
    assert!(of_kind(&with_values("nothing"), "PodDisruptionBudget").next().is_none());
}

#[test]
fn probes_without_times_have_those_of_kubernetes() {
    let objects = rendered(&["livenessProbe=null", "readinessProbe=null"]);
    let container = container(&objects);
    assert_eq!(container["livenessProbe"], json!({"httpGet": {"path": "/healthz", "port": "http"}}));
    assert_eq!(container["readinessProbe"], json!({"httpGet": {"path": "/readyz", "port": "http"}}));
}

#[test]
fn helm_lint_has_no_remark() {
    let text = run_helm(&[&["lint", "--strict", CHART], KUBE_VERSION].concat());
    assert!(!text.contains("[INFO]") && !text.contains("[WARNING]"), "{text}");
}

#[test]
fn artifact_hub_gets_the_kinds_and_images_of_the_chart() {
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    let crds: Vec<_> = api::crds().iter().map(|crd| (crd.spec.names.kind.clone(), crd.metadata.name.clone())).collect();
    for (of, (kind, name)) in annotation(&chart, "crds").as_array().unwrap().iter().zip(&crds) {
        assert_eq!((&of["kind"], &of["name"], &of["version"]), (&json!(kind), &json!(name), &json!("v1alpha1")));
    }
    assert_eq!(annotation(&chart, "crds").as_array().unwrap().len(), crds.len());
    let listed = annotation(&chart, "images");
    let named = listed.as_array().unwrap().iter().map(|of| of["image"].as_str().unwrap().to_owned());
    let mut named: Vec<_> = named.collect();
    named.sort();
    assert_eq!(named, images(&rendered(&[])));
    for example in annotation(&chart, "crdsExamples").as_array().unwrap() {
        match example["kind"].as_str().unwrap() {
            "DistributedLock" => drop(serde_json::from_value::<api::DistributedLock>(example.clone()).unwrap()),
            _ => drop(serde_json::from_value::<api::RedisQuorum>(example.clone()).unwrap()),
        }
    }
    let version = format!("/v{}/", env!("CARGO_PKG_VERSION"));
    let links = annotation(&chart, "links");
    let links = links.as_array().unwrap().iter().map(|link| link["url"].as_str().unwrap());
    for url in links.chain(chart["icon"].as_str()) {
        let (_, path) = url.split_once(&version).unwrap_or_else(|| panic!("{url} is of another version"));
        assert!(root().join(path).exists(), "{path}");
    }
    assert!(annotation(&chart, "changes")[0]["description"].is_string());
}

// ------------------------------------------------------------------ kustomize ---

/// Objects by kind, namespace and name, without the parts that only Helm adds.
///
/// Variables of the environment are sorted. None of them refers to another one.
fn by_name(documents: &str) -> BTreeMap<String, Value> {
    let documents = documents.split("\n---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap());
    let named = documents.filter(Value::is_object).map(|mut object| {
        let kind = object["kind"].as_str().unwrap().to_owned();
        if is_of_the_cluster(&kind) {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
        }
        let variables = object.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut);
        variables.into_iter().for_each(|all| all.sort_by_key(|variable| variable["name"].to_string()));
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            let labels = object.pointer_mut(labels).and_then(Value::as_object_mut);
            labels.map(|all| all.remove("app.kubernetes.io/managed-by"));
        }
        (format!("{kind} {} {}", object["metadata"]["namespace"], object["metadata"]["name"]), object)
    });
    named.collect()
}

/// The objects of an overlay in docs/installation.md, which begins with this line.
fn kustomized(first_line: &str) -> BTreeMap<String, Value> {
    let folder = env::temp_dir().join(format!("redlock-kustomize-{}-{}", std::process::id(), first_line.len()));
    fs::create_dir_all(folder.join("manifests/lease-gate")).unwrap();
    let gate = ["lease-gate/kustomization.yaml", "lease-gate/policies.yaml"];
    for file in ["install.yaml", "kustomization.yaml"].iter().chain(&gate) {
        fs::copy(root().join("manifests").join(file), folder.join("manifests").join(file)).unwrap();
    }
    let replacements = "kustomize-namespace.yaml";
    fs::copy(root().join("manifests").join(replacements), folder.join(replacements)).unwrap();
    let page = read("docs/installation.md");
    let (_, rest) = page.split_once(&format!("```yaml\n{first_line}\n")).expect("the overlay in docs/installation.md");
    fs::write(folder.join("kustomization.yaml"), rest.split_once("```").unwrap().0).unwrap();
    let output = Command::new(tool("kubectl")).arg("kustomize").arg(&folder).output().expect("run `make up` once");
    fs::remove_dir_all(&folder).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    by_name(&String::from_utf8(output.stdout).unwrap())
}

/// Compares the objects of an overlay with those of the chart with the same settings.
fn agrees(mut moved: BTreeMap<String, Value>, arguments: &[&str]) {
    const NAMESPACE: &str = "team-locks";
    let namespace = moved.remove(&format!("Namespace null \"{NAMESPACE}\"")).expect("the Namespace has the new name");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let chart = ["template", "redlock-operator", CHART, "--no-hooks", "--namespace", NAMESPACE];
    let expected = by_name(&run_helm(&[&chart[..], arguments, KUBE_VERSION].concat()));
    assert_eq!(moved.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    // kustomize writes whole numbers of the schemas as floats, and names no namespace in them.
    let compared = expected.iter().filter(|(name, _)| !name.starts_with("CustomResourceDefinition"));
    let other: Vec<_> = compared.filter(|(name, object)| moved[*name] != **object).map(|(name, _)| name).collect();
    assert!(other.is_empty(), "{other:#?} differ");
}

#[test]
fn kustomize_and_helm_agree_on_another_namespace() {
    agrees(kustomized("# kustomization.yaml"), &["--set", "image.repository=registry.example.com/redlock-operator"]);
}

#[test]
fn kustomize_and_helm_agree_on_the_gate_before_leases() {
    agrees(kustomized("# kustomization.yaml, with the gate before Leases"), &["--set", "leaseGate.enabled=true"]);
}
