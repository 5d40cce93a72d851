//! Requests to the API server: their deadlines, and what an answer proves.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::client::AuthError;
use kube::core::Status;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::FIELD_MANAGER;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a request that delays a grant or a first connection to a member.
pub const SHORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for publishing one Event.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// An object that lives in a namespace and can be read.
pub trait Namespaced:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned> Namespaced
    for K
{
}

/// Replaces the error of a credential plugin, whose text has its arguments, variables and output.
#[must_use]
pub fn without_secrets(error: kube::Error) -> kube::Error {
    let mut source: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(cause) = source {
        match cause.downcast_ref() {
            Some(AuthError::AuthExecRun { out, .. }) => {
                return kube::Error::Service(format!("the credential plugin failed with {}", out.status).into());
            }
            Some(AuthError::AuthExecParse(_)) => {
                return kube::Error::Service("the output of the credential plugin cannot be read".into());
            }
            _ => source = cause.source(),
        }
    }
    error
}

/// The reason why a request failed, or why its outcome is unknown. No text contains a password, key or value.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Another client changed or created the object first: read it again.
    #[error("the object was changed or created in the meantime")]
    Conflict,
    /// The object no longer exists.
    #[error("the object is gone")]
    Gone,
    /// The API server refused.
    #[error("the API server refused")]
    Refused(#[source] Box<kube::Error>),
    /// The write can have happened, or can still happen.
    /// There was no answer, or one that does not show the outcome, such as an unreadable one.
    #[error("no answer from the API server that can be read")]
    Unknown(#[source] Option<Box<kube::Error>>),
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.is_conflict() || status.is_already_exists() => Self::Conflict,
            // The answer for a kind that was deleted is a text without a reason.
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            kube::Error::Api(status) if (400..500).contains(&status.code) && ![408, 429].contains(&status.code) => {
                Self::Refused(Box::new(error))
            }
            _ => Self::Unknown(Some(Box::new(error))),
        }
    }
}

impl RequestError {
    /// The answer of the API server about a refusal or a failure.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        let (Self::Refused(error) | Self::Unknown(Some(error))) = self else { return None };
        if let kube::Error::Api(status) = error.as_ref() { Some(status) } else { None }
    }

    fn refusing_status(&self) -> Option<&Status> {
        self.status().filter(|_| matches!(self, Self::Refused(_)))
    }

    /// The text of the API server, if it refused.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refusing_status().map(|status| status.message.as_str())
    }

    /// The text of a refusal, or the code of another answer.
    ///
    /// The text of a failure, for example about a webhook, has ports or the present time. It is another one at each attempt.
    #[must_use]
    pub fn answer(&self) -> String {
        match (self.refused(), self.status()) {
            (Some(refusal), _) => refusal.to_owned(),
            (None, Some(status)) => format!("the API server failed with code {}", status.code),
            (None, None) => self.to_string(),
        }
    }

    /// The answer of the API server, if it refused with one of these codes.
    #[must_use]
    pub fn refusal(&self, codes: &[u16]) -> Option<&str> {
        self.refusing_status().filter(|status| codes.contains(&status.code)).map(|status| status.message.as_str())
    }
}

/// Awaits a request to the API server, with the default timeout.
pub async fn request<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    within(REQUEST_TIMEOUT, call).await
}

/// Awaits a request for at most this time.
pub async fn within<T>(deadline: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    Ok(timeout(deadline, call).await.map_err(|_elapsed| RequestError::Unknown(None))??)
}

/// Ignores that the object is missing.
pub fn unless_gone<T>(result: Result<T, RequestError>) -> Result<(), RequestError> {
    match result {
        Ok(_) | Err(RequestError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the object with this UID is the controller of another one. Any other owner reference is no evidence,
/// because a user who can edit an object can add one.
#[must_use]
pub fn is_ours<K: Resource>(object: &K, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// Checks the answer to a write. A mutating webhook can undo a write that the API server reports as successful.
///
/// # Errors
/// [`RequestError::Refused`] if the answer lacks the change.
pub fn unless_undone<T>(written: T, has_change: impl FnOnce(&T) -> bool) -> Result<T, RequestError> {
    if has_change(&written) {
        return Ok(written);
    }
    let status = Status::failure("an admission webhook or policy undid this change of the operator", "Undone");
    Err(RequestError::Refused(Box::new(kube::Error::Api(status.boxed()))))
}

/// The field manager of the operator.
#[must_use]
pub fn as_operator() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// Replaces this version of an object, or creates the object. A version in between is a conflict.
///
/// # Errors
/// If the API server refuses, or does not answer in time.
pub async fn put<K: Namespaced + Serialize>(api: &Api<K>, mut object: K, found: Option<&K>) -> Result<K, RequestError> {
    let Some(found) = found else { return request(api.create(&as_operator(), &object)).await };
    object.meta_mut().resource_version = found.resource_version();
    request(api.replace(&object.name_any(), &as_operator(), &object)).await
}

/// Deletes the object with this UID. Returns whether it existed.
///
/// # Errors
/// If the API server refuses, or does not answer in time.
pub async fn delete<K: Namespaced>(client: &Client, object: &K) -> Result<bool, RequestError> {
    delete_if(client, object, Preconditions { uid: object.uid(), resource_version: None }, false).await
}

/// Checks whether the API server would delete the object with this UID. Returns whether it exists.
///
/// The request is a dry run: the admission policies and webhooks judge a deletion, and nothing is deleted.
///
/// # Errors
/// If the API server would refuse, or does not answer in time.
pub async fn check_deletion<K: Namespaced>(client: &Client, object: &K) -> Result<bool, RequestError> {
    delete_if(client, object, Preconditions { uid: object.uid(), resource_version: None }, true).await
}

/// Deletes exactly this version of the object, because a later edit can mean that it should stay. Returns whether it was deleted.
///
/// # Errors
/// If the API server refuses, or does not answer in time.
pub async fn delete_version<K: Namespaced>(client: &Client, object: &K) -> Result<bool, RequestError> {
    let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
    delete_if(client, object, preconditions, false).await
}

async fn delete_if<K: Namespaced>(
    client: &Client,
    object: &K,
    preconditions: Preconditions,
    dry_run: bool,
) -> Result<bool, RequestError> {
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let params = DeleteParams { preconditions: Some(preconditions), dry_run, ..DeleteParams::background() };
    match request(api.delete(&object.name_any(), &params)).await {
        Ok(_) => Ok(true),
        Err(RequestError::Conflict | RequestError::Gone) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_credential_plugin_is_named_without_its_secrets() {
        let status = std::process::ExitStatus::default();
        let out = std::process::Output { status, stdout: b"secret".into(), stderr: b"secret".into() };
        let error = || AuthError::AuthExecRun { cmd: "plugin --password secret".into(), out: Box::new(out.clone()) };
        for error in [kube::Error::Auth(error()), kube::Error::Service(error().into())] {
            let text = without_secrets(error).to_string();
            assert_eq!(text, "ServiceError: the credential plugin failed with exit status: 0");
        }
        assert!(matches!(without_secrets(kube::Error::TlsRequired), kube::Error::TlsRequired));
    }

    #[test]
    fn only_a_readable_answer_proves_the_outcome_of_a_write() {
        let answered = |code: u16, reason: &str| {
            let status = json!({"status": "Failure", "message": "", "reason": reason, "code": code});
            RequestError::from(kube::Error::Api(serde_json::from_value(status).unwrap()))
        };
        for code in [408, 429, 500, 503, 504] {
            assert!(matches!(answered(code, "Timeout"), RequestError::Unknown(_)), "{code}");
        }
        assert!(matches!(answered(422, "Invalid"), RequestError::Refused(_)));
        assert!(matches!(answered(409, "Conflict"), RequestError::Conflict));
        assert!(matches!(answered(409, "AlreadyExists"), RequestError::Conflict));
        assert!(matches!(answered(404, "NotFound"), RequestError::Gone));
        // The API server did the write, and its answer is not readable as our type.
        let unreadable = serde_json::from_str::<u8>("{}").unwrap_err();
        assert!(matches!(RequestError::from(kube::Error::SerdeError(unreadable)), RequestError::Unknown(_)));
    }
}
