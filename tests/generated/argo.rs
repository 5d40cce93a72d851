//! The health check for Argo CD, run by Lua 5.1, the language of Argo CD's interpreter.

use mlua::{Lua, Table};
use serde_json::{Value, json};

use crate::{chart::yaml, read};

const PATCH: &str = "packaging/argocd/argocd-cm.yaml";

/// A value in the syntax of Lua.
fn lua(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, value)| format!("[{name:?}] = {}", lua(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(", ")),
        Value::Null => "nil".to_owned(),
        other => other.to_string(),
    }
}

/// The health status and the message of this object.
fn health(kind: &str, object: &Value) -> (String, String) {
    let patch = yaml(PATCH);
    let check = patch["data"][format!("resource.customizations.health.redlock-operator.io_{kind}")].as_str().unwrap();
    let interpreter = Lua::new();
    interpreter.load(format!("obj = {}", lua(object))).exec().unwrap();
    let health: Table = interpreter.load(check).eval().unwrap();
    (health.get("status").unwrap(), health.get("message").unwrap())
}

fn object(generation: i64, status: &str, reason: &str) -> Value {
    let other = json!({"type": "Held", "status": "False", "reason": "Queued", "message": "another condition"});
    let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": format!("it is {reason}")});
    json!({"metadata": {"generation": generation}, "status": {"observedGeneration": 2, "conditions": [other, ready]}})
}

#[test]
fn the_health_check_for_argo_cd_reads_conditions() {
    for (kind, object, expected) in [
        ("DistributedLock", json!({"metadata": {"generation": 1}}), "Progressing"),
        ("DistributedLock", object(3, "True", "Held"), "Progressing"),
        ("DistributedLock", object(2, "True", "Queued"), "Healthy"),
        ("DistributedLock", object(2, "Unknown", "Pending"), "Progressing"),
        ("DistributedLock", object(2, "False", "QuorumNotReady"), "Progressing"),
        ("DistributedLock", object(2, "False", "TTLTooLong"), "Degraded"),
        ("RedisQuorum", object(2, "True", "AllAdmitted"), "Healthy"),
        ("RedisQuorum", object(2, "False", "MembersFenced"), "Progressing"),
        ("RedisQuorum", object(2, "False", "AuthLost"), "Degraded"),
    ] {
        let (status, message) = health(kind, &object);
        assert_eq!(status, expected, "{kind} {object}");
        let reason = &object["status"]["conditions"][1]["reason"];
        assert!(object["metadata"]["generation"] != 2 || message.ends_with(reason.as_str().unwrap()), "{message}");
    }
}

/// Checks that the code has each reason, because a misspelt one would never be Progressing.
#[test]
fn the_health_check_names_reasons_that_exist() {
    let conditions = read("docs/reference/conditions.md");
    let patch = read(PATCH);
    let (_, rest) = patch.split_once("local starting = {").unwrap();
    for reason in rest.split_once('}').unwrap().0.split(',').map(|entry| entry.split('=').next().unwrap().trim()) {
        assert!(conditions.lines().any(|line| line.ends_with(&format!(" · {reason}"))), "{reason}");
    }
}
