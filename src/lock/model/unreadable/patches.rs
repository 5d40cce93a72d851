//! What is written into the status of a lock that cannot be read: merge patches, each for one version of the object.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::Raw;
use crate::api::MilliTime;
use crate::api::conditions::{LockCondition, Status, set_condition};
use crate::lock::model::readiness::set_ready;
use crate::lock::model::said::Said;
use crate::time::UnixMillis;

/// So much of a reason fits into the status.
const LONGEST: usize = 512;

/// The hold ends: no replica renews it any more.
#[must_use]
pub fn ending(raw: &Raw, now: UnixMillis) -> Value {
    let (reason, why) = (raw.trouble.held(), shortened(&raw.trouble.to_string()));
    let since = MilliTime::from_millis(now.0).map(|since| since.to_string());
    let message = Said::RunsOut { why: why.clone() }.to_string();
    let conditions = conditions(raw, now, &[(LockCondition::Held, Status::True, "Ending", message)]);
    let status =
        json!({"ending": {"since": since, "reason": reason.as_str(), "message": why}, "conditions": conditions});
    patch(raw, status)
}

/// It has no holder any more. A claim ends once.
#[must_use]
pub fn ended(raw: &Raw, now: UnixMillis) -> Value {
    let (reason, why) = (raw.trouble.held().as_str(), shortened(&raw.trouble.to_string()));
    let mut said = vec![(LockCondition::Held, Status::False, reason, why.clone())];
    if raw.field("/spec/claim").is_some() {
        said.push((LockCondition::Finished, Status::True, reason, why));
    }
    let status = json!({
        "holder": null, "fencingToken": null, "acquiredAt": null, "renewedAt": null, "validUntil": null, "votes": null,
        "ending": null, "queuePosition": null, "conditions": conditions(raw, now, &said),
    });
    patch(raw, status)
}

/// Says what is wrong. `None`: the status says so already.
#[must_use]
pub fn told(raw: &Raw, now: UnixMillis) -> Option<Value> {
    let finished = raw.field("/status/conditions").and_then(Value::as_array).into_iter().flatten().any(|condition| {
        condition.get("type") == Some(&json!("Finished")) && condition.get("status") == Some(&json!("True"))
    });
    let why = shortened(&raw.trouble.to_string());
    let held = (LockCondition::Held, Status::False, raw.trouble.held().as_str(), why);
    let conditions = conditions(raw, now, if finished { &[] } else { std::slice::from_ref(&held) });
    (raw.field("/status/conditions") != Some(&conditions)).then(|| patch(raw, json!({"conditions": conditions})))
}

/// The conditions of any object that cannot be read, with this one among them. Those that cannot be read are left out.
#[must_use]
pub fn condition(
    object: &Value,
    (type_, status): (&'static str, Status),
    (reason, message): (&'static str, &str),
    now: UnixMillis,
) -> Vec<Condition> {
    let items = object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut conditions: Vec<Condition> =
        items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect();
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let now = Timestamp::from_millisecond(now.0).unwrap_or_default();
    set_condition(&mut conditions, type_, status, reason, shortened(message), (generation, now));
    conditions
}

fn conditions(raw: &Raw, now: UnixMillis, said: &[(LockCondition, Status, &'static str, String)]) -> Value {
    let Raw { trouble, object, .. } = raw;
    let mut all = condition(
        object,
        (LockCondition::Accepted.as_str(), Status::False),
        (trouble.accepted().as_str(), &trouble.to_string()),
        now,
    );
    let time = Timestamp::from_millisecond(now.0).unwrap_or_default();
    for (type_, status, reason, message) in said {
        set_condition(&mut all, *type_, *status, *reason, message.clone(), (raw.metadata.generation, time));
    }
    set_ready(&mut all, None, raw.metadata.generation, time);
    json!(all)
}

fn patch(raw: &Raw, status: Value) -> Value {
    json!({"metadata": {"uid": raw.metadata.uid, "resourceVersion": raw.metadata.resource_version}, "status": status})
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}
