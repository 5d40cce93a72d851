//! Guards of votes on masters outside the operator's control.

/// The key of the record of operators that share a master.
///
/// It is one JSON string, with an entry for the UID of each RedisQuorum.
pub const RECORD_KEY: &str = "#quorum";

/// The epoch of a vote on an external master.
///
/// The vote is valid if the record has no later epoch of this quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// UID of the RedisQuorum.
    pub uid: String,
    /// Membership epoch of the voting connection.
    pub epoch: i64,
}
