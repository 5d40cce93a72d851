//! Additions to the derived schemas: CEL rules, list maps, and no nulls.

use kube::core::Rule;
use schemars::Schema;
use serde_json::{Map, Value, json};

/// A rule that refuses with `message`, which the API server shows with `field`.
///
/// A rule that compares durations holds while one of them is malformed. The field's own rule refuses that one. Without this exception the API
/// server adds the error of the evaluation to the message. It also refuses every later write to an object that it once stored.
pub(super) fn rule(field: &str, rule: &str, message: &str) -> Rule {
    let malformed: Vec<_> = durations(rule).iter().map(|path| malformed(path)).collect();
    let rule = if malformed.is_empty() { rule.to_owned() } else { format!("({rule}) || {}", malformed.join(" || ")) };
    Rule::new(rule).message(message).field_path(field)
}

/// The fields below `self` that a rule reads as durations, each once.
fn durations(rule: &str) -> Vec<&str> {
    let mut paths: Vec<_> =
        rule.split("duration(self.").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The condition that the field is set and is no duration.
fn malformed(path: &str) -> String {
    let parents = path.match_indices('.').map(|(end, _)| &path[..end]);
    let given: Vec<_> = parents.chain([path]).map(|path| format!("has(self.{path})")).collect();
    format!("({} && !self.{path}.matches('{DURATION_PATTERN}'))", given.join(" && "))
}

/// The value of `x-kubernetes-validations` for a text that must match `pattern`.
///
/// A `pattern` in the schema would show the expression and not the message.
pub(super) fn matching(pattern: &str, message: &str) -> Value {
    json!([Rule::new(format!("self.matches(r'{pattern}')")).message(message)])
}

/// The rule of a name that becomes part of the names of objects.
pub(super) fn label_name() -> Value {
    matching(
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "write lower-case letters, digits and dashes, with no dash at an end, e.g. main-1",
    )
}

/// The pattern of a text, given as `pattern` or by [`matching`].
#[cfg(any(test, feature = "test-util"))]
pub(super) fn pattern(schema: &Value) -> Option<&str> {
    let by_rule =
        || schema["x-kubernetes-validations"][0]["rule"].as_str()?.strip_prefix("self.matches(r'")?.strip_suffix("')");
    schema["pattern"].as_str().or_else(by_rule)
}

/// The rule of a duration that must be within bounds.
pub(super) fn between(field: &str, least: &str, most: &str, message: &str) -> Rule {
    let bounds =
        format!("duration(self.{field}) >= duration('{least}') && duration(self.{field}) <= duration('{most}')");
    rule(&format!(".{field}"), &bounds, message)
}

/// A rule about an optional field.
pub(super) fn if_set(field: &str, bounds: &str, message: &str) -> Rule {
    rule(&format!(".{field}"), &format!("!has(self.{field}) || {bounds}"), message)
}

/// Adds CEL rules to the schema of an object.
pub(super) fn add_rules(schema: &mut Schema, rules: impl IntoIterator<Item = Rule>) {
    let all = schema.ensure_object().entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.extend(rules.into_iter().map(|rule| json!(rule)));
    }
}

/// The texts that are durations, in at most 20 characters.
///
/// Each unit has so few digits that 20 characters are less than 292 years, the longest duration of the API server's rules.
pub(super) const DURATION_PATTERN: &str = "^([0-9]{1,6}h|[0-9]{1,7}m|[0-9]{1,9}s|[0-9]{1,12}ms)+$";
/// API servers accept more times than our types can read, such as `9999-12-31T23:59:59+99:99`.
pub(super) const TIME_PATTERN: &str = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z$";
/// As Kubernetes reads quantities.
const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Bounds of texts, lists and maps of Kubernetes' own types, which have none.
const LONGEST_TEXT: u64 = 1_024;
const LONGEST_MESSAGE: u64 = 32_768;
const MOST_ITEMS: u64 = 1_024;
/// Bounds of a label selector, because every change of a pod compares it with each requirement.
const MOST_REQUIREMENTS: u64 = 16;
const MOST_VALUES: u64 = 64;
/// Every number up to this one is the same in JSON, Go and Rust.
const LARGEST_NUMBER: i64 = (1 << 53) - 1;

/// Bounds everything without a bound, so that our types can read each object that fits the schema.
fn bound(schema: &mut Map<String, Value>) {
    // Every condition has these, and a message can be long.
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut)
        && properties.contains_key("lastTransitionTime")
        && let Some(message) = properties.get_mut("message").and_then(Value::as_object_mut)
    {
        message.entry("maxLength").or_insert(json!(LONGEST_MESSAGE));
    }
    bound_selector(schema);
    let is = |name: &str, what: &str| schema.get(name).and_then(Value::as_str) == Some(what);
    let limits = if schema.contains_key("enum") || schema.contains_key("$ref") {
        vec![]
    } else if schema.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
        vec![("pattern", json!(QUANTITY_PATTERN)), ("maxLength", json!(64))]
    } else if is("type", "string") && is("format", "date-time") {
        vec![("pattern", json!(TIME_PATTERN)), ("maxLength", json!(40))]
    } else if is("type", "string") {
        vec![("maxLength", json!(LONGEST_TEXT))]
    } else if is("type", "array") {
        vec![("maxItems", json!(MOST_ITEMS))]
    } else if schema.contains_key("additionalProperties") {
        vec![("maxProperties", json!(MOST_ITEMS))]
    } else if is("type", "integer") && is("format", "int32") {
        vec![("minimum", json!(i32::MIN)), ("maximum", json!(i32::MAX))]
    } else if is("type", "integer") {
        vec![("minimum", json!(-LARGEST_NUMBER)), ("maximum", json!(LARGEST_NUMBER))]
    } else {
        vec![]
    };
    for (name, limit) in limits {
        schema.entry(name).or_insert(limit);
    }
}

fn bound_selector(schema: &mut Map<String, Value>) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    if !properties.contains_key("matchExpressions") || !properties.contains_key("matchLabels") {
        return;
    }
    let mut set = |field: &str, inner: &str, bound: &str, most: u64| {
        let found = properties.get_mut(field).and_then(|field| field.pointer_mut(inner)).and_then(Value::as_object_mut);
        if let Some(found) = found {
            found.insert(bound.to_owned(), json!(most));
        }
    };
    set("matchLabels", "", "maxProperties", MOST_REQUIREMENTS);
    set("matchExpressions", "", "maxItems", MOST_REQUIREMENTS);
    set("matchExpressions", "/items/properties/values", "maxItems", MOST_VALUES);
}

/// Removes `nullable` everywhere, and the line breaks of doc comments from descriptions; bounds what has no bound.
///
/// An optional field is left out or has a value: with a third possibility `has(self.claim)` would be true of
/// `claim: null`, and every rule that uses it wrong.
pub(super) fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            bound(map);
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
