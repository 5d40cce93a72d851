//! The outcome of a step of the leader.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;

use crate::api::DistributedLock;
use crate::api::requests::RequestError;

/// The pause after a conflict, when the newest version has been read.
pub(super) const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// The pause after any other error of a write.
pub(super) const AFTER_ERROR: Duration = Duration::from_millis(500);

/// The reason why a reconcile failed. The controller repeats it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server refused a write, or its answer is missing.
    #[error("failed to write to the API server")]
    Write(#[from] RequestError),
    /// The members did not reserve tokens.
    #[error("failed to raise the quorum's token floor")]
    TokenFloor(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The number of panics in a row.
    #[error("handling the lock panicked, {0} times in a row")]
    Panicked(u32),
}

/// The progress of a step.
pub(super) enum Progress {
    /// The next step begins with this object.
    Next(Arc<DistributedLock>),
    /// The reconcile ends, with the time of the next one.
    Done(Action),
}

/// The result of a step.
pub(super) type Stepped = Result<Progress, Error>;
