//! What a step of the leader comes to.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;

use crate::api::DistributedLock;
use crate::api::requests::RequestError;

/// After a conflict, when the newest version has been read.
pub(super) const AFTER_CONFLICT: Duration = Duration::from_millis(20);
/// After any other error of a write.
pub(super) const AFTER_ERROR: Duration = Duration::from_millis(500);

/// Why a reconcile could not finish; it is repeated with backoff.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The API server refused a write, or its answer is missing.
    #[error("failed to write to the API server")]
    Write(#[from] RequestError),
    /// The quorum could not be asked to reserve tokens.
    #[error("failed to raise the quorum's token floor")]
    TokenFloor(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// So many times in a row.
    #[error("handling the lock panicked, {0} times in a row")]
    Panicked(u32),
}

/// How far a step came.
pub(super) enum Progress {
    /// There is more to do, from this state.
    Next(Arc<DistributedLock>),
    /// Nothing more until then.
    Done(Action),
}

/// What a step gives.
pub(super) type Stepped = Result<Progress, Error>;
