//! What the derived schemas lack: CEL rules, list maps, and no nulls.

use kube::core::Rule;
use schemars::Schema;
use serde_json::{Value, json};

/// A rule that refuses with `message`, which the API server shows beside `field`.
pub(super) fn rule(field: &str, rule: &str, message: &str) -> Rule {
    Rule::new(rule).message(message).field_path(field)
}

/// Adds CEL rules to the schema of an object.
pub(super) fn add_rules(schema: &mut Schema, rules: &[Rule]) {
    let all = schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.extend(rules.iter().map(|rule| json!(rule)));
    }
}

/// Removes `nullable` everywhere, and the line breaks of doc comments from descriptions.
///
/// An optional field is left out or has a value: with a third possibility `has(self.claim)` would be true of
/// `claim: null`, and every rule that uses it wrong.
pub(super) fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("nullable").is_some_and(Value::is_boolean) {
                map.remove("nullable");
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                let paragraphs: Vec<String> =
                    text.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
                *text = paragraphs.join("\n\n");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
