//! Cargo.toml has the version. All repetitions of it must be equal. The names of images and the support matrix must be correct.

use std::fs;

use redlock_operator::api;

use crate::{CHART, read, root};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The text after these words, up to white space or a quotation mark.
fn after<'a>(text: &'a str, words: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(words).skip(1).map(|rest| {
        let end = rest.find(|c: char| c.is_whitespace() || "\"'`,)".contains(c)).unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn the_version_is_the_same_everywhere() {
    let chart = read(&format!("{CHART}/Chart.yaml"));
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {VERSION}");
        assert!(chart.lines().any(|l| l == line), "Chart.yaml: write `{line}`");
    }
    let line = format!("  version: v{VERSION}");
    assert!(read("packaging/krew.yaml").lines().any(|it| it == line), "packaging/krew.yaml");
    let mut seen = 0;
    let pages = "README.md docs/quickstart.md docs/installation.md docs/run.md docs/agent.md docs/any-controller.md \
        docs/multi-cluster.md docs/which-way.md docs/languages.md docs/command.md docs/verify.md manifests/install.yaml \
        manifests/samples/migration.yaml manifests/samples/cron.yaml manifests/samples/leader.yaml Dockerfile";
    for page in pages.split(' ') {
        let text = read(page);
        let named = [
            "redlock-operator:",
            "charts/redlock-operator --version ",
            "redlock-operator-",
            "charts/redlock-operator:",
            "refs/tags/v",
            "redlock_",
            "ARG VERSION=",
        ];
        for found in named.iter().flat_map(|words| after(&text, words)) {
            let found =
                found.trim_end_matches(".tgz").trim_end_matches(".cdx.json").trim_end_matches("_linux_amd64.tar.gz");
            if found.starts_with(|c: char| c.is_ascii_digit()) {
                assert_eq!(found, VERSION, "{page}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 8, "only {seen} places were found");
}

#[test]
fn images_are_named_alike_everywhere() {
    let repository = |image: &str| image.rsplit_once(':').map(|(repository, _)| repository.to_owned()).unwrap();
    let redis = repository(api::DEFAULT_IMAGE);
    for page in ["docs/installation.md", "manifests/samples/quorum.yaml"] {
        let text = read(page);
        let named: Vec<_> = after(&text, &format!("{redis}:")).map(str::to_owned).collect();
        assert!(!named.is_empty(), "{page} does not name {redis}");
        assert!(named.iter().all(|tag| format!("{redis}:{tag}") == api::DEFAULT_IMAGE), "{page}: {named:?}");
    }
    // Container runtimes resolve the name of an image without a registry differently.
    for folder in ["manifests/samples", "tests/chart"] {
        for file in fs::read_dir(root().join(folder)).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            for image in after(&text, " image: ").filter(|image| !image.starts_with('{') && !image.is_empty()) {
                let registry = image.split('/').next().unwrap();
                assert!(registry.contains('.') && image.contains('/'), "{}: {image}", path.display());
            }
        }
    }
}

/// The minor version of Kubernetes that a Go module of the local cluster pins.
fn kubernetes(folder: &str) -> String {
    let module = read(&format!("dev/{folder}/go.mod"));
    let version = after(&module, "k8s.io/kubernetes v").next().unwrap().to_owned();
    version.rsplit_once('.').map(|(minor, _)| minor.to_owned()).unwrap()
}

#[test]
fn the_support_matrix_names_the_tested_versions() {
    let (oldest, local, newest) = (kubernetes("kube-oldest"), kubernetes("kube"), kubernetes("kube-newest"));
    let chart = read(&format!("{CHART}/Chart.yaml"));
    let allowed = format!("kubeVersion: \">={oldest}.0-0\"");
    assert!(chart.contains(&allowed), "Chart.yaml allows another version than {oldest}");
    let page = read("docs/installation.md");
    assert!(page.contains(&format!("| Kubernetes | {oldest} and newer |")), "docs/installation.md");
    assert!(page.contains(&format!("end-to-end suites on {local};")), "docs/installation.md: {local}");
    assert!(page.contains(&format!("API servers of {oldest}, {local} and {newest} ")), "docs/installation.md");
    assert!(read("README.md").contains(&format!("Kubernetes {oldest} or newer")), "README.md");
}

#[test]
fn the_quick_start_and_the_sample_elect_in_the_same_way() {
    let (page, sample) = (read("docs/quickstart.md"), read("manifests/samples/election.yaml"));
    for line in [
        "command: [sh, -c, 'hostname > /tmp/index.html && exec busybox httpd -f -p 8080 -h /tmp']",
        "leader.redlock-operator.io/scheduler: \"true\"",
    ] {
        assert!(page.contains(line) && sample.contains(line), "{line}");
    }
}
