//! Random objects from the schemas of the CRDs, with some values of another type.
//!
//! A read must not panic, and every read value must be written back unchanged.

use proptest::collection::{btree_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{assembled, schema_of};
use crate::*;

/// Deeper than this objects are left out: affinities and their kin, which are Kubernetes' own.
const DEPTH: u32 = 5;

/// An object of this kind, with spec and status.
pub fn object(kind: &str) -> BoxedStrategy<Value> {
    let schema = schema_of(kind);
    let part = |name: &str| of_schema(&schema["properties"][name], 0);
    let kind = kind.to_owned();
    (part("spec"), weighted(0.9, part("status")), annotations(), any::<bool>())
        .prop_map(move |(spec, status, annotations, deleted)| {
            assembled(&kind, ("annotations", annotations), spec, status, deleted)
        })
        .boxed()
}

fn annotations() -> BoxedStrategy<Value> {
    let names = [
        STEP_DOWN_ANNOTATION,
        BREAK_ANNOTATION,
        BREAK_FORCE_ANNOTATION,
        PREDECESSOR_DEAD_ANNOTATION,
        ROLLOUT_ANNOTATION,
        PRIORITY_ANNOTATION,
    ];
    btree_map(prop::sample::select(names.to_vec()), text(), 0..3).prop_map(|map| json!(map)).boxed()
}

pub(crate) fn text() -> BoxedStrategy<String> {
    let durations = (0..4_u8, any::<u64>(), prop::sample::select(&["ms", "s", "m", "h"][..]))
        .prop_map(|(size, number, unit)| format!("{}{unit}", number >> (16 * (3 - size))));
    let known = ["0s", "30s", "q-0", "a", "3/3", "Admitted", "0101010101010101010101010101010101010101", "ns", ""];
    prop_oneof![durations, prop::sample::select(known.to_vec()).prop_map(str::to_owned), any_text(), times()].boxed()
}

/// Any characters; quicker to make than by a pattern.
fn any_text() -> BoxedStrategy<String> {
    vec(any::<char>(), 0..12).prop_map(String::from_iter).boxed()
}

/// The year 0: RFC 3339 has no years before, and Kubernetes' own type of time writes them so that it cannot read them.
const FIRST: i64 = -62_167_219_200_000;

pub(crate) fn times() -> BoxedStrategy<String> {
    let near = 1_767_225_600_000_i64..1_767_225_700_000;
    let millis = prop_oneof![8 => near, 1 => any::<i64>(), 1 => FIRST..=253_402_207_200_999];
    let time = |at: i64| MilliTime::from_millis(at).filter(|_| at >= FIRST);
    millis.prop_map(move |at| time(at).map_or_else(|| at.to_string(), |at| at.to_string())).boxed()
}

fn any_json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(any_text(), inner, 0..3).prop_map(|map| json!(map))
        ]
    })
    .boxed()
}

/// A value of this schema, and in one of a thousand cases any other value.
fn of_schema(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    let typed = match schema["type"].as_str() {
        Some("object") => map_of(schema, depth),
        Some("array") => vec(of_schema(&schema["items"], depth + 1), 0..4).prop_map(Value::from).boxed(),
        Some("integer") => {
            prop_oneof![6 => 0..12_i64, 2 => any::<i32>().prop_map(i64::from), 1 => any::<i64>(), 1 => 0..1_i64 << 53]
                .prop_map(Value::from)
                .boxed()
        }
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("string") => match schema["enum"].as_array() {
            Some(values) => prop::sample::select(values.clone()).boxed(),
            None if schema["format"] == "date-time" => times().prop_map(Value::from).boxed(),
            None if crate::schema::pattern(schema).is_some_and(|pattern| pattern.contains("}ms)")) => {
                prop_oneof![49 => (0..100_000_u64).prop_map(|ms| json!(format!("{ms}ms"))), 1 => text().prop_map(Value::from)]
                    .boxed()
            }
            None => text().prop_map(Value::from).boxed(),
        },
        _ => any_json(),
    };
    prop_oneof![999 => typed, 1 => any_json()].boxed()
}

fn map_of(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    let Some(properties) = schema["properties"].as_object() else {
        return btree_map(prop::sample::select(vec!["a".to_owned(), "bc".to_owned()]), text(), 0..3)
            .prop_map(|map| json!(map))
            .boxed();
    };
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields: Vec<_> = properties
        .iter()
        .filter(|(name, _)| depth < DEPTH && name.as_str() != "affinity" || required.contains(&name.as_str()))
        .map(|(name, schema)| {
            let chance = if required.contains(&name.as_str()) { 0.99 } else { 0.6 };
            let name = name.clone();
            weighted(chance, of_schema(schema, depth + 1)).prop_map(move |value| Some((name.clone(), value?)))
        })
        .collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>())).boxed()
}

/// These objects are large.
pub fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases / 4, max_shrink_iters: 100, failure_persistence: None, ..usual }
}
