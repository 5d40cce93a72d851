//! Pure: what is known as HTTP says it. Errors are problems (RFC 9457), with what to do next.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

use super::super::holding::Answer;
use super::book::{No, Who, Word};
use super::desk::Refused;
use crate::time::Boottime;

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// A status with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: StatusCode,
    pub(super) body: Value,
}

impl Said {
    pub(super) const fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body }
    }

    /// What is wrong, for programs and for people.
    pub(super) fn problem(status: StatusCode, reason: &str, detail: &str) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        let body = json!({"type": "about:blank", "title": title, "status": status.as_u16(), "reason": reason, "detail": detail});
        Self { status, body }
    }

    pub(super) fn response(self) -> Response {
        let kind = if self.status.is_success() { JSON } else { PROBLEM };
        let mut text = self.body.to_string();
        text.push('\n');
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Whether this instance leads, as it is true now.
pub(super) fn of_word(lock: &str, word: Word, now: Boottime) -> Said {
    match word {
        Word::Leads { deadline, .. } if deadline <= now => unknown("the validity has passed meanwhile"),
        Word::Leads { token, holder, deadline } => {
            let answer = Answer::new(lock.to_owned(), holder, token).at(deadline, now);
            Said::ok(serde_json::to_value(answer).unwrap_or_default())
        }
        Word::DoesNot { no, why } => {
            let (reason, next) = match no {
                No::NotRegistered => return of_who(Who::Unnamed),
                No::NotServed => return of_who(Who::Other),
                No::NotHeld => ("NotHeld", "Ask again, or listen to /watch."),
                No::HeldByOther => ("HeldByOther", "Ask again, or listen to /watch."),
                No::HeldBefore => ("HeldBefore", "The hold is given back; ask again."),
            };
            Said::problem(StatusCode::CONFLICT, reason, &format!("{}. {next}", sentence(&why)))
        }
        Word::Unknown { why } => unknown(&why),
    }
}

fn unknown(why: &str) -> Said {
    let detail = format!("It is not known whether the lock is held: {why}. Do not act as its holder; ask again.");
    Said::problem(StatusCode::SERVICE_UNAVAILABLE, "Unknown", &detail)
}

fn of_who(who: Who) -> Said {
    let (reason, detail) = match who {
        Who::Unnamed => (
            "NotRegistered",
            "The request names no instance. POST /register when the application starts, and give the instance with each request.",
        ),
        _ => (
            "NotServed",
            "Another instance has registered since, or the agent was started since. An application that lives on registers again.",
        ),
    };
    Said::problem(StatusCode::CONFLICT, reason, detail)
}

/// Why a lock is not taken.
pub(super) fn of_refused(refused: Refused) -> Said {
    let conflict = |reason, detail| Said::problem(StatusCode::CONFLICT, reason, detail);
    match refused {
        Refused::NotServed(who) => of_who(who),
        Refused::Taken => {
            conflict("Taken", "This instance has the lock, or waits for it, by another request. Release it first.")
        }
        Refused::TooMany => conflict("TooManyLocks", "The agent cares for as many locks as it can. Release some."),
        Refused::Stopping => {
            Said::problem(StatusCode::SERVICE_UNAVAILABLE, "Stopping", "The agent is being stopped and takes no locks.")
        }
    }
}

/// There is no such endpoint.
pub(super) fn no_path() -> Said {
    let detail = "There is no such path. GET /openapi.json has all of them; a / of a lock is written %2F.";
    Said::problem(StatusCode::NOT_FOUND, "NotFound", detail)
}

/// An endpoint is asked in another way than it answers.
pub(super) fn no_method() -> Said {
    let detail = "GET reads, POST changes. GET /openapi.json has all paths.";
    Said::problem(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", detail)
}

/// The path names no lock.
pub(super) fn no_lock() -> Said {
    let detail =
        "A lock is <namespace>/<key>, in paths <namespace>%2F<key>. A key has letters, digits and . _ : / - only.";
    Said::problem(StatusCode::BAD_REQUEST, "BadLock", detail)
}

/// A reason as a sentence without its stop.
fn sentence(text: &str) -> String {
    let mut letters = text.trim_end_matches('.').chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Boottime {
        Boottime::new(Duration::from_millis(millis))
    }

    #[test]
    fn a_leader_is_told_what_is_left_at_this_moment() {
        let word = Word::Leads { token: 7, holder: "pod-a".into(), deadline: at(3_000) };
        let said = of_word("shop/a", word.clone(), at(1_000));
        let wanted = json!({"lock": "shop/a", "holder": "pod-a", "fencingToken": 7, "validForMs": 2_000, "deadlineBoottimeMs": 3_000});
        assert_eq!(said, Said::ok(wanted));
        assert_eq!(of_word("shop/a", word, at(3_000)).status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn the_statuses_are_those_of_the_interface() {
        let of = |no| of_word("a/b", Word::DoesNot { no, why: "place 2 in the queue".into() }, at(0));
        let said = of(No::NotHeld);
        assert_eq!((said.status, &said.body["reason"]), (StatusCode::CONFLICT, &json!("NotHeld")));
        assert_eq!(said.body["detail"], "Place 2 in the queue. Ask again, or listen to /watch.");
        for no in [No::NotRegistered, No::NotServed, No::HeldBefore, No::HeldByOther] {
            assert_eq!(of(no).status, StatusCode::CONFLICT);
        }
        assert!(of(No::NotRegistered).body["detail"].as_str().unwrap().contains("POST /register"));
        let unknown = of_word("a/b", Word::Unknown { why: "x".into() }, at(0));
        assert_eq!((unknown.status.as_u16(), &unknown.body["reason"]), (503, &json!("Unknown")));
    }
}
