//! Requests to the API server: their deadlines, and what an answer settles.

use std::time::Duration;

use tokio::time::timeout;

/// For one request that a lock or the report of an unreadable object waits for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// For publishing one Event.
pub(super) const EVENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a request failed, or that its outcome is not known.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Another client changed the object first: read it again.
    #[error("the object changed in the meantime")]
    Conflict,
    /// The object does not exist any more.
    #[error("the object is gone")]
    Gone,
    /// The API server refused.
    #[error("the API server refused")]
    Refused(#[source] Box<kube::Error>),
    /// No answer, or none that settles it (one that cannot be read, too): the write may have happened or may yet happen.
    #[error("no answer from the API server that can be read")]
    Unknown(#[source] Option<Box<kube::Error>>),
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict,
            kube::Error::Api(status) if status.is_not_found() => Self::Gone,
            kube::Error::Api(status) if (400..500).contains(&status.code) && ![408, 429].contains(&status.code) => {
                Self::Refused(Box::new(error))
            }
            _ => Self::Unknown(Some(Box::new(error))),
        }
    }
}

/// Awaits a request to the API server for a limited time.
pub async fn request<T>(future: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    Ok(timeout(REQUEST_TIMEOUT, future).await.map_err(|_elapsed| RequestError::Unknown(None))??)
}

/// The same of a request that leaves nothing to do when the object is gone.
pub async fn request_unless_gone<T>(future: impl Future<Output = kube::Result<T>>) -> Result<(), RequestError> {
    unless_gone(request(future).await)
}

/// An object that is gone needs nothing more.
pub fn unless_gone<T>(result: Result<T, RequestError>) -> Result<(), RequestError> {
    match result {
        Ok(_) | Err(RequestError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_answer_that_can_be_read_settles_what_became_of_a_write() {
        let answered = |code: u16, reason: &str| {
            let status = json!({"status": "Failure", "message": "", "reason": reason, "code": code});
            RequestError::from(kube::Error::Api(serde_json::from_value(status).unwrap()))
        };
        for code in [408, 429, 500, 503, 504] {
            assert!(matches!(answered(code, "Timeout"), RequestError::Unknown(_)), "{code}");
        }
        assert!(matches!(answered(422, "Invalid"), RequestError::Refused(_)));
        assert!(matches!(answered(409, "Conflict"), RequestError::Conflict));
        assert!(matches!(answered(404, "NotFound"), RequestError::Gone));
        // It was carried out, and the object as written is one that our types refuse.
        let unreadable = serde_json::from_str::<u8>("{}").unwrap_err();
        assert!(matches!(RequestError::from(kube::Error::SerdeError(unreadable)), RequestError::Unknown(_)));
    }
}
