//! Each value of the chart changes what the chart renders.

use std::{fs, thread};

use serde_json::{Map, Value, json};

use crate::{
    CHART, KUBE_VERSION,
    chart::{ChartValue, VALUES, all_values, values_of, yaml},
    helm_output,
};

const AT_ONCE: usize = 4;

/// The rendered chart with these values, hooks included, or the error.
fn render(values: &Value, name: &str) -> String {
    let file = std::env::temp_dir().join(format!("redlock-values-{}-{name}.yaml", std::process::id()));
    fs::write(&file, values.to_string()).unwrap();
    let arguments = ["template", "redlock-operator", CHART, "--namespace", "redlock-system", "--values"];
    let (_, text) = helm_output(&[&arguments[..], &[file.to_str().unwrap()], KUBE_VERSION].concat());
    fs::remove_file(file).unwrap();
    text
}

/// The values without this one, so that it has its default.
fn without(values: &Value, path: &str) -> Value {
    let mut values = values.clone();
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let pointer = if parent.is_empty() { String::new() } else { format!("/{}", parent.replace('.', "/")) };
    values.pointer_mut(&pointer).and_then(Value::as_object_mut).map(|object: &mut Map<_, _>| object.remove(name));
    values
}

/// Values with only this value.
fn alone(path: &str, value: &Value) -> Value {
    path.rsplit('.').fold(value.clone(), |inner, name| json!({name: inner}))
}

/// Whether the value changes the rendered chart, in a file that changes it or alone.
fn has_effect(value: &ChartValue, files: &[(&str, Value, String)], default: &str) -> bool {
    let pointer = format!("/{}", value.path.replace('.', "/"));
    files.iter().any(|(name, file, rendered)| {
        let Some(turned) = file.pointer(&pointer).filter(|turned| **turned != value.default) else { return false };
        let name = format!("{name}-{}", value.path);
        render(&without(file, &value.path), &name) != *rendered || render(&alone(&value.path, turned), &name) != default
    })
}

#[test]
fn every_value_changes_a_rendered_object() {
    let files: Vec<_> = VALUES
        .iter()
        .map(|name| (*name, yaml(&values_of(name))))
        .map(|(name, file)| (name, file.clone(), render(&file, name)))
        .collect();
    let (values, default) = (all_values(), render(&json!({}), "default"));
    assert!(values.len() > 50, "only {} values", values.len());
    let share = values.len().div_ceil(AT_ONCE);
    let idle: Vec<String> = thread::scope(|scope| {
        let shares = values.chunks(share).map(|share| {
            scope.spawn(|| {
                share
                    .iter()
                    .filter(|value| !has_effect(value, &files, &default))
                    .map(|value| value.path.clone())
                    .collect::<Vec<_>>()
            })
        });
        shares.collect::<Vec<_>>().into_iter().flat_map(|share| share.join().unwrap()).collect()
    });
    assert!(idle.is_empty(), "these values change nothing: {idle:?}");
}
