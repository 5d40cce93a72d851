//! The writer and options of a request, and the reasons to refuse it.

use serde_json::{Value, json};

use super::super::Millis;
use super::kinds::Kind;

/// The writer of an object, and the time.
#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    pub now: Millis,
    /// The field manager.
    pub manager: &'a str,
}

/// Which part of an object a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything except the status.
    Main,
    /// Only the status.
    Status,
    /// The whole object, for components with subresources of their own (binding, finalizing).
    Whole,
}

/// How a deletion treats the dependents of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub uid: Option<String>,
    pub version: Option<String>,
    pub propagation: Option<Propagation>,
    /// The server only checks the deletion.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Deletes immediately, if the object still has this UID.
    pub fn now(uid: &str) -> Self {
        Self { grace_seconds: Some(0), uid: Some(uid.to_owned()), ..Self::default() }
    }

    pub fn of_body(body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let propagation = match text("/propagationPolicy").as_deref() {
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(_) => Some(Propagation::Background),
            None => None,
        };
        Self {
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            uid: text("/preconditions/uid"),
            version: text("/preconditions/resourceVersion"),
            propagation,
            dry_run: body["dryRun"].is_array(),
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// The header `Retry-After`.
    pub retry_after: Option<u32>,
}

impl Refusal {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None }
    }

    pub fn not_found(kind: Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource()))
    }

    pub fn exists(kind: Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.resource()))
    }

    pub fn conflict(kind: Kind, name: &str, why: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource()))
    }

    pub fn modified(kind: Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn invalid(kind: Kind, name: &str, why: &str) -> Self {
        Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {why}", kind.facts().name))
    }

    pub fn bad(why: &str) -> Self {
        Self::new(400, "BadRequest", why)
    }

    pub fn expired(why: &str) -> Self {
        Self::new(410, "Expired", why)
    }

    /// Builds a `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({"retryAfterSeconds": seconds});
        }
        status
    }
}
