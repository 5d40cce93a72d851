//! The chart's values: what is refused, what every switch renders, and the files that are generated from the schema.

use redlock_operator::{
    api,
    quorum::model::{
        auth::Auth,
        build::{Transport, build, operator_pods},
        plan,
    },
};
use serde_json::{Value, json};

use crate::{
    CHART, KUBE_VERSION, check, helm_output, pattern, read,
    rights::{objects, of_kind, pods, rendered, violations},
    run_helm,
};

const SCHEMA: &str = "charts/redlock-operator/values.schema.json";
const DEFINITIONS: &str = "  \"definitions\": {\n    \"redisQuorumSpec\": ";
const REFERENCE: &str = "charts/redlock-operator/README.md";
const REFERENCE_HEADER: &str = "\
# The chart redlock-operator

<!-- Generated from values.schema.json and values.yaml by `UPDATE=1 cargo test --test generated`: do not edit. -->

Distributed locks and leader election on Kubernetes through Redlock. The project's [README](../../README.md) has the quick start, and
[docs/installation.md](../../docs/installation.md) describes upgrades and uninstallations.

These are the values that are set most often. All values, with their types: [docs/reference/values.md](../../docs/reference/values.md), or
`helm show values`.

| value | default | meaning |
|---|---|---|
";
/// The values that the chart's README shows.
const SET_MOST: &str = "replicas image.repository global.imageRegistry imagePullSecrets redis.image.repository \
    defaultQuorum.spec defaultQuorum.create watchNamespaces quorumNamespaces resources log.level networkPolicy.enabled";

/// Files of values: all changed, all switched off, OpenShift, a mirror, other names, and monitoring.
pub(crate) const VALUES: [&str; 6] = ["everything", "nothing", "openshift", "mirror", "elsewhere", "monitoring"];

pub(crate) fn values_of(name: &str) -> String {
    format!("tests/chart/{name}.yaml")
}

pub(crate) fn yaml(path: &str) -> Value {
    serde_yaml::from_str(&read(path)).unwrap()
}

/// An annotation of the chart for Artifact Hub.
pub(crate) fn annotation(chart: &Value, name: &str) -> Value {
    let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap_or_else(|| panic!("{name}"));
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn schema() -> Value {
    serde_json::from_str(&read(SCHEMA)).unwrap()
}

// ------------------------------------------------------------------ generated ---

/// Converts a schema of a CRD to a JSON schema that refuses unknown fields.
///
/// Kubernetes' own types are described only once, for the operator's pods.
fn strict(schema: &Value, name: &str) -> Value {
    const SHARED: [&str; 4] = ["affinity", "tolerations", "topologySpreadConstraints", "resources"];
    const KEPT: &str = "type description enum pattern minLength maxLength minimum maximum maxItems maxProperties required \
        items additionalProperties";
    if SHARED.contains(&name) {
        return json!({"$ref": format!("#/properties/{name}")});
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return json!({"type": ["number", "string"]});
    }
    let mut strict = serde_json::Map::new();
    if let Some(pattern) = pattern(schema) {
        strict.insert("pattern".to_owned(), json!(pattern));
    }
    for (key, value) in schema.as_object().unwrap() {
        match key.as_str() {
            "items" => strict.insert(key.clone(), self::strict(value, "")),
            "additionalProperties" if value.is_object() => strict.insert(key.clone(), self::strict(value, "")),
            kept if KEPT.split(' ').any(|name| name == kept) => strict.insert(key.clone(), value.clone()),
            "properties" => {
                let fields = value.as_object().unwrap().iter();
                let fields: serde_json::Map<_, _> =
                    fields.map(|(name, field)| (name.clone(), self::strict(field, name))).collect();
                strict.insert("additionalProperties".into(), json!(false));
                strict.insert(key.clone(), Value::Object(fields))
            }
            _ => None,
        };
    }
    Value::Object(strict)
}

/// Formats JSON with short values on one line, and names in alphabetical order.
fn pretty(value: &Value, indent: usize) -> String {
    let one = one_line(value);
    if one.chars().count() + indent <= 150 {
        return one;
    }
    let (inner, outer) = (" ".repeat(indent + 2), " ".repeat(indent));
    let joined = |parts: Vec<String>| parts.join(&format!(",\n{inner}"));
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(name, value)| format!("\"{name}\": {}", pretty(value, indent + 2)));
            format!("{{\n{inner}{}\n{outer}}}", joined(fields.collect()))
        }
        Value::Array(list) => {
            format!("[\n{inner}{}\n{outer}]", joined(list.iter().map(|value| pretty(value, indent + 2)).collect()))
        }
        _ => one,
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields: Vec<_> = map.iter().map(|(name, value)| format!("\"{name}\": {}", one_line(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(one_line).collect::<Vec<_>>().join(", ")),
        _ => value.to_string(),
    }
}

#[test]
fn the_default_quorum_in_the_values_has_the_fields_of_the_kind() {
    let text = read(SCHEMA);
    let (written, _) = text.split_once(DEFINITIONS).expect("the definitions come last");
    let quorum = api::crds().into_iter().find(|crd| crd.spec.names.kind == "RedisQuorum").unwrap();
    let crd = serde_json::to_value(quorum).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    check(SCHEMA, &format!("{written}{DEFINITIONS}{}\n  }}\n}}\n", pretty(&strict(spec, ""), 4)));
}

/// A value of the chart that a user can set.
pub(crate) struct ChartValue {
    pub path: String,
    pub default: Value,
    pub type_: String,
    pub description: String,
}

fn type_of(schema: &Value) -> String {
    let words = |values: &Value| -> Option<Vec<String>> {
        Some(values.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    };
    let name = schema["type"].as_str().map(str::to_owned).or_else(|| Some(words(&schema["type"])?.join(" or ")));
    name.or_else(|| Some(words(&schema["enum"])?.join(", "))).unwrap_or_else(|| "object".to_owned())
}

/// The values below a schema.
///
/// An object whose fields have no descriptions is one value, such as a field that is defined as in a Pod.
fn values(schema: &Value, default: &Value, path: &str, found: &mut Vec<ChartValue>) {
    let properties = schema["properties"].as_object();
    let described = properties.is_some_and(|all| all.values().all(|field| field.get("description").is_some()));
    let Some(properties) = properties.filter(|_| described && default.is_object()) else {
        let description = schema["description"].as_str().unwrap_or_default().to_owned();
        assert!(description.len() > 10, "{SCHEMA}: {path} is not described");
        found.push(ChartValue { path: path.to_owned(), default: default.clone(), type_: type_of(schema), description });
        return;
    };
    for (name, default) in default.as_object().unwrap() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        values(&properties[name], default, &path, found);
    }
}

pub(crate) fn all_values() -> Vec<ChartValue> {
    let mut found = Vec::new();
    values(&schema(), &yaml(&format!("{CHART}/values.yaml")), "", &mut found);
    found
}

impl ChartValue {
    /// The cells of a table: path, optionally the type, default and description.
    pub(crate) fn row(&self, with_type: bool) -> String {
        let type_ = if with_type { format!("{} | ", self.type_) } else { String::new() };
        let description = self.description.replace('|', "\\|");
        format!("| `{}` | {type_}`{}` | {description} |\n", self.path, one_line(&self.default))
    }
}

#[test]
fn the_charts_readme_shows_the_values_that_are_set_most() {
    let all = all_values();
    let row = |path: &str| all.iter().find(|value| value.path == path).expect(path).row(false);
    check(REFERENCE, &format!("{REFERENCE_HEADER}{}", SET_MOST.split(' ').map(row).collect::<String>()));
}

// -------------------------------------------------------------------- refused ---

#[test]
fn misspelt_values_are_refused() {
    for (setting, named) in [
        ("replica=3", "replica"),
        ("replicas=0", "/replicas"),
        ("enabled=maybe", "/enabled"),
        ("image.repositry=x", "repositry"),
        ("image.digest=sha256:12", "/image/digest"),
        ("redis.image.tga=8", "/redis/image"),
        ("redis.image=example.com/redis:7", "/redis/image"),
        ("log.format=xml", "/log/format"),
        ("resources.limit.memory=1Gi", "limit"),
        ("defaultQuorum.spec.memebers=5", "memebers"),
        ("defaultQuorum.spec.maxTTL=soon", "maxTTL"),
        ("defaultQuorum.spec.members=three", "members"),
        ("defaultQuorum.spec.pod.nodeSelecter.a=b", "nodeSelecter"),
        ("defaultQuorum.spec.allowedNamespaces.from=Everybody", "from"),
        ("defaultQuorum.specs.members=3", "specs"),
        ("defaultQuorum.name=", "/defaultQuorum/create"),
        ("watchNamespaces={A}", "/watchNamespaces/0"),
        ("leaseGate.leaveOutNamespaces={A}", "/leaseGate/leaveOutNamespaces/0"),
        ("userRoles.aggregateLock=true", "aggregateLock"),
        ("serviceAccount.create=maybe", "/serviceAccount/create"),
        ("podSecurityContext.runAsuser=1", "runAsuser"),
        ("securityContext.capabilities.dropp={ALL}", "dropp"),
        ("livenessProbe.period=1", "period"),
        ("livenessProbe.successThreshold=2", "successThreshold"),
        ("readinessProbe.terminationGracePeriodSeconds=1", "terminationGracePeriodSeconds"),
        ("networkPolicy.metricsFrom=[{}]", "/networkPolicy/metricsFrom/0"),
        ("tolerations[0].efect=NoSchedule", "efect"),
        ("affinity.nodeAffinty.a=b", "nodeAffinty"),
        ("extraEnv[0].nme=A", "nme"),
        ("extraEnv[0].name=REDLOCK_LEASE", "/extraEnv/0/name"),
        ("topologySpreadConstraints[0].maxSkew=1", "topologySpreadConstraints"),
        ("crds.kept=false", "kept"),
        ("test.enable=false", "enable"),
        ("commonLabels.app\\.kubernetes\\.io/part-of=x", "part-of"),
    ] {
        let set = if setting.ends_with(']') { "--set-json" } else { "--set" };
        let (succeeded, text) = helm_output(&[&["template", "r", CHART, set, setting], KUBE_VERSION].concat());
        assert!(!succeeded, "{setting} is accepted");
        assert!(text.contains(named) && text.contains("schema"), "{setting}: {text}");
    }
}

#[test]
fn settings_that_cannot_work_together_are_refused() {
    for (settings, named) in [
        ("serviceAccount.create=false", "serviceAccount.name"),
        ("quorumNamespaces={redis}", "defaultQuorum.namespace"),
        ("defaultQuorum.create=false,defaultQuorum.namespace=shared", "write that namespace into quorumNamespaces"),
        ("crds.annotations.helm\\.sh/resource-policy=a", "helm.sh/resource-policy"),
        ("defaultQuorum.spec.members=4", "set 1, 3, 5, 7 or 9 in total"),
        ("defaultQuorum.spec.external[0].name=a,defaultQuorum.spec.external[0].address=a:6379", "an odd number"),
        ("watchNamespaces={a},leaveOutNamespaces={a}", "a is in leaveOutNamespaces and in watchNamespaces"),
        ("clientNamespaces={a,b},leaveOutNamespaces={b}", "clientNamespaces"),
        ("quorumNamespaces={a,b},defaultQuorum.namespace=a,leaveOutNamespaces={b}", "quorumNamespaces"),
        ("namespaceOverride=a,leaveOutNamespaces={a}", "quorumNamespaces"),
        ("quorumNamespaces={*},namespaceOverride=a,leaveOutNamespaces={a}", "defaultQuorum.namespace"),
        ("test.namespace=a,leaveOutNamespaces={a}", "test.namespace"),
        ("extraObjects[0].apiVersion=redlock-operator.io/v1alpha1,extraObjects[0].kind=RedisQuorum", "after the chart"),
        ("extraObjects[0]=---\n{kind: DistributedLock\\, apiVersion: redlock-operator.io/v1alpha1}", "DistributedLock"),
        (
            "extraObjects[0].kind=List,extraObjects[0].items[0].kind=RedisQuorum,extraObjects[0].items[0].apiVersion=redlock-operator.io/v1",
            "after the chart",
        ),
    ] {
        let (succeeded, text) = helm_output(&[&["template", "r", CHART, "--set", settings], KUBE_VERSION].concat());
        assert!(!succeeded && text.contains(named), "{settings}: {text}");
    }
}

// ------------------------------------------------------------------- rendered ---

pub(crate) fn with_values(name: &str) -> Vec<Value> {
    let arguments =
        ["template", "redlock-operator", CHART, "--namespace", "redlock-system", "--values", &values_of(name)];
    objects(&run_helm(&[&arguments[..], KUBE_VERSION].concat()))
}

#[test]
fn every_value_is_changed_by_a_test_file_and_each_renders() {
    let files: Vec<Value> = VALUES.iter().map(|name| yaml(&values_of(name))).collect();
    for ChartValue { path, default, .. } in all_values() {
        let pointer = format!("/{}", path.replace('.', "/"));
        let turned = files.iter().filter_map(|file| file.pointer(&pointer)).any(|value| *value != default);
        assert!(turned, "no file in tests/chart has another value than the default for {path}");
    }
    for name in VALUES {
        run_helm(&[&["lint", "--strict", CHART, "--values", &values_of(name)], KUBE_VERSION].concat());
        assert!(of_kind(&with_values(name), "Deployment").count() == 1, "{name}");
    }
}

pub(crate) fn images(objects: &[Value]) -> Vec<String> {
    let containers = pods(objects).flat_map(|pod| pod["containers"].as_array().unwrap());
    let mut images: Vec<_> =
        containers.clone().map(|container| container["image"].as_str().unwrap().to_owned()).collect();
    let environment = containers.flat_map(|container| container["env"].as_array().into_iter().flatten());
    let quorum = environment.filter(|variable| variable["name"] == "REDLOCK_DEFAULT_QUORUM");
    images.extend(quorum.map(|variable| {
        let spec: Value = serde_json::from_str(variable["value"].as_str().unwrap()).unwrap();
        spec["image"].as_str().unwrap().to_owned()
    }));
    images.sort();
    images.dedup();
    images
}

#[test]
fn images_have_full_names_and_the_registry_of_the_values() {
    let version = env!("CARGO_PKG_VERSION");
    let public = format!("ghcr.io/redlock-operator/redlock-operator:{version}");
    assert_eq!(images(&rendered(&[])), [api::DEFAULT_IMAGE.to_owned(), public]);
    let digest = "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    let mirrored = |name: &str| format!("mirror.example.com:5000/public/{name}");
    let expected =
        [mirrored(&format!("redis@{digest}")), mirrored(&format!("redlock-operator/redlock-operator:{version}"))];
    assert_eq!(images(&with_values("mirror")), expected);
    let all = images(&with_values("everything"));
    assert!(all.iter().all(|image| image.starts_with("registry.example.com/")), "{all:?}");
    assert!(all[1].starts_with(&format!("registry.example.com/valkey/valkey:8.0@{digest}")), "{all:?}");
    let complete = ["defaultQuorum.spec.image=example.com/redis:7", "global.imageRegistry=mirror.example.com"];
    assert_eq!(images(&rendered(&complete))[0], "example.com/redis:7");
    let own = rendered(&["image.repository=registry.example.com/redlock-operator"]);
    assert_eq!(images(&own)[1], format!("registry.example.com/redlock-operator:{version}"));
}

#[test]
fn on_openshift_the_platform_chooses_the_users() {
    let objects = with_values("openshift");
    for pod in pods(&objects) {
        for field in ["runAsUser", "runAsGroup", "fsGroup"] {
            assert!(pod["securityContext"][field].is_null(), "{field} of {pod}");
        }
        assert_eq!(violations(pod), [""; 0]);
    }
}

#[test]
fn the_test_of_the_release_leaves_nothing_behind() {
    let objects = rendered(&[]);
    let hooks: Vec<_> =
        objects.iter().filter(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "test").collect();
    assert_eq!(hooks.len(), 4, "a pod, its account, and the account's rights");
    for hook in hooks {
        let policy = hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"].as_str().unwrap();
        for when in ["before-hook-creation", "hook-succeeded", "hook-failed"] {
            assert!(policy.contains(when), "{policy}");
        }
    }
}

// -------------------------------------------------------------------- members ---

/// The objects of a quorum that uses all settings of pods, and those of one that uses none.
fn members() -> Vec<Value> {
    let agent = json!({"name": "agent", "image": "registry.example.com/agent:1", "env": {"LEVEL": "info"}, "ports": {"metrics": 9121},
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "16Mi"}}});
    let pod = json!({"labels": {"team": "platform"}, "annotations": {"sidecar.istio.io/inject": "false"}, "priorityClassName": "members",
        "runtimeClassName": "sandbox", "securityContext": {"runAsUser": 1_000_680_000, "fsGroup": 1_000_680_000}, "extraContainers": [agent]});
    let client = json!([{"name": "billing", "namespace": "shop", "keyPrefix": "shop/"}]);
    let specs = [json!({"pod": pod, "clients": client}), json!({"tls": {"mode": "Disabled"}, "members": 1})];
    let objects = ["full", "plain"].into_iter().zip(specs).flat_map(|(name, spec)| {
        let mut quorum = api::RedisQuorum::new(name, serde_json::from_value(spec).unwrap());
        quorum.metadata.namespace = Some("shop".into());
        quorum.metadata.uid = Some("00000000-0000-0000-0000-000000000001".into());
        let (plan, auth) = (plan::validate(&quorum).unwrap(), Auth::from_seed(&[9; 32]).unwrap());
        let labels =
            [("app.kubernetes.io/name", "redlock-operator")].map(|(key, value)| (key.into(), value.into())).into();
        let mut objects = build(&plan, &auth, operator_pods("redlock-system", &labels), &Transport::default());
        // The contents must not be in a file, and no rule checks them.
        objects.config.data = None;
        objects.clients.iter_mut().for_each(|secret| secret.data = None);
        let mut all = vec![json!(objects.config), json!(objects.disruption_budget), json!(objects.network_policy)];
        all.extend(objects.clients.iter().map(|object| json!(object)));
        all.extend(objects.services.iter().take(1).map(|object| json!(object)));
        all.extend(objects.stateful_sets.iter().take(1).map(|object| json!(object)));
        all
    });
    objects.collect()
}

#[test]
fn the_objects_of_a_quorum_are_generated_for_api_servers() {
    let documents =
        members().iter().map(|object| format!("---\n{}", serde_yaml::to_string(object).unwrap())).collect::<String>();
    let header = "# Generated by `UPDATE=1 cargo test --test generated`: do not edit.";
    check("tests/chart/members.yaml", &format!("{header}\n{documents}"));
}
