//! Pure: answers as HTTP. A refusal is a problem of RFC 9457, with the next step.

use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::leadership::{Answer, Refusal};
use crate::hold::LockResponse;
use redlock_engine::time::Boottime;

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// A status with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Reply {
    pub(super) const fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body }
    }

    /// A problem, with a `reason` for programs and a `detail` for users.
    pub(super) fn problem(status: StatusCode, reason: &str, detail: &str) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        let body = json!({"type": "about:blank", "title": title, "status": status.as_u16(), "reason": reason, "detail": detail});
        Self { status, body }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let kind = if self.status.is_success() { JSON } else { PROBLEM };
        (self.status, typed(kind, format!("{}\n", self.body))).into_response()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        of_refusal(self).into_response()
    }
}

/// A body that no proxy or client keeps.
pub(super) fn typed(kind: &'static str, body: impl IntoResponse) -> impl IntoResponse {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], body)
}

/// The reply to the question whether an instance leads at `now`.
pub(super) fn of_answer(lock: &str, answer: Answer, now: Boottime) -> Reply {
    match answer {
        Answer::Leads { deadline, .. } if deadline <= now => unknown("the validity has passed meanwhile"),
        Answer::Leads { token, holder, deadline } => {
            let held = LockResponse::new(lock.to_owned(), holder, token).at(deadline, now);
            Reply::ok(serde_json::to_value(held).unwrap_or_default())
        }
        Answer::No(refusal) => of_refusal(refusal),
        Answer::Unknown { why } => unknown(&why),
    }
}

fn unknown(why: &str) -> Reply {
    // The log has the next step of a problem on a line of its own.
    let why = why.replace("\nnext: ", ". ");
    let why = why.trim_end_matches('.');
    let detail = format!("It is not known whether the lock is held: {why}. Do not act as its holder; ask again.");
    Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "Unknown", &detail)
}

pub(super) fn of_refusal(refusal: Refusal) -> Reply {
    let (status, reason) = match refusal {
        Refusal::NotRegistered => (StatusCode::CONFLICT, "NotRegistered"),
        Refusal::NotServed => (StatusCode::CONFLICT, "NotServed"),
        Refusal::NotHeld { .. } => (StatusCode::CONFLICT, "NotHeld"),
        Refusal::HeldByOther { .. } => (StatusCode::CONFLICT, "HeldByOther"),
        Refusal::HeldBefore { .. } => (StatusCode::CONFLICT, "HeldBefore"),
        Refusal::OtherToken { .. } => (StatusCode::CONFLICT, "OtherToken"),
        Refusal::NotAcquired => (StatusCode::NOT_FOUND, "NotAcquired"),
        Refusal::Taken => (StatusCode::CONFLICT, "Taken"),
        Refusal::TooManyLocks => (StatusCode::CONFLICT, "TooManyLocks"),
        Refusal::Served => (StatusCode::CONFLICT, "Served"),
        Refusal::Election => (StatusCode::METHOD_NOT_ALLOWED, "Election"),
        Refusal::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "Stopping"),
    };
    Reply::problem(status, reason, &refusal.to_string())
}

/// The reply for an unknown path.
pub(super) fn no_path() -> Reply {
    let detail = "There is no such path. GET /openapi.json has all of them; a / of a lock is written %2F.";
    Reply::problem(StatusCode::NOT_FOUND, "NotFound", detail)
}

/// The reply for a method that the endpoint does not have.
pub(super) fn no_method() -> Reply {
    let detail = "GET reads, POST changes. GET /openapi.json has all paths.";
    Reply::problem(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", detail)
}

/// The reply for a path that does not contain a valid lock.
pub(super) fn no_lock() -> Reply {
    let detail =
        "A lock is <namespace>/<key>, in paths <namespace>%2F<key>. A key has letters, digits and . _ : / - only.";
    Reply::problem(StatusCode::BAD_REQUEST, "BadLock", detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::at;

    #[test]
    fn a_leader_gets_the_remaining_validity() {
        let answer = Answer::Leads { token: 7, holder: "pod-a".into(), deadline: at(3_000) };
        let reply = of_answer("shop/a", answer.clone(), at(1_000));
        let wanted = json!({"lock": "shop/a", "holder": "pod-a", "fencingToken": 7, "validForMs": 2_000, "deadlineBoottimeMs": 3_000});
        assert_eq!(reply, Reply::ok(wanted));
        assert_eq!(of_answer("shop/a", answer, at(3_000)).status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn the_statuses_are_those_of_the_interface() {
        let of = |refusal| of_answer("a/b", Answer::No(refusal), at(0));
        let reply = of(Refusal::NotHeld { why: "place 2 in the queue".into() });
        assert_eq!((reply.status, &reply.body["reason"]), (StatusCode::CONFLICT, &json!("NotHeld")));
        assert_eq!(reply.body["detail"], "The lock is not held: place 2 in the queue. Ask again, or listen to /watch.");
        for conflict in [
            Refusal::NotRegistered,
            Refusal::NotServed,
            Refusal::HeldBefore { token: 1 },
            Refusal::HeldByOther { holder: "b".into() },
        ] {
            assert_eq!(of(conflict).status, StatusCode::CONFLICT);
        }
        assert!(of(Refusal::NotRegistered).body["detail"].as_str().unwrap().contains("POST /register"));
        let unknown = of_answer("a/b", Answer::Unknown { why: "x".into() }, at(0));
        assert_eq!((unknown.status.as_u16(), &unknown.body["reason"]), (503, &json!("Unknown")));
        let problem = of_answer("a/b", Answer::Unknown { why: "no right\nnext: Bind the role.".into() }, at(0));
        let detail =
            "It is not known whether the lock is held: no right. Bind the role. Do not act as its holder; ask again.";
        assert_eq!(problem.body["detail"], detail);
    }
}
