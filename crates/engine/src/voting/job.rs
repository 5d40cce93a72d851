use crate::redlock::{Command, MemberError, RunId, Slot};
use std::sync::Arc;

/// The state of a voting connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not connected: commands fail at once.
    Down(MemberError),
    /// Connected to a process that is fenced for this user (or not yet asked): it has not told who it is.
    Fenced,
    /// Connected to this process.
    Open(RunId),
}

/// Commands on their way to the member, and where their answers go.
pub(super) struct Job {
    pub(super) commands: Arc<[Command]>,
    pub(super) slot: Slot,
}
