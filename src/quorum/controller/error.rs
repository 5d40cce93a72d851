//! Why a reconciliation ends early, and the pauses between reconciliations.

use std::time::Duration;

use crate::api::requests::RequestError;
use crate::quorum::session::{ActError, FloorError};

/// The pause before a quorum without changes is reconciled again.
pub(super) const RESYNC: Duration = Duration::from_secs(60);
/// The maximum pause, which follows many failures.
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(10);

/// The result of a step of the controller.
pub(super) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a reconciliation ended early. No error contains a password, key or value.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the quorum was deleted")]
    Gone,
    /// No further step is possible with the state from the beginning of this reconciliation.
    #[error("the next reconciliation begins after {0:?}")]
    Later(Duration),
    #[error("handling the quorum panicked")]
    Panicked,
    #[error(transparent)]
    Member(#[from] ActError),
    #[error(transparent)]
    Floor(#[from] FloorError),
}

impl Error {
    /// The object has changed since the decision.
    pub(super) const CONFLICT: Self = Self::Request(RequestError::Conflict);

    /// The text of the API server, if it refused a request.
    pub(super) fn refused(&self) -> Option<&str> {
        if let Self::Request(error) = self { error.refused() } else { None }
    }
}
