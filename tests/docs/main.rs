//! Documentation that can be checked: pages, comments, fields, and the tests that tables name.
#![expect(clippy::unwrap_used, reason = "a test")]

mod comments;
mod names;
mod prose;
#[path = "../support/sources.rs"]
mod sources;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use redlock_operator::api::{
    self,
    conditions::{AcceptedReason, CommonReason, HeldReason},
};
use serde_json::Value;
use sources::sources;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of all Rust files below these folders.
fn code_of(folders: &[&str]) -> String {
    let files = folders.iter().flat_map(|folder| sources(&root().join(folder)));
    files.map(|path| fs::read_to_string(path).unwrap()).collect()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// All Markdown files of the root folder, docs, docs/dev and docs/reference.
fn pages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in [root().to_owned(), root().join("docs"), root().join("docs/dev"), root().join("docs/reference")] {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        found.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    assert!(found.len() > 15, "{found:?}");
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

#[test]
fn every_reason_of_every_condition_is_explained() {
    let reasons = AcceptedReason::ALL.iter().map(|reason| reason.as_str());
    let reasons = reasons.chain(HeldReason::ALL.iter().map(|reason| reason.as_str()));
    let conditions = page("reference/conditions.md");
    let explained = |reason: &&str| conditions.lines().any(|line| line.ends_with(&format!(" · {reason}")));
    let missing: Vec<_> =
        reasons.chain(CommonReason::ALL.iter().map(|reason| reason.as_str())).filter(|it| !explained(it)).collect();
    assert!(missing.is_empty(), "docs/reference/conditions.md has no {missing:?}");
}

/// The anchor of a heading on GitHub and in mdBook, or an empty text for another line.
fn anchor_of(line: &str) -> String {
    let heading = line.trim_start_matches('#').trim();
    let is_heading = line.starts_with('#') && !heading.is_empty();
    let kept = heading.to_lowercase().replace(|c: char| !(c.is_alphanumeric() || c == ' ' || c == '-' || c == '_'), "");
    if is_heading { kept.replace(' ', "-") } else { String::new() }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        // Code between backticks can contain patterns.
        let text: String = text.lines().flat_map(|line| line.split('`').step_by(2).chain(["\n"])).collect();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // These are external links, or patterns with the same brackets.
            if link.contains("://") || link.contains(['[', '*', '^']) {
                continue;
            }
            let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let has = |anchor: &str| fs::read_to_string(&target).unwrap().lines().any(|line| anchor_of(line) == anchor);
            if !target.exists() || anchor.is_some_and(|anchor| !has(anchor)) {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The minimum number of lines on a reader's screen.
const SCREEN: usize = 40;

#[test]
fn the_first_lock_comes_on_the_first_two_screens_of_the_readme() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let at = text.lines().position(|line| line.starts_with("kubectl wait --for=condition=Held")).unwrap();
    assert!(at < 2 * SCREEN, "the first lock is held in line {at}");
}

const TESTED: &str = "<!-- tested by: ";
const NOT_TESTED: &str = "<!-- not tested: ";

/// Blocks that another test compares with their sources.
const COPIED: [&str; 2] = [LINES_OF, "<!-- Code from "];

/// Checks that each command or manifest names the test or script that runs it.
///
/// If nothing runs it, the page gives the reason.
#[test]
fn every_documented_command_and_manifest_is_run_or_exempt() {
    let code = code_of(&["tests"]);
    let mut without = Vec::new();
    for (path, text) in pages() {
        let lines: Vec<&str> = text.lines().collect();
        let is_run = |line: &&str| ["```sh", "```yaml", "```sql"].contains(&line.trim());
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_run(line)) {
            let place = format!("{}:{}", path.display(), at + 1);
            let marker = at.checked_sub(1).map_or("", |before| lines[before].trim());
            if line.trim() != "```sh" && COPIED.iter().any(|beginning| marker.starts_with(beginning)) {
                continue;
            }
            let marked = |beginning| Some(marker.strip_prefix(beginning)?.strip_suffix(" -->")?.to_owned());
            match (marked(TESTED), marked(NOT_TESTED)) {
                (Some(by), _) => {
                    let is_there = root().join(&by).exists() || code.contains(&format!("fn {by}("));
                    assert!(is_there, "{place}: there is no test {by}");
                }
                (None, why) => without.push((place, why)),
            }
        }
    }
    let unmarked: Vec<_> = without.iter().filter(|(_, why)| why.is_none()).map(|(place, _)| place).collect();
    assert!(unmarked.is_empty(), "write `{TESTED}NAME -->` or `{NOT_TESTED}WHY -->` above {unmarked:#?}");
    println!("commands that no test runs: {without:#?}");
}

const LINES_OF: &str = "<!-- Lines of ";

/// An extract has no line that its source lacks, so a test of the source tests the extract.
#[test]
fn extracts_have_the_lines_of_their_sources() {
    let mut extracts = 0;
    for (path, text) in pages() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(source) = line.strip_prefix(LINES_OF).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
            let whole = fs::read_to_string(root().join(source)).unwrap_or_else(|error| panic!("{source}: {error}"));
            let of_source: BTreeSet<&str> = whole.lines().map(str::trim).collect();
            assert!(lines[at + 1].starts_with("```"), "{}:{}: a fence follows", path.display(), at + 1);
            let extract = lines[at + 2..].iter().take_while(|line| **line != "```");
            let strange: Vec<_> = extract.filter(|line| !of_source.contains(line.trim())).collect();
            assert!(strange.is_empty(), "{}: {source} has no {strange:#?}", path.display());
            extracts += 1;
        }
    }
    assert!(extracts >= 7, "only {extracts} extracts were found");
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = page("SUMMARY.md");
    let mut listed: Vec<&str> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    listed.sort_unstable();
    let docs = root().join("docs");
    let pages = pages().into_iter().filter_map(|(path, _)| Some(path.strip_prefix(&docs).ok()?.to_owned()));
    let mut there: Vec<_> =
        pages.map(|path| path.to_str().unwrap().to_owned()).filter(|it| it != "SUMMARY.md").collect();
    there.sort_unstable();
    assert_eq!(listed, there);
}

#[test]
fn the_glossary_is_short() {
    let text = page("glossary.md");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!((15..=25).contains(&rows.len()), "{} terms", rows.len());
    let long: Vec<_> = rows.iter().filter(|row| row.split_whitespace().count() > 30).collect();
    assert!(long.is_empty(), "{long:#?}");
}

/// Every field below this schema, by its path, with its description.
fn fields(schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        found.push((path.clone(), field["description"].as_str().unwrap_or_default().to_owned()));
        fields(field, &path, found);
    }
    if schema["items"].is_object() {
        fields(&schema["items"], path, found);
    }
}

/// Fields of Kubernetes' own types, whose descriptions are not ours.
const KUBERNETES: [&str; 4] = [".affinity.", ".status.conditions.", ".topologySpreadConstraints.", ".tolerations."];

#[test]
fn kubectl_explains_every_field() {
    for crd in api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let mut found = Vec::new();
        fields(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut found);
        assert!(found.len() > 40, "only {} fields were found", found.len());
        let silent: Vec<_> = found
            .iter()
            .filter(|(path, text)| text.trim().len() < 8 && !KUBERNETES.iter().any(|of| path.contains(of)))
            .map(|(path, _)| path)
            .collect();
        assert!(silent.is_empty(), "{}: no description of {silent:?}", crd["spec"]["names"]["kind"]);
    }
}

#[test]
fn tests_that_the_documentation_names_exist() {
    let code = code_of(&["crates", "src", "tests"]);
    let (mut missing, mut found) = (Vec::new(), 0);
    for (path, text) in pages() {
        // Names of tests are sentences. Only metrics also have several underscores. STYLE.md shows a bad name.
        let named = text.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() >= 2);
        let named = named.filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        let is_other = |word: &str| ["redlock_", "process_", "who_waits"].iter().any(|start| word.starts_with(start));
        let named: BTreeSet<_> = named.filter(|word| !is_other(word)).collect();
        found += named.len();
        let unknown = named.iter().filter(|name| !code.contains(&format!("fn {name}(")));
        missing.extend(unknown.map(|name| format!("{}: {name}", path.display())));
    }
    assert!(found > 250, "only {found} names were found");
    assert!(missing.is_empty(), "tests that do not exist: {missing:#?}");
}

/// Behaviours that the index of places must have, by a part of their text.
const PLACES: [&str; 20] = [
    "next step of a lock",
    "the Redis key of a lock",
    "the signed value of a key",
    "own value on a key",
    "foreign owner of a key",
    "keeps its lock",
    "container has ended",
    "the queue for a key",
    "renewal of held locks",
    "the grant",
    "between two attempts of a client",
    "refusal of the API server",
    "printer columns",
    "when a member can vote",
    "restored token counter",
    "change of the member list",
    "NetworkPolicy of the members",
    "eviction of a connection",
    "HTTP answer of the agent",
    "election of the operator's leader",
];

/// The minimum number of rows in the index of places.
const LEAST_PLACES: usize = 75;

#[test]
fn places_that_the_index_names_exist() {
    let text = page("dev/places.md");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ") && line.contains("src/")).collect();
    assert!(rows.len() >= LEAST_PLACES, "only {} rows were found", rows.len());
    let missing: Vec<_> = PLACES.into_iter().filter(|place| !rows.iter().any(|row| row.contains(place))).collect();
    assert!(missing.is_empty(), "no row has {missing:?}");
    for row in rows {
        let mut quoted = row.rsplit('`').skip(1).step_by(2);
        let (name, file) = (quoted.next().unwrap(), quoted.next().unwrap());
        let code = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_there = ["fn ", "struct ", "enum ", "\""].iter().any(|before| {
            code.match_indices(&format!("{before}{name}"))
                .any(|(at, found)| !code[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        });
        assert!(is_there, "{file} has no {name}");
    }
}
