//! Generated files equal what generates them: `crds/` the Rust types, the chart's copies `crds/`, and
//! `manifests/install.yaml` the chart. `UPDATE=1 cargo test --test generated` rewrites them.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod argo;
mod bundle;
mod chart;
mod failover;
mod fields;
mod overrides;
mod picture;
mod reference;
mod rights;
mod sizing;
mod snippets;
#[path = "../support/sources.rs"]
mod sources;
mod stability;
mod values;
mod versions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use redlock_operator::api;
use serde_json::Value;

const HEADER: &str = "# Generated from crates/api/src by `UPDATE=1 cargo test --test generated`: do not edit.\n";
const CHART: &str = "charts/redlock-operator";
/// The oldest version that the chart allows.
///
/// Without this argument helm assumes the version for which it was built.
const KUBE_VERSION: &[&str] = &["--kube-version", "1.30.0"];
const INSTALL: &str = "manifests/install.yaml";
const INSTALL_NAMESPACE: &str = "\
apiVersion: v1
kind: Namespace
metadata:
  name: redlock-system
  labels:
    app.kubernetes.io/name: redlock-operator
    app.kubernetes.io/part-of: redlock-operator
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/audit: restricted
    pod-security.kubernetes.io/warn: restricted
";

/// The first line of manifests that helm renders.
const RENDERED: &str =
    "# Generated from charts/redlock-operator by `UPDATE=1 cargo test --test generated`: do not edit.\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn crd_files() -> BTreeMap<String, String> {
    let files = api::crds().into_iter().map(|crd| {
        (format!("{}.yaml", crd.spec.names.plural), format!("{HEADER}{}", serde_yaml::to_string(&crd).unwrap()))
    });
    files.collect()
}

/// Compares a file with its expected text, or rewrites it.
fn check(path: impl AsRef<Path>, expected: &str) {
    let path = root().join(path);
    if env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, expected).unwrap();
        return;
    }
    let actual = fs::read_to_string(&path).unwrap_or_default();
    let line = actual.lines().zip(expected.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or_else(|| actual.lines().count().min(expected.lines().count())) + 1;
    let (path, update) = (path.display(), "run `UPDATE=1 cargo test --test generated`");
    assert!(actual == expected, "{path} is out of date, first difference at line {line}: {update}");
}

/// Compares the lines of a page between these two, or rewrites them.
fn check_part(page: &str, begin: &str, end: &str, expected: &str) {
    let text = read(page);
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    check(page, &format!("{before}{begin}\n{expected}{end}{after}"));
}

/// Fails if the folder has other YAML files, because a removed kind would stay installed.
fn check_names(folder: &str, expected: &BTreeMap<String, String>) {
    let names = fs::read_dir(root().join(folder)).into_iter().flatten();
    let names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for name in names {
        assert!(expected.contains_key(&name), "{folder}/{name} is no longer generated: remove it");
    }
}

/// The path of a tool: that of `make up` in the repository, or else the one on the PATH.
fn tool(name: &str) -> PathBuf {
    let local = root().join(".local/bin").join(name);
    if local.exists() { local } else { name.into() }
}

fn run_helm(args: &[&str]) -> String {
    let (succeeded, text) = helm_output(args);
    assert!(succeeded, "helm {args:?}: {text}");
    text
}

/// Whether helm succeeded, and its output or its error.
fn helm_output(args: &[&str]) -> (bool, String) {
    let helm = env::var_os("HELM").map_or_else(|| tool("helm"), PathBuf::from);
    let output = Command::new(&helm).args(args).current_dir(root()).output().unwrap_or_else(|error| {
        panic!(
            "this test needs helm, and `{}` cannot be run ({error}): run `make up` once, or set HELM=/path/to/helm",
            helm.display()
        )
    });
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let succeeded = output.status.success();
    (succeeded, if succeeded { stdout.into_owned() } else { format!("{stderr}{stdout}") })
}

#[test]
fn crds_are_those_of_the_code() {
    let files = crd_files();
    for folder in ["crds".to_owned(), format!("{CHART}/files/crds")] {
        for (name, content) in &files {
            check(Path::new(&folder).join(name), content);
        }
        check_names(&folder, &files);
    }
}

/// The objects of the chart in the namespace redlock-system, for an installation without Helm.
fn rendered_for_kubectl(arguments: &[&str]) -> String {
    let namespace = ["--namespace", "redlock-system"];
    let chart = ["template", "redlock-operator", CHART, "--no-hooks"];
    let rendered = run_helm(&[&chart[..], &namespace, KUBE_VERSION, arguments].concat());
    rendered.split_inclusive('\n').filter(|line| line.trim() != "app.kubernetes.io/managed-by: Helm").collect()
}

#[test]
fn the_install_manifest_is_rendered_from_the_chart() {
    // Tests run in any order, so write the CRDs of the chart first.
    if env::var_os("UPDATE").is_some() {
        crds_are_those_of_the_code();
    }
    check(INSTALL, &format!("{RENDERED}{INSTALL_NAMESPACE}{}", rendered_for_kubectl(&[])));
    let gate = "templates/admission-leases.yaml";
    let policies = rendered_for_kubectl(&["--set", "leaseGate.enabled=true", "--show-only", gate]);
    check("manifests/lease-gate/policies.yaml", &format!("{RENDERED}{policies}"));
}

/// Checks an object of our kinds, and returns the name of its kind.
///
/// Other objects are left out.
fn read_back(value: &Value) -> Option<String> {
    let kind = value["kind"].as_str()?.to_owned();
    // The result has every field of the input. A misspelt field would be missing.
    let read = match kind.as_str() {
        "RedisQuorum" => serde_json::to_value(serde_json::from_value::<api::RedisQuorum>(value.clone()).unwrap()),
        "DistributedLock" => {
            serde_json::to_value(serde_json::from_value::<api::DistributedLock>(value.clone()).unwrap())
        }
        _ => return None,
    };
    assert_contains(&read.unwrap(), value, &kind);
    Some(kind)
}

#[test]
fn samples_are_readable_by_the_types() {
    let mut kinds = Vec::new();
    for file in fs::read_dir(root().join("manifests/samples")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        kinds.extend(text.split("\n---\n").filter_map(|document| read_back(&serde_yaml::from_str(document).unwrap())));
    }
    kinds.sort();
    assert_eq!(kinds, ["DistributedLock", "DistributedLock", "RedisQuorum", "RedisQuorum"]);
}

#[test]
fn manifests_in_the_documentation_are_readable_by_the_types() {
    let mut found = 0;
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    for path in pages.chain([root().join("README.md")]).filter(|path| path.extension().is_some_and(|it| it == "md")) {
        let text = fs::read_to_string(&path).unwrap();
        for block in text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            let indent = block.len() - block.trim_start_matches(' ').len();
            let lines: Vec<_> = block.lines().map(|line| line.get(indent..).unwrap_or_default()).collect();
            for document in lines.join("\n").split("\n---\n") {
                let value: Value =
                    serde_yaml::from_str(document).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found += usize::from(read_back(&value).is_some());
            }
        }
    }
    assert!(found >= 8, "only {found} manifests");
}

fn assert_contains(whole: &Value, part: &Value, path: &str) {
    match (whole, part) {
        (_, Value::Object(fields)) => {
            fields.iter().for_each(|(name, value)| assert_contains(&whole[name], value, &format!("{path}.{name}")))
        }
        (Value::Array(all), Value::Array(items)) if all.len() == items.len() => {
            all.iter().zip(items).for_each(|(one, item)| assert_contains(one, item, path))
        }
        _ => assert_eq!(whole, part, "{path}"),
    }
}

/// The pattern of a text whose rule refuses every other text with a message.
fn pattern(schema: &Value) -> Option<&str> {
    schema["x-kubernetes-validations"][0]["rule"].as_str()?.strip_prefix("self.matches(r'")?.strip_suffix("')")
}
