//! A page for each kind: every field as `kubectl explain --recursive` has it, with what the API server asks of it.

use std::fmt::Write;

use redlock_operator::api;
use serde_json::Value;

use super::page;
use crate::pattern;

/// Types whose fields are in Kubernetes' own documentation.
const KUBERNETES: [(&str, &str); 7] = [
    ("affinity", "As in a Pod."),
    ("topologySpreadConstraints", "As in a Pod."),
    ("tolerations", "As in a Pod."),
    ("resources", "As in a Pod."),
    ("imagePullSecrets", "As in a Pod."),
    ("selector", "As in a Deployment: `matchLabels` and `matchExpressions`."),
    (
        "conditions",
        "As in every object: `type`, `status`, `reason`, `message`, `lastTransitionTime`, `observedGeneration`.",
    ),
];

fn as_in_kubernetes(name: &str) -> Option<&'static str> {
    KUBERNETES.iter().find(|(field, _)| *field == name).map(|(_, text)| *text)
}

fn type_of(schema: &Value) -> String {
    let name = schema["type"].as_str().unwrap_or("integer or string");
    match name {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => "map".to_owned(),
        name if name == "string" && is_duration(schema) => "duration".to_owned(),
        name if name == "string" && is_time(schema) => "time".to_owned(),
        name => name.to_owned(),
    }
}

fn is_duration(schema: &Value) -> bool {
    pattern(schema).is_some_and(|pattern| pattern.contains("ms)+$"))
}

fn is_time(schema: &Value) -> bool {
    schema["pattern"].as_str().is_some_and(|pattern| pattern.contains("T[0-9]{2}:[0-9]{2}"))
}

/// Whether a bound only follows from the width of the number.
fn is_width(bound: &Value) -> bool {
    bound.as_f64().is_some_and(|bound| bound.abs() >= f64::from(i32::MAX))
}

/// One line of JSON without quotes around texts.
fn plain(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn limits(schema: &Value, required: bool) -> String {
    let mut found = Vec::new();
    let mut add = |text: String| found.push(text);
    if required {
        add("required".to_owned());
    }
    if let Some(values) = schema["enum"].as_array() {
        add(values.iter().map(|value| format!("`{}`", plain(value))).collect::<Vec<_>>().join(", "));
    }
    let bound = |name: &str| schema.get(name).filter(|bound| !is_width(bound));
    match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => add(format!("{} to {}", plain(least), plain(most))),
        (Some(least), None) => add(format!("at least {}", plain(least))),
        (None, Some(most)) => add(format!("at most {}", plain(most))),
        (None, None) => {}
    }
    if let (Some(most), false) = (schema.get("maxLength"), is_duration(schema) || is_time(schema)) {
        add(format!("at most {most} characters"));
    }
    if let Some(most) = schema.get("maxItems") {
        add(format!("at most {most} items"));
    }
    if let Some(pattern) = schema["pattern"].as_str().filter(|_| !is_duration(schema) && !is_time(schema)) {
        add(format!("matches `{}`", pattern.replace('|', "\\|")));
    }
    found.join("; ")
}

/// Why the API server refuses an object: the field, the message, and the fields that the rule keeps as they were.
struct Rule {
    at: String,
    message: String,
    constant: Vec<String>,
}

/// The fields that a rule compares with their earlier values, for equality.
fn constant(rule: &str) -> impl Iterator<Item = &str> {
    rule.match_indices("oldSelf.").filter_map(move |(at, prefix)| {
        let rest = &rule[at + prefix.len()..];
        let field = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len())];
        let equal = [
            format!("self.{field} == oldSelf.{field}"),
            format!("duration(self.{field}) == duration(oldSelf.{field})"),
        ];
        equal.iter().any(|equal| rule.contains(equal.as_str())).then_some(field)
    })
}

/// The rules of the API server at this place and below it.
fn rules(schema: &Value, path: &str, found: &mut Vec<Rule>) {
    let plain_path = |path: String| path.trim_start_matches('.').replace("[]", "");
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        found.push(Rule {
            at: plain_path(format!("{path}{}", text("fieldPath"))),
            message: text("message").to_owned(),
            constant: constant(text("rule")).map(|field| plain_path(format!("{path}.{field}"))).collect(),
        });
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        // The rules on selectors are ours.
        if as_in_kubernetes(name).is_none() || name == "selector" {
            rules(field, &format!("{path}.{name}"), found);
        }
    }
    if schema["items"].is_object() {
        rules(&schema["items"], &format!("{path}[]"), found);
    }
}

fn rows(schema: &Value, path: &str, rules: &[Rule], text: &mut String) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let plain_path = path.trim_start_matches('.').replace("[]", "");
        let mut limits = limits(field, required.contains(&name.as_str()));
        if rules.iter().any(|rule| rule.constant.contains(&plain_path)) {
            limits += if limits.is_empty() { "cannot be changed" } else { "; cannot be changed" };
        }
        let default = field.get("default").map(|default| format!("`{}`", plain(default))).unwrap_or_default();
        let kubernetes = as_in_kubernetes(name);
        let description = field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        let description = kubernetes.map_or(description.clone(), |text| format!("{description} {text}"));
        let (shown, type_, description) = (path.trim_start_matches('.'), type_of(field), description.trim());
        writeln!(text, "| `{shown}` | {type_} | {default} | {limits} | {description} |").unwrap();
        if kubernetes.is_none() {
            rows(field, &path, rules, text);
            rows(&field["items"], &format!("{path}[]"), rules, text);
        }
    }
}

#[test]
fn every_field_of_every_kind_is_on_a_page() {
    for crd in api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let names = &crd["spec"]["names"];
        let (kind, short) = (names["kind"].as_str().unwrap(), plain(&names["shortNames"][0]));
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut refusals = Vec::new();
        rules(schema, "", &mut refusals);
        let mut body = String::new();
        for part in ["spec", "status"] {
            body += &format!("## {part}\n\n| field | type | default | limits | description |\n|---|---|---|---|---|\n");
            rows(&schema["properties"][part], part, &refusals, &mut body);
            body.push('\n');
        }
        body += "## Refused by the API server\n\n| field | message |\n|---|---|\n";
        for Rule { at, message, .. } in &refusals {
            let at = if at.is_empty() { "metadata.name" } else { at.as_str() };
            writeln!(body, "| `{at}` | {} |", message.replace('|', "\\|")).unwrap();
        }
        let introduction = format!(
            "{} `kubectl explain {short} --recursive` shows the same. A duration is whole numbers with the units ms, s, m and h, for example \
             `1m30s`. A time is in UTC, for example `2026-11-21T19:03:07.412Z`. A field without a default is empty.",
            schema["description"].as_str().unwrap()
        );
        page(&format!("{}.md", kind.to_lowercase()), kind, &introduction, &body);
    }
}
