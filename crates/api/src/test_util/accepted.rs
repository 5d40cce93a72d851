//! The operator reads every object that the API server can have stored. Objects come from the schemas of the CRDs alone.
//!
//! The rules in CEL refuse some of these objects, so the operator reads more than the API server accepts.

use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Map, Value, json};

use super::{assembled, schema_of};
use crate::*;

/// Keys of maps, for which the schema has no rule.
const KEYS: [&str; 5] = ["", "a", "b.example.com/c", "app.kubernetes.io/name", "ä \u{0}"];

/// An object that fits the schema of this kind, with this share of the optional fields.
pub fn accepted(kind: &'static str, share: f64) -> BoxedStrategy<Value> {
    let schema = schema_of(kind);
    let part = |name: &str| of_schema(&schema["properties"][name], share);
    (part("spec"), weighted(0.9, part("status")), any::<bool>())
        .prop_map(move |(spec, status, deleted)| {
            assembled(kind, ("resourceVersion", json!("1")), spec, status, deleted)
        })
        .boxed()
}

fn of_schema(schema: &Value, share: f64) -> BoxedStrategy<Value> {
    let number =
        |name: &str, default: usize| schema[name].as_u64().map_or(default, |limit| usize::try_from(limit).unwrap());
    if let Some(values) = schema["enum"].as_array() {
        return prop::sample::select(values.clone()).boxed();
    }
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return prop_oneof![any::<i64>().prop_map(Value::from), text(schema)].boxed();
    }
    match schema["type"].as_str() {
        Some("object") => map_of(schema, share),
        Some("array") => {
            let (least, most) = (number("minItems", 0), number("maxItems", usize::MAX));
            vec(of_schema(&schema["items"], share), least..=most.min(least + 2)).prop_map(Value::from).boxed()
        }
        Some("integer") => {
            let limit = |name: &str| schema[name].as_f64().unwrap_or_else(|| panic!("no {name}: {schema}"));
            #[expect(clippy::cast_possible_truncation, reason = "limits in a schema are whole, and far below 2^63")]
            let (least, most) = (limit("minimum") as i64, limit("maximum") as i64);
            prop_oneof![Just(least), Just(most), least..=most, Just(1.clamp(least, most))].prop_map(Value::from).boxed()
        }
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("string") if schema["format"] == "date-time" => {
            assert_eq!(schema["pattern"], schema::TIME_PATTERN);
            times().prop_map(Value::from).boxed()
        }
        Some("string") => text(schema),
        _ => panic!("nothing is known about {schema}"),
    }
}

/// All times that an API server takes and that fit the pattern.
fn times() -> BoxedStrategy<String> {
    let date = (1_000..3_000_i16, 1..=12_i8, 1..=31_i8);
    let valid =
        date.prop_filter("no such day", |(year, month, day)| jiff::civil::Date::new(*year, *month, *day).is_ok());
    (valid, 0..24_u8, 0..60_u8, 0..60_u8, weighted(0.7, "[0-9]{1,9}"))
        .prop_map(|((year, month, day), hour, minute, second, fraction)| {
            let fraction = fraction.map_or_else(String::new, |digits| format!(".{digits}"));
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
        })
        .boxed()
}

fn text(schema: &Value) -> BoxedStrategy<Value> {
    let limit = |name: &str| schema[name].as_u64().map(|limit| usize::try_from(limit).unwrap());
    let (least, most) = (limit("minLength").unwrap_or(0), limit("maxLength"));
    let most = most.unwrap_or_else(|| panic!("no maxLength: {schema}"));
    let fits = move |text: &String| (least..=most).contains(&text.chars().count());
    let Some(pattern) = schema::pattern(schema) else {
        let short = vec(any::<char>(), least..=most.min(least + 12)).prop_map(String::from_iter);
        return prop_oneof![7 => short, 1 => Just("ä".repeat(most))].prop_map(Value::from).boxed();
    };
    // A pattern must match the whole text.
    let inner = pattern.strip_prefix('^').unwrap_or_else(|| panic!("{pattern} has no beginning"));
    let (inner, rest) = inner.strip_suffix('$').map_or((inner, ".{0,9}"), |inner| (inner, ""));
    // Few repetitions, or nearly every text would be too long.
    let inner = inner.replace(")+", "){1,3}").replace(")*", "){0,3}");
    let texts = string_regex(&format!("({inner}){rest}")).unwrap();
    texts.prop_filter("too long or too short", fits).prop_map(Value::from).boxed()
}

fn map_of(schema: &Value, share: f64) -> BoxedStrategy<Value> {
    let Some(properties) = schema["properties"].as_object() else {
        let of_values = schema.get("additionalProperties").unwrap_or_else(|| panic!("any fields at all: {schema}"));
        assert!(schema["maxProperties"].is_u64(), "no maxProperties: {schema}");
        let keys = prop::sample::select(KEYS.map(str::to_owned).to_vec());
        return btree_map(keys, of_schema(of_values, share), 0..3).prop_map(|map| json!(map)).boxed();
    };
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields: Vec<_> = properties
        .iter()
        .map(|(name, schema)| {
            let (values, is_required) = (of_schema(schema, share), required.contains(&name.as_str()));
            let values = if is_required { values.prop_map(Some).boxed() } else { weighted(share, values).boxed() };
            let name = name.clone();
            values.prop_map(move |value| Some((name.clone(), value?)))
        })
        .collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>())).boxed()
}
