//! docs/stability.md names everything that others can build on, and nothing that is not there.

use std::fs;

use redlock_operator::api;
use serde_json::Value;

use crate::{read, root, sources::sources};

/// The text between `begin` and `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("docs/stability.md has no {begin:?}"));
    rest.split_once(end).map_or(rest, |(part, _)| part)
}

/// The texts in backticks.
fn named(part: &str) -> Vec<&str> {
    part.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_field_is_stable_or_provisional() {
    let page = read("docs/stability.md");
    let (stable, provisional) =
        (between(&page, "## Stable", "**Conditions**"), between(&page, "## Provisional", "## "));
    let all = [named(stable), named(provisional)].concat();
    for crd in api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            for field in schema[part]["properties"].as_object().unwrap().keys() {
                assert!(all.contains(&field.as_str()), "docs/stability.md does not name {part}.{field}");
            }
        }
    }
    // The page promises no field that does not exist.
    let fields: Vec<_> = api::crds().iter().map(|crd| serde_json::to_string(crd).unwrap()).collect();
    for name in named(stable).into_iter().filter(|name| !["spec", "status"].contains(name)) {
        let is_there = fields.iter().any(|text| text.contains(&format!("\"{name}\":")));
        assert!(is_there, "docs/stability.md: there is no {name}");
    }
}

#[test]
fn exit_codes_are_those_of_the_code() {
    let page = read("docs/stability.md");
    let part = between(&page, "**Exit codes**", "**JSON**");
    let source = read("crates/cli/src/hold/exit.rs");
    let constants = source.lines().filter_map(|line| line.split_once(": u8 = ")?.1.strip_suffix(';'));
    let codes: Vec<_> = constants.collect();
    assert_eq!(codes, ["122", "123", "124", "125", "126", "127"]);
    for page in [part, &read("docs/run.md")] {
        assert!(codes.iter().all(|code| page.contains(code)), "{codes:?}");
    }
    let commands = read("crates/cli/src/lib.rs");
    for (constant, code) in [("NO", 1), ("FAILED", 125)] {
        assert!(commands.contains(&format!("const {constant}: u8 = {code};")), "{constant}");
    }
    assert!(part.contains("1 the answer is no, 125 the command failed or its options cannot be read"));
}

#[test]
fn environment_variables_are_those_of_the_commands() {
    let page = read("docs/stability.md");
    let part = between(&page, "**Environment**", "**HTTP**");
    let stable = named(part);
    let code = sources(&root().join("crates/cli/src"));
    let source: String = code.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut seen = 0;
    for name in source.split("\"REDLOCK_").skip(1).filter_map(|rest| rest.split('"').next()) {
        if name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
            seen += 1;
            assert!(stable.contains(&format!("REDLOCK_{name}").as_str()), "docs/stability.md has no REDLOCK_{name}");
        }
    }
    assert!(seen >= 10, "only {seen} were found");
    for name in stable.iter().filter(|name| name.starts_with("REDLOCK_")) {
        assert!(source.contains(&format!("\"{name}\"")), "docs/stability.md: there is no {name}");
    }
}

#[test]
fn paths_of_the_agent_are_those_that_it_describes() {
    let page = read("docs/stability.md");
    let part = between(&page, "**HTTP**", "**Metrics**");
    let described: Value = serde_json::from_str(&read("crates/cli/src/agent/openapi.json")).unwrap();
    let mut paths: Vec<_> = described["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let of_the_agent = part.split_once("`redlock agent`").unwrap().1;
    let mut named: Vec<_> =
        named(of_the_agent).into_iter().filter(|name| name.starts_with('/') && *name != "/").collect();
    paths.retain(|path| *path != "/");
    paths.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, paths);
    assert!(described["paths"].get("/").is_some() && of_the_agent.contains("`/`"));
}

#[test]
fn items_of_the_library_are_those_at_its_root() {
    let page = read("docs/stability.md");
    let part = between(&page, "- The Rust crate `redlock-client`", "\n- ");
    let library = read("crates/client/src/lib.rs");
    let uses = library.split("pub use ").skip(1).flat_map(|rest| {
        let list = rest.split(';').next().unwrap();
        let names = list.split_once('{').map_or_else(|| list.rsplit("::").next().unwrap(), |(_, names)| names);
        names.trim_end_matches('}').split(',').map(str::trim).filter(|name| !name.is_empty()).collect::<Vec<_>>()
    });
    let modules = library.split("\npub mod ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let mut items: Vec<_> = uses.chain(modules).collect();
    items.sort_unstable();
    let mut listed = named(part);
    listed.retain(|name| !name.contains('/'));
    listed.sort_unstable();
    assert_eq!(listed, items);
}

/// Items that only the operator needs are in the engine, which has no promise of stability.
#[test]
fn the_library_has_few_public_items() {
    let items = read("crates/client/public-api.txt").lines().filter(|line| !line.starts_with("impl")).count();
    assert!(items <= 300, "{items}");
}

#[test]
fn lists_that_are_printed_from_the_code_are_named() {
    let page = read("docs/stability.md");
    for list in ["reference/conditions.md", "reference/annotations.md", "reference/values.md", "monitoring.md"] {
        assert!(page.contains(&format!("]({list})")), "docs/stability.md does not name {list}");
    }
}
