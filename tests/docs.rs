//! Documentation that can be checked: conditions, fields, and the tests that tables name.
#![expect(clippy::unwrap_used, reason = "a test")]

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

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// What stands between backticks at the beginning of a table's row.
fn first_cells(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn every_reason_of_every_condition_is_explained_and_no_other() {
    let reasons = AcceptedReason::ALL.iter().map(|reason| reason.as_str());
    let reasons = reasons.chain(HeldReason::ALL.iter().map(|reason| reason.as_str()));
    let reasons: BTreeSet<String> =
        reasons.chain(CommonReason::ALL.iter().map(|reason| reason.as_str())).map(str::to_owned).collect();
    assert_eq!(first_cells(&page("conditions.md")), reasons, "docs/conditions.md");
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

/// Kubernetes' own types come with their own texts, or without.
const KUBERNETES: [&str; 3] = [".affinity.", ".topologySpreadConstraints.", ".tolerations."];

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

fn sources(folder: PathBuf, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn tests_that_the_documentation_names_exist() {
    let mut code = String::new();
    for folder in ["client/src", "src", "tests"] {
        sources(root().join(folder), &mut code);
    }
    for page_name in ["complaints.md", "scenarios.md", "security.md"] {
        let text = page(page_name);
        // Names of tests are sentences: nothing else between backticks has so many underscores.
        let named = text.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() >= 4);
        let named: BTreeSet<_> = named.filter(|word| word.chars().all(|c| c.is_alphanumeric() || c == '_')).collect();
        assert!(named.len() > 10, "docs/{page_name}: only {} names were found", named.len());
        let missing: Vec<_> = named.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
        assert!(missing.is_empty(), "docs/{page_name} names tests that do not exist: {missing:?}");
    }
}

/// Words that stand where an actor or a time is missing (docs/STYLE.md, rule 10).
const AVOIDED: [&str; 7] = ["shall", "anew", "somebody", "whoever", "nobody", "is over", "for ever"];

fn avoided(text: &str) -> Vec<&'static str> {
    let text = format!(" {} ", text.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != '_', " "));
    AVOIDED.into_iter().filter(|word| text.contains(&format!(" {word} "))).collect()
}

#[test]
fn what_users_read_first_is_plain_and_its_sentences_are_short() {
    let mut found = Vec::new();
    for crd in api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        found.push((String::new(), schema["description"].as_str().unwrap().to_owned()));
        fields(schema, "", &mut found);
    }
    let ours = found.iter().filter(|(path, _)| !KUBERNETES.iter().any(|of| path.contains(of)));
    for (path, text) in ours {
        assert!(avoided(text).is_empty(), "{path}: {:?} in {text:?}", avoided(text));
        let long = text.split(['.', '?', '!']).find(|sentence| sentence.split_whitespace().count() > 30);
        assert!(long.is_none(), "{path}: a sentence of more than 30 words: {long:?}");
    }
    for name in
        ["conditions.md", "annotations.md", "clients.md", "external.md", "fencing.md", "monitoring.md", "security.md"]
    {
        assert!(avoided(&page(name)).is_empty(), "docs/{name}: {:?}", avoided(&page(name)));
    }
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(avoided(&readme).is_empty(), "README.md: {:?}", avoided(&readme));
}

/// What the operator says in conditions, Events, errors and logs: every text between quotation marks in `src`, but for tests.
#[test]
fn messages_of_the_operator_name_their_actors() {
    let mut code = String::new();
    sources(root().join("src"), &mut code);
    sources(root().join("client/src"), &mut code);
    let product: String = code
        .split("#[cfg(test)]\nmod tests {")
        .enumerate()
        // A module of tests ends with the first brace at the beginning of a line.
        .map(|(index, part)| if index == 0 { part } else { part.split_once("\n}\n").map_or("", |(_, rest)| rest) })
        .collect();
    let messages = product.lines().filter(|line| !line.trim_start().starts_with("//") && !line.contains("assert"));
    let bad: Vec<_> = messages
        .flat_map(|line| line.split('"').skip(1).step_by(2).filter(|text| text.contains(' ')).map(str::to_owned))
        .filter(|text| !avoided(text).is_empty())
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn annotations_and_labels_are_on_one_page() {
    let (code, text) = (fs::read_to_string(root().join("src/api.rs")).unwrap(), page("annotations.md"));
    let constants = code.split("pub const ").skip(1).filter_map(|constant| constant.split_once(": &str = \""));
    let names: Vec<_> = constants
        .filter(|(name, _)| name.ends_with("_ANNOTATION") || name.contains("_LABEL"))
        .map(|(_, value)| value.split('"').next().unwrap())
        .collect();
    assert!(names.len() >= 15, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !text.contains(&format!("| `{name}"))).collect();
    assert!(missing.is_empty(), "docs/annotations.md says nothing of {missing:?}");
}

#[test]
fn places_that_the_index_names_exist() {
    let text = page("places.md");
    let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ") && line.contains("src/")).collect();
    assert!(rows.len() >= 20, "only {} rows were found", rows.len());
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
