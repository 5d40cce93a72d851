//! Each field of both specifications is a mutant of the simulation, or has a reason for being none.

use std::collections::BTreeSet;

use redlock_operator::api;
use serde_json::Value;

use crate::read;

const FIELDS: &str = "crates/simulation/tests/operator/mutants/fields.txt";

/// The paths of a schema's fields, and of the fields inside them.
fn paths(schema: &Value, before: &str, found: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{before}{name}");
        paths(field, &format!("{path}."), found);
        paths(&field["items"], &format!("{path}."), found);
        found.insert(path);
    }
}

/// All fields. Those of a RedisQuorum have its kind as their prefix.
fn fields() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for crd in api::crds() {
        let prefix = if crd.spec.names.kind == "RedisQuorum" { "RedisQuorum." } else { "" };
        let crd = serde_json::to_value(crd).unwrap();
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        paths(spec, prefix, &mut found);
    }
    found
}

/// The name at the beginning of a row, or of a line with a reason.
fn named(line: &str) -> Option<&str> {
    match line.strip_prefix("# ") {
        Some(comment) => {
            let (name, reason) = comment.split_once(": ")?;
            (!name.contains(' ') && !reason.is_empty()).then_some(name)
        }
        None => {
            let (name, seeds) = line.split_once(' ')?;
            assert!(!seeds.trim().is_empty(), "{FIELDS}: {name} has no seed");
            Some(name)
        }
    }
}

/// Whether a field has a line, its parent has one, or all its fields have one.
fn is_covered(field: &str, lines: &BTreeSet<&str>, all: &BTreeSet<String>) -> bool {
    let mut parents = field.match_indices('.').map(|(at, _)| &field[..at]);
    if lines.contains(field) || parents.any(|parent| lines.contains(parent)) {
        return true;
    }
    let inside = format!("{field}.");
    let mut children = all.iter().filter(|other| other.starts_with(&inside)).peekable();
    children.peek().is_some() && children.all(|child| is_covered(child, lines, all))
}

#[test]
fn every_field_of_a_spec_is_a_mutant_or_has_a_reason() {
    let text = read(FIELDS);
    let lines: BTreeSet<&str> = text.lines().filter_map(named).collect();
    let all = fields();
    let missing: Vec<_> = all.iter().filter(|field| !is_covered(field, &lines, &all)).collect();
    assert!(missing.is_empty(), "{FIELDS} needs a row with seeds, or `# <field>: <reason>`, for {missing:?}");
    let unknown: Vec<_> = lines.iter().filter(|line| !all.contains(**line)).collect();
    assert!(unknown.is_empty(), "{FIELDS}: there is no field {unknown:?}");
}
