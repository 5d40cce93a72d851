//! Label and field selectors of lists and watches.

use serde_json::Value;

use super::outcome::Refusal;
use super::store::Object;

/// A selection of objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

impl Selector {
    pub(super) fn parse(
        namespace: Option<String>,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, Refusal> {
        let labels = split(labels.unwrap_or_default()).into_iter().map(requirement).collect::<Option<_>>();
        let labels = labels.ok_or_else(|| Refusal::bad("unable to parse the label selector"))?;
        let fields = split(fields.unwrap_or_default()).into_iter().map(field).collect::<Option<_>>();
        let fields = fields.ok_or_else(|| Refusal::bad("unable to parse the field selector"))?;
        Ok(Self { namespace, labels, fields })
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace())
            && self.labels.iter().all(|requirement| requirement.holds(object))
            && self.fields.iter().all(|(path, value, equal)| (text_at(&object.value, path) == *value) == *equal)
    }
}

impl Requirement {
    fn holds(&self, object: &Object) -> bool {
        match self {
            Self::Exists(name) => object.label(name).is_some(),
            Self::Absent(name) => object.label(name).is_none(),
            Self::In(name, values) => object.label(name).is_some_and(|is| values.iter().any(|value| value == is)),
            Self::NotIn(name, values) => object.label(name).is_none_or(|is| values.iter().all(|value| value != is)),
        }
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn requirement(text: &str) -> Option<Requirement> {
    let set = |rest: &str| -> Option<Vec<String>> {
        let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(inner.split(',').map(|value| value.trim().to_owned()).collect())
    };
    if let Some((name, rest)) = text.split_once(" notin ") {
        return Some(Requirement::NotIn(name.trim().to_owned(), set(rest)?));
    }
    if let Some((name, rest)) = text.split_once(" in ") {
        return Some(Requirement::In(name.trim().to_owned(), set(rest)?));
    }
    if let Some((name, value)) = text.split_once("!=") {
        return Some(Requirement::NotIn(name.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Requirement::In(name.trim().to_owned(), vec![value.trim().to_owned()]));
    }
    match text.strip_prefix('!') {
        Some(name) => Some(Requirement::Absent(name.trim().to_owned())),
        None => Some(Requirement::Exists(text.to_owned())),
    }
}

fn field(text: &str) -> Option<(String, String, bool)> {
    let (path, value, equal) = match text.split_once("!=") {
        Some((path, value)) => (path, value, false),
        None => {
            let (path, value) = text.split_once("==").or_else(|| text.split_once('='))?;
            (path, value, true)
        }
    };
    Some((path.to_owned(), value.to_owned(), equal))
}

fn text_at<'a>(value: &'a Value, path: &str) -> &'a str {
    path.split('.').try_fold(value, |value, field| value.get(field)).and_then(Value::as_str).unwrap_or_default()
}
