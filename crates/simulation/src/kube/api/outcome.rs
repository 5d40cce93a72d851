//! Who writes and how, and why a request is refused.

use serde_json::{Value, json};

use super::super::Millis;
use super::kinds::Kind;

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    pub now: Millis,
    /// The field manager.
    pub manager: &'a str,
}

/// What a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status.
    Main,
    /// The status alone.
    Status,
    /// Whatever it says, for the stand-ins of components with subresources of their own (binding, finalizing).
    Whole,
}

/// What becomes of an object's dependents.
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
}

impl DeleteOptions {
    /// At once, if it still is the object with this UID.
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
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// For the header `Retry-After`.
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

    /// A `Status` object.
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
