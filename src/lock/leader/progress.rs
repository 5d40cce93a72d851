//! The outcome of a step of the leader.

use std::sync::Arc;
use std::time::Duration;

use crate::api::DistributedLock;
use crate::api::conditions::beginning;
use crate::api::requests::RequestError;
use crate::lock::model::refusal::Refusal;
use crate::runtime::reconciles::Action;

/// The pause after a conflict, when the newest version has been read.
pub(super) const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// The pause after the API server refused a write to another object of a lock.
pub(super) const AFTER_REFUSAL: Duration = Duration::from_secs(5);
/// The pause after the API server refused a write without which a hold does not end.
pub(super) const AFTER_REFUSED_END: Duration = Duration::from_secs(1);
/// Maximum length of the API server's text in a message.
const LONGEST_CAUSE: usize = 300;
/// The pause after any other error of a write.
pub(super) const AFTER_ERROR: Duration = Duration::from_millis(500);

/// The reason why a reconcile failed. The controller repeats it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server refused a write, or its answer is missing.
    #[error("failed to write to the API server")]
    Write(#[from] RequestError),
    /// The API server refused a write to another object. The status of the lock has this message.
    #[error("{0}")]
    Refused(Box<Refusal>),
}

impl Error {
    /// The error of a write to another object.
    ///
    /// `message` is the fault of the lock, with the text of the API server.
    pub(super) fn of_write(error: RequestError, message: impl FnOnce(String) -> Refusal) -> Self {
        if let Some(cause) = error.refused() { Self::of_refusal(cause, message) } else { Self::Write(error) }
    }

    /// The error of a write that the API server refused for this cause.
    pub(super) fn of_refusal(cause: &str, message: impl FnOnce(String) -> Refusal) -> Self {
        Self::Refused(Box::new(message(beginning(cause, LONGEST_CAUSE).to_owned())))
    }
}

/// The progress of a step.
pub(super) enum Progress {
    /// The next step begins with this object.
    Next(Arc<DistributedLock>),
    /// The reconcile ends, with the time of the next one.
    Done(Action),
}

/// The result of writes to another object of a lock, with the pause before its next reading.
pub(super) type Synced = Result<Option<Duration>, Error>;

/// The result of a step.
pub(super) type Stepped = Result<Progress, Error>;
