//! Why a request to the cluster failed, and the next step for the user.

use std::fmt;

use kube::core::Status;
use kube::runtime::watcher;

use redlock_api::requests::RequestError;

/// The next step after a response to missing or expired credentials.
const LOG_IN: &str = "Log in again: the API server does not accept the credentials of this context.";
/// The next step of a process that takes locks without the rights for that.
const HOLDER_ROLE: &str = "Bind the ClusterRole redlock-operator-holder to this account.";
/// The words of a refusal by RBAC. Webhooks, policies and quotas also answer 403, and their messages have the cause.
const WITHOUT_RIGHT: &str = " is forbidden: User ";

/// A failure, and the next step for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The failure, as a fragment of a sentence.
    pub what: String,
    /// The next step, as a sentence. It is empty if there is none.
    pub next: String,
    /// The code of the API server's answer.
    pub code: Option<u16>,
}

impl Problem {
    /// A failure that is not a response of the API server.
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { what: what.into(), next: next.into(), code: None }
    }

    /// Whether the API server forbids the request to this user.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.code == Some(403)
    }

    /// Whether the object or its kind does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    /// The problem for a failed request.
    pub(super) fn of_request(doing: &str, server: &str, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            let cause = root_cause(error);
            let next = match cause.contains("certificate") {
                true => "Name the file with the authority of this API server: --certificate-authority FILE".to_owned(),
                false => format!("Check that {server} is the right API server and can be reached: redlock doctor"),
            };
            return Self::new(format!("failed to {doing}: {cause}"), next);
        };
        Self::of_status(doing, status)
    }

    /// The problem for a watch that the API server denies to a process that takes locks.
    ///
    /// `None` after any other error, because the watch then tries again.
    #[must_use]
    pub fn of_watch(doing: &str, error: &watcher::Error) -> Option<Self> {
        let problem = Self::of_denied_watch(doing, error)?;
        let next = if problem.is_forbidden() { HOLDER_ROLE.to_owned() } else { problem.next };
        Some(Self { next, ..problem })
    }

    /// The problem for a watch that the API server denies to a user.
    #[must_use]
    pub fn of_denied_watch(doing: &str, error: &watcher::Error) -> Option<Self> {
        let status = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => status,
            _ => return None,
        };
        matches!(status.code, 401 | 403).then(|| Self::of_status(doing, status))
    }

    /// The problem for a failed request of a process that takes locks.
    ///
    /// `failure` is the text before the cause.
    #[must_use]
    pub fn of_holder(failure: &str, error: &RequestError) -> Self {
        let Some(status) = error.status() else { return Self::new(format!("{failure}: {}", root_cause(error)), "") };
        let next = match status.code {
            401 => LOG_IN,
            403 if status.message.contains(WITHOUT_RIGHT) => HOLDER_ROLE,
            _ => "",
        };
        let what = format!("{failure}: {}", message_of(status));
        Self { what, next: next.to_owned(), code: Some(status.code) }
    }

    /// The problem for a request that the API server answered with a failure.
    fn of_status(doing: &str, status: &Status) -> Self {
        let next = match status.code {
            401 => LOG_IN,
            403 => "Ask an administrator for the role that docs/command.md names for this command.",
            404 if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => {
                "The kind is not installed. Install the chart redlock-operator, or apply its CRDs: redlock crds"
            }
            409 => "The object changed meanwhile. Run the command again.",
            429 | 500..=599 => "The API server is busy or starts. Run the command again in a minute.",
            _ => "",
        };
        let what = format!("failed to {doing}: {}", message_of(status));
        Self { what, next: next.to_owned(), code: Some(status.code) }
    }
}

/// The text of an answer of the API server.
fn message_of(status: &Status) -> &str {
    if status.message.is_empty() { &status.reason } else { &status.message }
}

/// The innermost error. The errors that kube wraps around it add no information.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.next.is_empty() { Ok(()) } else { write!(f, "\nnext: {}", self.next) }
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(code: u16, details: serde_json::Value) -> Problem {
        let status = json!({"status": "Failure", "message": "no", "reason": "R", "code": code, "details": details});
        let error = kube::Error::Api(serde_json::from_value(status).unwrap());
        Problem::of_request("list locks", "https://cluster:6443", &error)
    }

    #[test]
    fn an_error_names_the_next_step() {
        let forbidden = refused(403, json!(null));
        assert!(forbidden.is_forbidden());
        assert_eq!(
            forbidden.to_string(),
            "failed to list locks: no\nnext: Ask an administrator for the role that docs/command.md names for this command."
        );
        assert!(refused(404, json!({})).next.contains("redlock crds"), "the kind is missing");
        assert_eq!(refused(404, json!({"name": "a"})).next, "", "the object is missing");
        assert_eq!(refused(400, json!(null)).to_string(), "failed to list locks: no");
        let unreachable = kube::Error::Service(std::io::Error::other("connection refused").into());
        let unreachable = Problem::of_request("list locks", "https://cluster:6443", &unreachable);
        assert!(unreachable.to_string().contains("connection refused"), "{unreachable}");
        assert!(unreachable.next.contains("https://cluster:6443"), "{unreachable}");
    }

    #[test]
    fn only_a_holder_without_a_right_gets_the_name_of_its_role() {
        let problem = |code: u16, message: &str| {
            let status = json!({"status": "Failure", "message": message, "reason": "Forbidden", "code": code});
            let error = RequestError::from(kube::Error::Api(serde_json::from_value(status).unwrap()));
            Problem::of_holder("the claim was not created", &error)
        };
        let denied = "distributedlocks.redlock-operator.io is forbidden: User \"ci\" cannot create resource \"distributedlocks\"";
        let text = format!("the claim was not created: {denied}\nnext: {HOLDER_ROLE}");
        assert_eq!(problem(403, denied).to_string(), text, "it has the message once, and no debug form");
        for (code, message) in [(403, "claims \"a\" is forbidden: exceeded quota: locks"), (422, "invalid")] {
            assert_eq!(problem(code, message).to_string(), format!("the claim was not created: {message}"));
        }
        assert_eq!(problem(401, "").to_string(), format!("the claim was not created: Forbidden\nnext: {LOG_IN}"));
        let unreachable = kube::Error::Service(std::io::Error::other("connection refused").into());
        let unreachable = Problem::of_holder("no answer", &RequestError::from(unreachable));
        assert_eq!(unreachable.to_string(), "no answer: connection refused");
    }

    #[test]
    fn only_a_denied_watch_is_a_problem() {
        let status =
            |code: u16| serde_json::from_value::<Status>(json!({"reason": "R", "code": code})).unwrap().boxed();
        let of = |error: watcher::Error| Problem::of_watch("watch a", &error);
        for code in [401, 403] {
            let refused = || kube::Error::Api(status(code));
            for error in [
                watcher::Error::InitialListFailed(refused()),
                watcher::Error::WatchStartFailed(refused()),
                watcher::Error::WatchFailed(refused()),
                watcher::Error::WatchError(status(code)),
            ] {
                let next = if code == 403 { HOLDER_ROLE } else { LOG_IN };
                assert!(of(error).is_some_and(|problem| problem.code == Some(code) && problem.next == next));
            }
        }
        assert_eq!(of(watcher::Error::WatchError(status(410))), None);
        assert_eq!(of(watcher::Error::InitialListFailed(kube::Error::Api(status(500)))), None);
        assert_eq!(of(watcher::Error::NoResourceVersion), None);
    }
}
