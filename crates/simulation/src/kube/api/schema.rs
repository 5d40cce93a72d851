//! Applies our CustomResourceDefinitions to an object.
//!
//! It removes unknown fields, adds defaults, and refuses invalid values.

use std::collections::BTreeMap;
use std::time::Duration;

use redlock_api::{GoDuration, crds};
use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::outcome::Refusal;

/// The schemas of our kinds.
#[derive(Debug)]
pub(super) struct Schemas(BTreeMap<Kind, Value>);

impl Schemas {
    pub(super) fn new() -> Self {
        let schema = |name: &str| {
            let crd = crds().into_iter().find(|crd| crd.spec.names.kind == name);
            let schema = crd.and_then(|crd| crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema);
            schema.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default()
        };
        let kinds = [Kind::DistributedLock, Kind::RedisQuorum];
        Self(kinds.into_iter().map(|kind| (kind, schema(kind.facts().name))).collect())
    }

    /// Converts an object into the form in which it is stored.
    pub(super) fn fit(&self, kind: Kind, value: &mut Value) -> Result<(), Refusal> {
        let Some(schema) = self.0.get(&kind) else { return Ok(()) };
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|field, _| ["apiVersion", "kind", "metadata", "spec", "status"].contains(&field.as_str()));
        }
        for part in ["spec", "status"] {
            let schema = &schema["properties"][part];
            match value.get_mut(part) {
                Some(found) => walk(found, schema, part).map_err(|why| Refusal::invalid(kind, &name, &why))?,
                None if part == "spec" => return Err(Refusal::invalid(kind, &name, "spec: Required value")),
                None => {}
            }
        }
        Ok(())
    }
}

fn walk(value: &mut Value, schema: &Value, path: &str) -> Result<(), String> {
    if schema["x-kubernetes-preserve-unknown-fields"] == json!(true)
        || schema["x-kubernetes-int-or-string"] == json!(true)
    {
        return Ok(());
    }
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    if !fits {
        return Err(format!("{path}: Invalid value: {value}: must be of type {}", schema["type"]));
    }
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        return Err(format!("{path}: Unsupported value: {value}"));
    }
    match value {
        Value::Object(map) => walk_map(map, schema, path),
        Value::Array(items) => {
            bounds(items.len(), schema, ("minItems", "maxItems"), path)?;
            items
                .iter_mut()
                .enumerate()
                .try_for_each(|(index, item)| walk(item, &schema["items"], &format!("{path}[{index}]")))
        }
        Value::String(text) => {
            if schema["format"] == "date-time" && super::meta::millis(text).is_none() {
                return Err(format!("{path}: Invalid value: {text:?}: must be of type date-time"));
            }
            bounds(text.chars().count(), schema, ("minLength", "maxLength"), path)
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            let below = schema["minimum"].as_f64().is_some_and(|least| number < least);
            let above = schema["maximum"].as_f64().is_some_and(|most| number > most);
            if below || above { Err(format!("{path}: Invalid value: {number}: out of range")) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

fn walk_map(map: &mut Map<String, Value>, schema: &Value, path: &str) -> Result<(), String> {
    let Some(properties) = schema["properties"].as_object() else {
        bounds(map.len(), schema, ("minProperties", "maxProperties"), path)?;
        let of_values = &schema["additionalProperties"];
        return map.iter_mut().try_for_each(|(name, value)| walk(value, of_values, &format!("{path}.{name}")));
    };
    map.retain(|name, value| match properties.get(name) {
        None => false,
        // If the schema has a default, the server treats a null as absent.
        Some(property) => !(value.is_null() && property.get("default").is_some()),
    });
    for (name, property) in properties {
        if let (None, Some(default)) = (map.get(name), property.get("default")) {
            map.insert(name.clone(), default.clone());
        }
        if let Some(value) = map.get_mut(name) {
            walk(value, property, &format!("{path}.{name}"))?;
        }
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    match required.into_iter().find(|name| !map.contains_key(*name)) {
        Some(missing) => Err(format!("{path}.{missing}: Required value")),
        None => Ok(()),
    }
}

fn bounds(size: usize, schema: &Value, (least, most): (&str, &str), path: &str) -> Result<(), String> {
    let limit = |name: &str| schema[name].as_u64().and_then(|limit| usize::try_from(limit).ok());
    if limit(least).is_some_and(|least| size < least) || limit(most).is_some_and(|most| size > most) {
        return Err(format!("{path}: Invalid value: its size {size} is out of range"));
    }
    Ok(())
}

/// Checks the cheap CEL rules that simulated users can break: immutable and mutually exclusive fields.
pub(super) fn rules(kind: Kind, old: Option<&Value>, new: &Value) -> Result<(), Refusal> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |why: &str| Err(Refusal::invalid(kind, name, why));
    let spec = &new["spec"];
    let has = |field: &str| spec.get(field).is_some();
    let fixed: &[&str] = match kind {
        Kind::DistributedLock => {
            if has("claim") == has("election") {
                return refuse("spec.claim: set exactly one of claim and election");
            }
            if has("claim") && !has("key") {
                return refuse("spec.key: say which key the claims contend for");
            }
            if let Some(why) = times(spec) {
                return refuse(why);
            }
            &["/key", "/quorumRef", "/slots", "/claim/identity", "/claim/podName", "/claim/podUID", "/claim/container"]
        }
        Kind::RedisQuorum => {
            let external = spec["external"].as_array().map_or(0, Vec::len);
            let all = spec["members"].as_u64().unwrap_or_default() + u64::try_from(external).unwrap_or_default();
            if ![1, 3, 5, 7, 9].contains(&all) {
                return refuse("spec.members: members and external must be an odd number together");
            }
            &["/keys", "/installation"]
        }
        _ => &[],
    };
    let Some(old) = old else { return Ok(()) };
    match fixed.iter().find(|field| old["spec"].pointer(field) != spec.pointer(field)) {
        Some(field) => refuse(&format!("spec{}: cannot be changed", field.replace('/', "."))),
        None => Ok(()),
    }
}

const YEAR: u64 = 365 * 86_400;

/// Returns the message of the first broken rule about a lock's times.
fn times(spec: &Value) -> Option<&'static str> {
    let of = |pointer: &str| -> Option<Duration> {
        let text = spec.pointer(pointer)?.as_str()?;
        text.parse::<GoDuration>().ok().map(|duration| duration.get())
    };
    let (second, millis) = (Duration::from_secs, Duration::from_millis);
    let ttl = of("/ttl").unwrap_or_default();
    let claim = spec.get("claim").is_some();
    let at_least = |pointer: &str, least: Duration| of(pointer).is_none_or(|given| given >= least);
    let at_most = |pointer: &str, most: Duration| of(pointer).is_none_or(|given| given <= most);
    let only_claims = |pointer: &str| claim || of(pointer).is_none();
    let rules = [
        ("spec.ttl", ttl >= second(1) && ttl <= second(3_600)),
        ("spec.renewInterval", at_most("/renewInterval", ttl / 2) && at_least("/renewInterval", ttl / 10)),
        ("spec.maxHold", at_least("/maxHold", millis(1)) && at_most("/maxHold", second(YEAR))),
        ("spec.minHold", at_most("/minHold", of("/maxHold").unwrap_or(second(86_400))) && only_claims("/minHold")),
        ("spec.waitTimeout", at_least("/waitTimeout", millis(1)) && only_claims("/waitTimeout")),
        ("spec.waitTimeout", at_most("/waitTimeout", second(YEAR))),
        ("spec.ttlAfterFinished", at_most("/ttlAfterFinished", second(YEAR))),
        ("spec.lockDelay", at_most("/lockDelay", second(3_600))),
        ("spec.ttlAfterFinished", only_claims("/ttlAfterFinished")),
        ("spec.claim.heartbeat", at_least("/claim/heartbeat", second(1))),
        ("spec.claim", at_most("/claim/heartbeat", millis(1_000).max(ttl / 2))),
        ("spec.claim.podName", spec.pointer("/claim/podName").is_some() || spec.pointer("/claim/podUID").is_none()),
        (
            "spec.retry",
            at_most("/retry/jitter", of("/retry/delay").unwrap_or_default()) && at_least("/retry/delay", millis(10)),
        ),
    ];
    rules.into_iter().find(|(_, holds)| !holds).map(|(field, _)| field)
}
