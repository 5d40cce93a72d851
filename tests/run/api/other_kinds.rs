//! The answers about other kinds than locks.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::{Method, StatusCode},
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// One quorum with a restarted member.
fn list(now: Timestamp) -> Value {
    let member = |name: &str| json!({"name": name, "state": "Admitted", "admittedAt": "2026-01-01T00:00:00.000Z"});
    let fenced = json!({"name": "main-2", "state": "Fenced", "reason": "Restarted",
        "rejoinAt": super::text(now + Duration::from_secs(600))});
    json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorumList", "metadata": {"resourceVersion": "1"}, "items": [{
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum",
        "metadata": {"name": "main", "namespace": "redlock-system", "uid": "u-quorum",
            "annotations": {"redlock-operator.io/default-quorum": "true"}},
        "spec": {"maxTTL": "30s"},
        "status": {"quorum": 2, "voters": ["main-0", "main-1", "main-2"], "tokenFloor": 1,
            "members": [member("main-0"), member("main-1"), fenced], "conditions": []},
    }]})
}

/// The answer to `/version`.
fn version() -> Value {
    let empty = ["gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
    let mut version = json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0"});
    for name in empty {
        version[name] = json!("");
    }
    version
}

/// The answer to a request of a user who can read only locks and quorums.
///
/// A watch of quorums sends no events.
pub(super) fn answer(method: &Method, path: &str, watches: bool) -> (StatusCode, Body) {
    let object = |code: StatusCode, object: Value| (code, Body::from(object.to_string()));
    let forbidden = || object(StatusCode::FORBIDDEN, super::failure(403, "Forbidden"));
    let never = || Body::from_stream(futures::stream::pending::<Result<Bytes, std::convert::Infallible>>());
    match *method {
        Method::GET if path == "/version" => object(StatusCode::OK, version()),
        Method::GET if path.ends_with("/redisquorums") && watches => (StatusCode::OK, never()),
        Method::GET if path.ends_with("/redisquorums") => object(StatusCode::OK, list(super::now())),
        Method::POST if path.ends_with("/selfsubjectreviews") => {
            let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
                "metadata": {}, "status": {"userInfo": {"username": "test"}}});
            object(StatusCode::CREATED, review)
        }
        Method::GET => forbidden(),
        Method::POST if path.ends_with("/selfsubjectaccessreviews") => forbidden(),
        _ => panic!("{method} {path}"),
    }
}
