//! Nothing of the workspace is left out: cargo takes the root package alone unless a command says `--workspace`.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// Commands of cargo that take packages.
const OF_PACKAGES: [&str; 6] = ["build", "check", "clippy", "doc", "run", "test"];

/// Programs of tests that `cargo test --workspace` runs, as `package: target`.
const TEST_BINARIES: [&str; 19] = [
    "redlock-api: redlock_api",
    "redlock-bench: redlock-bench",
    "redlock-cli: redlock_cli",
    "redlock-client: redis",
    "redlock-client: redlock_client",
    "redlock-engine: redlock_engine",
    "redlock-operator: chaos",
    "redlock-operator: docs",
    "redlock-operator: generated",
    "redlock-operator: layers",
    "redlock-operator: memory",
    "redlock-operator: model",
    "redlock-operator: redis",
    "redlock-operator: redlock",
    "redlock-operator: redlock_operator",
    "redlock-operator: run",
    "redlock-operator: simulation",
    "redlock-operator: words",
    "redlock-simulation: redlock_simulation",
];

/// This program is one of them.
const SELF: &str = "redlock-operator: workspace";

fn files(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_script = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "sh" || e == "yaml");
    entries.filter(|path| path.is_file() && is_script(path)).map(|path| path.display().to_string()).collect()
}

#[test]
fn every_cargo_command_takes_the_whole_workspace() {
    let mut seen = 0;
    let named = ["Makefile".to_owned(), "Dockerfile".to_owned()];
    for file in files("dev").into_iter().chain(files(".github/workflows")).chain(named) {
        let text = fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            for call in line.split("cargo ").skip(1) {
                let Some(command) = call.split_whitespace().find(|word| !word.starts_with('+')) else { continue };
                if OF_PACKAGES.contains(&command) {
                    seen += 1;
                    let chosen = ["--workspace", "--package", "--manifest-path"];
                    assert!(chosen.iter().any(|flag| call.contains(flag)), "{file}: cargo {call}");
                }
            }
        }
    }
    assert!(seen >= 10, "only {seen} commands were found");
}

#[test]
fn workflows_name_the_commits_of_actions() {
    let mut seen = 0;
    for file in files(".github/workflows") {
        let text = fs::read_to_string(&file).unwrap();
        for action in text.lines().filter_map(|line| line.trim_start().trim_start_matches("- ").strip_prefix("uses: "))
        {
            seen += 1;
            let commit = action.split(' ').next().and_then(|action| action.split_once('@')).map(|(_, commit)| commit);
            let is_commit = |commit: &str| commit.len() == 40 && commit.bytes().all(|digit| digit.is_ascii_hexdigit());
            assert!(commit.is_some_and(is_commit), "{file}: {action}: a tag can be moved");
        }
    }
    assert!(seen >= 10, "only {seen} actions were found");
}

/// A job with permissions of its own can publish, so no code of dependencies runs in it.
#[test]
fn jobs_that_can_write_compile_nothing() {
    let mut writers = Vec::new();
    for file in files(".github/workflows") {
        let workflow: serde_yaml::Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let read_only: serde_yaml::Value = serde_yaml::from_str("{contents: read}").unwrap();
        assert_eq!(workflow["permissions"], read_only, "{file}");
        for (name, job) in workflow["jobs"].as_mapping().unwrap() {
            if job.get("permissions").is_none() {
                continue;
            }
            writers.push(format!("{file}: {}", name.as_str().unwrap()));
            let steps = serde_yaml::to_string(&job["steps"]).unwrap();
            for tool in ["actions/checkout", "cargo ", "make ", "build-push-action"] {
                assert!(!steps.contains(tool), "{file}: {steps}");
            }
        }
    }
    assert_eq!(writers, [".github/workflows/release.yaml: publish"]);
}

/// Git refuses the workspace of a container job, and a build with Go asks Git for the version.
#[test]
fn jobs_in_containers_that_build_with_go_can_use_git() {
    for file in files(".github/workflows") {
        let workflow: serde_yaml::Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for (name, job) in workflow["jobs"].as_mapping().unwrap() {
            let steps = serde_yaml::to_string(&job["steps"]).unwrap();
            if job.get("container").is_some() && steps.contains("actions/setup-go") {
                assert!(steps.contains("safe.directory"), "{file}: {name:?}");
            }
        }
    }
}

/// `dev/mutants.sh` also builds and runs them, once a week. It applies all of them to one copy, in the order of their names.
#[test]
fn every_mutant_applies_alone_and_after_the_others() {
    let root = std::env::current_dir().unwrap();
    let found = fs::read_dir("crates/simulation/tests/operator/mutants").unwrap().map(|entry| entry.unwrap().path());
    let mut patches: Vec<_> = found.filter(|path| path.extension().is_some_and(|e| e == "patch")).collect();
    patches.sort();
    assert!(patches.len() > 40, "{patches:?}");
    let copy = std::env::temp_dir().join(format!("redlock-mutants-{}", std::process::id()));
    let apply = |folder: &Path, options: &[&str], patch: &Path| {
        let mut command = Command::new("patch");
        let applied =
            command.current_dir(folder).args(["-s", "-f", "-p1"]).args(options).arg("-i").arg(root.join(patch));
        let applied = applied.output().unwrap();
        assert!(applied.status.success(), "{patch:?} in {folder:?}: {}", String::from_utf8_lossy(&applied.stdout));
    };
    for patch in &patches {
        apply(&root, &["--dry-run"], patch);
        let text = fs::read_to_string(patch).unwrap();
        for changed in text.lines().filter_map(|line| line.strip_prefix("+++ b/")) {
            let copied = copy.join(changed);
            fs::create_dir_all(copied.parent().unwrap()).unwrap();
            fs::copy(changed, copied).unwrap();
        }
    }
    for patch in &patches {
        apply(&copy, &[], patch);
    }
    fs::remove_dir_all(copy).unwrap();
}

#[test]
fn every_part_of_the_proof_runs_every_week() {
    let (script, workflow) =
        (fs::read_to_string("dev/prove.sh").unwrap(), fs::read_to_string(".github/workflows/prove.yaml").unwrap());
    let parts = script.split_once("${PARTS:-").unwrap().1.split_once('}').unwrap().0;
    assert!(workflow.contains(&format!("part: [{}]", parts.replace(' ', ", "))), "{parts}");
    assert!(script.contains("lib.sh"), "OPTIMIZED is set there");
}

#[test]
fn advisories_are_read_every_week() {
    let weekly = files(".github/workflows").into_iter().map(|file| fs::read_to_string(file).unwrap());
    let checks = ["schedule: [{cron: ", "command: check advisories", "govulncheck@v"];
    assert_eq!(weekly.filter(|text| checks.iter().all(|check| text.contains(check))).count(), 1);
}

/// Suite `chaos` runs in the workflow `prove`.
#[test]
fn every_suite_runs_at_night_and_has_its_last_result() {
    let suites = fs::read_to_string("tests/e2e/main.rs").unwrap();
    let suites: Vec<&str> = suites
        .lines()
        .filter_map(|line| line.trim().strip_prefix("(\"")?.split_once("\", suite_").map(|(name, _)| name))
        .collect();
    assert!(suites.len() > 10, "{suites:?}");
    let nightly = fs::read_to_string(".github/workflows/nightly.yaml").unwrap();
    let matrix = nightly.lines().find_map(|line| line.trim().strip_prefix("suite: [")?.strip_suffix(']')).unwrap();
    let mut runs: Vec<&str> = matrix.split(", ").chain(["chaos"]).collect();
    let results = fs::read_to_string("docs/dev/suites.md").unwrap();
    let mut named: Vec<&str> =
        results.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |").map(|(name, _)| name)).collect();
    let mut suites = suites;
    for names in [&mut suites, &mut runs, &mut named] {
        names.sort_unstable();
    }
    assert_eq!((&runs, &named), (&suites, &suites));
}

#[test]
fn no_test_binary_is_left_out() {
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).output().unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let targets = package["targets"].as_array().unwrap().iter();
        for target in targets.filter(|target| target["test"] == true && target["kind"][0] != "example") {
            found.insert(format!("{}: {}", package["name"].as_str().unwrap(), target["name"].as_str().unwrap()));
        }
    }
    assert!(Path::new("crates/client/Cargo.toml").exists());
    assert!(found.remove(SELF));
    assert_eq!(found, TEST_BINARIES.map(str::to_owned).into());
}

/// `go get` finds a version of the module by the tag `go/v<version>`.
///
/// A release without the tag has no module to fetch.
#[test]
fn a_release_needs_the_tag_of_the_go_module() {
    let folder = std::env::temp_dir().join(format!("redlock-release-{}", std::process::id()));
    fs::create_dir_all(folder.join("packaging")).unwrap();
    for file in ["packaging/release.sh", "Cargo.toml"] {
        fs::copy(file, folder.join(file)).unwrap();
    }
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        // Without cargo and helm the script ends right after its check of the tags.
        command.args(arguments).current_dir(&folder).env("PATH", "/usr/bin:/bin").env("GITHUB_REF_TYPE", "tag");
        command.env("GITHUB_REF_NAME", concat!("v", env!("CARGO_PKG_VERSION")));
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let git = |arguments: &[&str]| {
        let named = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "tag.gpgSign=false"];
        let (is_done, text) = run("git", &[&named[..], arguments].concat());
        assert!(is_done, "{text}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--no-gpg-sign", "--message", "release"]);
    let refusal = "of the Go module is missing on this commit";
    let release = folder.join("packaging/release.sh").display().to_string();
    let (is_done, text) = run(&release, &[]);
    assert!(!is_done && text.contains(refusal), "{text}");
    git(&["tag", concat!("go/v", env!("CARGO_PKG_VERSION"))]);
    let (_, text) = run(&release, &[]);
    assert!(!text.contains(refusal), "{text}");
    fs::remove_dir_all(folder).unwrap();
}

/// A filter that matches no test would run nothing.
#[test]
fn filters_of_the_makefile_match_tests() {
    let makefile = fs::read_to_string("Makefile").unwrap();
    let calls = makefile.lines().filter_map(|line| line.split_once("dev/e2e.sh ")?.1.split(';').next());
    let mut filters = 0;
    for (suite, filter) in calls.filter_map(|call| call.trim().split_once(' ')).filter(|call| !call.0.contains('$')) {
        let tests = fs::read_to_string(format!("tests/e2e/suite_{suite}.rs")).unwrap();
        assert!(tests.contains(filter.trim()), "suite {suite} has no test {filter:?}");
        filters += 1;
    }
    assert!(filters > 0);
}
