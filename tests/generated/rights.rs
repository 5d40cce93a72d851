//! Everything that the chart grants is in docs/security.md, and nothing else is granted; every pod that it makes meets Pod Security
//! `restricted`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{CHART, KUBE_VERSION, read, run_helm};

const DOCUMENT: &str = "docs/security.md";
const TABLE: &str = "| who | where | what | verbs | why |";
/// Names of the release in the documentation.
const RELEASE: &str = "redlock-operator";
const NAMESPACE: &str = "redlock-system";
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// The verbs of one account or role on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    who: String,
    place: String,
    what: String,
    verbs: String,
}

/// All objects that the chart renders with these settings, hooks included.
pub(crate) fn rendered(settings: &[&str]) -> Vec<Value> {
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", *setting]).collect();
    let arguments = [&["template", RELEASE, CHART, "--namespace", NAMESPACE], &settings[..], KUBE_VERSION].concat();
    objects(&run_helm(&arguments))
}

/// The objects that Helm has rendered.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    text.split("\n---\n")
        .map(|document| serde_yaml::from_str::<Value>(document).unwrap_or_else(|error| panic!("{error}:\n{document}")))
        .filter(Value::is_object)
        .collect()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// The specifications of the pods that these objects make.
pub(crate) fn pods(objects: &[Value]) -> impl Iterator<Item = &Value> + Clone {
    objects.iter().filter_map(|object| {
        let spec = &object["spec"];
        [&spec["template"]["spec"], spec].into_iter().find(|spec| spec["containers"].is_array())
    })
}

/// The operator's container.
pub(crate) fn container(objects: &[Value]) -> &Value {
    &of_kind(objects, "Deployment").next().unwrap()["spec"]["template"]["spec"]["containers"][0]
}

/// A variable of the operator's container.
pub(crate) fn variable<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let mut variables = container(objects)["env"].as_array().unwrap().iter();
    &variables.find(|variable| variable["name"] == name).expect(name)["value"]
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn rights_of(rules: &Value, who: &str, place: &str) -> Vec<Right> {
    let mut rights = Vec::new();
    for rule in rules.as_array().unwrap() {
        assert!(rule.get("nonResourceURLs").is_none(), "{rule}");
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let full = if group.is_empty() { resource } else { format!("{resource}.{group}") };
                let names = texts(&rule["resourceNames"]).join(" ");
                let what = if names.is_empty() { full } else { format!("{full} {names}") };
                let verbs = texts(&rule["verbs"]).join(" ");
                rights.push(Right { who: who.into(), place: place.into(), what, verbs });
            }
        }
    }
    rights
}

/// The default roles of users to which a ClusterRole is added.
fn aggregated(role: &Value) -> String {
    let labels = role["metadata"]["labels"].as_object().unwrap();
    let to: Vec<&str> = labels.keys().filter_map(|label| label.strip_prefix(AGGREGATE)).collect();
    if to.is_empty() { "as bound".into() } else { format!("in {}", to.join(", ")) }
}

/// All rights that the chart grants.
///
/// A binding grants rights to its subject. Users bind or add the other roles later.
fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let mut rights = Vec::new();
    let mut bound = BTreeSet::new();
    for (binding, role_kinds) in
        [("ClusterRoleBinding", ["ClusterRole"].as_slice()), ("RoleBinding", &["Role", "ClusterRole"])]
    {
        for binding in of_kind(objects, binding) {
            let (kind, name) = (binding["roleRef"]["kind"].as_str().unwrap(), &binding["roleRef"]["name"]);
            assert!(role_kinds.contains(&kind), "{binding}");
            let namespace = &binding["metadata"]["namespace"];
            let is_it = |role: &&Value| {
                role["metadata"]["name"] == *name
                    && (kind == "ClusterRole" || role["metadata"]["namespace"] == *namespace)
            };
            let role = of_kind(objects, kind).find(is_it).unwrap_or_else(|| panic!("no role for {binding}"));
            bound.insert((kind.to_owned(), name.as_str().unwrap().to_owned(), namespace.to_string()));
            let [subject] = binding["subjects"].as_array().unwrap().as_slice() else { panic!("{binding}") };
            assert_eq!((&subject["kind"], &subject["namespace"]), (&json!("ServiceAccount"), &json!(NAMESPACE)));
            let who = format!("account {}", subject["name"].as_str().unwrap());
            rights.extend(rights_of(&role["rules"], &who, namespace.as_str().unwrap_or("everywhere")));
        }
    }
    for role in of_kind(objects, "ClusterRole") {
        let name = role["metadata"]["name"].as_str().unwrap();
        if !bound.iter().any(|(kind, bound, _)| kind == "ClusterRole" && bound == name) {
            rights.extend(rights_of(&role["rules"], &format!("role {name}"), &aggregated(role)));
        }
    }
    for role in of_kind(objects, "Role") {
        let (name, namespace) = (role["metadata"]["name"].as_str().unwrap(), role["metadata"]["namespace"].to_string());
        assert!(bound.contains(&("Role".into(), name.into(), namespace)), "no account has Role {name}");
    }
    let all: BTreeSet<_> = rights.iter().cloned().collect();
    assert_eq!(all.len(), rights.len(), "something is granted twice");
    all
}

/// The rows of the `nth` table of rights in the documentation.
fn documented(nth: usize) -> BTreeSet<Right> {
    let text = read(DOCUMENT);
    let table = text.split(TABLE).nth(nth + 1).unwrap_or_else(|| panic!("{DOCUMENT} has no {nth}th `{TABLE}`"));
    let rows = table.trim_start().lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [who, place, what, verbs, why] = cells.as_slice() else { panic!("{DOCUMENT}: {row}") };
        assert!(!why.is_empty(), "{DOCUMENT}: why? {row}");
        Right { who: (*who).into(), place: (*place).into(), what: (*what).into(), verbs: (*verbs).into() }
    })
    .collect()
}

fn compare(settings: &[&str], table: usize) {
    let (mut granted, documented) = (granted(&rendered(settings)), documented(table));
    // Only the first table has the roles for users.
    granted.retain(|right| table == 0 || right.who.starts_with("account"));
    let row = |right: &Right| format!("| {} | {} | `{}` | `{}` |", right.who, right.place, right.what, right.verbs);
    let too_many: Vec<_> = granted.difference(&documented).map(row).collect();
    let gone: Vec<_> = documented.difference(&granted).map(row).collect();
    assert!(
        too_many.is_empty() && gone.is_empty(),
        "granted with {settings:?}, and not in table {table} of {DOCUMENT}:\n{}\nthere, and not granted:\n{}",
        too_many.join("\n"),
        gone.join("\n")
    );
}

#[test]
fn exactly_the_granted_rights_are_documented_with_reasons() {
    compare(&[], 0);
}

/// Settings with locks in one namespace, quorums in another, and the operator in a third.
const NARROW: &[&str] =
    &["watchNamespaces={shop}", "quorumNamespaces={redis}", "clientNamespaces={web}", "defaultQuorum.namespace=redis"];

#[test]
fn rights_are_granted_only_in_the_named_namespaces() {
    compare(NARROW, 1);
    let everywhere = granted(&rendered(NARROW)).into_iter().filter(|right| right.place == "everywhere");
    let everywhere: BTreeSet<_> = everywhere.map(|right| right.what).collect();
    assert_eq!(everywhere, ["namespaces", "nodes"].map(str::to_owned).into());
    let rights = granted(&rendered(&["watchNamespaces={shop}"]));
    let outside = rights.iter().find(|right| right.what.starts_with("distributedlocks") && right.place == "everywhere");
    assert!(outside.is_none(), "{outside:?}");
    let in_shop = rights.iter().find(|right| right.place == "shop" && right.what.contains("secrets"));
    assert!(in_shop.is_none(), "watchNamespaces is for locks: {in_shop:?}");
    let everywhere = |settings: &[&str]| {
        let rights = granted(&rendered(settings)).into_iter();
        rights.filter(|right| right.place == "everywhere" && right.what == "secrets").count()
    };
    assert_eq!(everywhere(&[]), 0, "the default grants no Secret outside the release's namespace");
    assert_eq!((everywhere(&["quorumNamespaces={*}"]), everywhere(&["clientNamespaces={*}"])), (1, 1));
}

/// The rights that a setting adds to those of the default.
fn added_by(setting: &str) -> BTreeSet<Right> {
    granted(&rendered(&[setting])).difference(&granted(&rendered(&[]))).cloned().collect()
}

/// The places of these rights, with a setting and locks in one namespace.
fn places_in_shop(setting: &str, is_meant: impl Fn(&Right) -> bool) -> BTreeSet<String> {
    let rights = granted(&rendered(&[setting, "watchNamespaces={shop}"]));
    rights.into_iter().filter(is_meant).map(|right| right.place).collect()
}

#[test]
fn rights_on_jobs_need_a_switch_and_a_watched_namespace() {
    assert_eq!(added_by("jobs.enabled=true"), documented(2));
    let places = places_in_shop("jobs.enabled=true", |right| right.what.starts_with("jobs"));
    assert_eq!(places, ["shop".to_owned()].into());
}

#[test]
fn rights_on_leases_need_a_switch_and_a_watched_namespace() {
    assert_eq!(added_by("leaseGate.enabled=true"), documented(3));
    let written = |right: &Right| right.what.starts_with("leases") && right.verbs.contains("update");
    let is_meant = |right: &Right| right.who.starts_with("account") && written(right);
    let expected: BTreeSet<_> = ["redlock-system".to_owned(), "shop".to_owned()].into();
    let places = places_in_shop("leaseGate.enabled=true", is_meant);
    assert_eq!(places, expected, "redlock-system has the operator's own Lease");
}

#[test]
fn the_operator_elects_by_the_lease_that_it_has_rights_on() {
    assert_eq!(variable(&rendered(&["leaseName=second"]), "REDLOCK_LEASE"), "second");
}

#[test]
fn user_roles_are_added_to_those_of_the_cluster_by_switch() {
    let aggregated_with = |settings: &[&str]| -> BTreeSet<String> {
        let objects = rendered(settings);
        let added = of_kind(&objects, "ClusterRole").filter(|role| aggregated(role) != "as bound");
        added
            .map(|role| role["metadata"]["name"].as_str().unwrap().trim_start_matches("redlock-operator-").to_owned())
            .collect()
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(aggregated_with(&[]), names(&["view", "edit"]), "the default roles cannot run quorums or break locks");
    assert_eq!(aggregated_with(&["userRoles.aggregateLocks=false"]), names(&[]));
    let all = ["userRoles.aggregateQuorums=true", "userRoles.aggregateBreak=true"];
    assert_eq!(aggregated_with(&all), names(&["view", "edit", "admin", "break"]));
    let without = rendered(&["userRoles.create=false"]);
    let named: Vec<_> = without.iter().filter(|object| object.to_string().contains("redlock-operator-break")).collect();
    assert!(named.is_empty(), "a role that does not exist: {named:?}");
}

#[test]
fn the_operators_port_is_open_only_to_named_peers() {
    assert_eq!(of_kind(&rendered(&["networkPolicy.enabled=false"]), "NetworkPolicy").count(), 0);
    let ingress = |settings: &[&str]| {
        let objects = rendered(settings);
        let policies: Vec<_> = of_kind(&objects, "NetworkPolicy").collect();
        assert_eq!(policies.len(), 1);
        let (spec, deployment) = (&policies[0]["spec"], of_kind(&objects, "Deployment").next().unwrap());
        assert_eq!(spec["podSelector"]["matchLabels"], deployment["spec"]["selector"]["matchLabels"]);
        assert_eq!(spec["policyTypes"], serde_json::json!(["Ingress"]));
        spec["ingress"].clone()
    };
    assert_eq!(ingress(&[]), serde_json::json!([]));
    let from = "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus";
    let expected = serde_json::json!([{"from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
        "ports": [{"port": "http", "protocol": "TCP"}]}]);
    assert_eq!(ingress(&[from]), expected);
}

#[test]
fn the_operators_image_can_be_named_by_its_digest() {
    let image = |settings: &[&str]| container(&rendered(settings))["image"].as_str().unwrap().to_owned();
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let named =
        image(&["image.repository=registry.example/redlock", "image.tag=v1", &format!("image.digest={digest}")]);
    assert_eq!(named, format!("registry.example/redlock:v1@{digest}"));
    assert_eq!(image(&["image.repository=a", "image.tag=v1"]), "a:v1");
}

/// The requirements of Pod Security `restricted` that this pod does not meet.
pub(crate) fn violations(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            found.push(what);
        }
    };
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        check(spec[host] != true, host.into());
    }
    let volumes =
        ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        check(volumes.iter().any(|kind| !volume[kind].is_null()), format!("volume {volume}"));
    }
    let pod = &spec["securityContext"];
    check(pod["sysctls"].is_null(), "sysctls".into());
    let containers =
        ["containers", "initContainers"].into_iter().flat_map(|of| spec[of].as_array().into_iter().flatten());
    for container in containers {
        let (name, own) = (&container["name"], &container["securityContext"]);
        let either = |field: &str| if own[field].is_null() { &pod[field] } else { &own[field] };
        check(own["privileged"] != true, format!("{name}: privileged"));
        check(own["allowPrivilegeEscalation"] == false, format!("{name}: allowPrivilegeEscalation"));
        check(own["capabilities"] == json!({"drop": ["ALL"]}), format!("{name}: capabilities"));
        check(either("runAsNonRoot") == true, format!("{name}: runAsNonRoot"));
        check(either("runAsUser") != 0, format!("{name}: runAsUser"));
        check(either("seccompProfile")["type"] == "RuntimeDefault", format!("{name}: seccompProfile"));
        check(own["procMount"].is_null(), format!("{name}: procMount"));
        let ports = container["ports"].as_array().into_iter().flatten();
        ports.for_each(|port| check(port["hostPort"].is_null(), format!("{name}: hostPort")));
    }
    found
}

#[test]
fn pods_of_the_chart_meet_pod_security_restricted() {
    let objects = rendered(&[]);
    for spec in pods(&objects) {
        assert_eq!(violations(spec), [""; 0], "{spec}");
        assert_eq!(spec["nodeSelector"], json!({"kubernetes.io/os": "linux"}), "{spec}");
    }
    assert_eq!(
        pods(&objects).count(),
        3,
        "the operator, the check before an uninstallation, and the test of the release"
    );
    let bare =
        json!({"hostPID": true, "volumes": [{"name": "x", "hostPath": {"path": "/"}}], "containers": [{"name": "x"}]});
    assert_eq!(violations(&bare).len(), 6, "the check itself: {:?}", violations(&bare));
}

/// Checks how the policy on requests identifies the operators of other installations.
///
/// It admits them because of their right on the status.
#[test]
fn the_policy_identifies_an_operator_by_a_right_of_the_chart() {
    let objects = rendered(&[]);
    let status =
        granted(&objects).into_iter().find(|right| right.what == "distributedlocks/status.redlock-operator.io");
    let verb = status.unwrap().verbs;
    let policies = of_kind(&objects, "ValidatingAdmissionPolicy");
    let mut expressions =
        policies.flat_map(|policy| policy["spec"]["variables"].as_array().cloned().unwrap_or_default());
    let may_update = expressions.find(|variable| variable["name"] == "mayUpdate").unwrap();
    let expression = may_update["expression"].as_str().unwrap();
    let checked = expression.split("subresource(\"status\")").nth(1).unwrap();
    assert!(checked.contains(&format!(".check(\"{verb}\")")), "{verb}: {expression}");
}
