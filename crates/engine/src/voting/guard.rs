//! Guards of votes on masters outside the operator's control.

/// The key of the record of operators that share a master.
///
/// It is one JSON string, with an entry for the UID of each RedisQuorum.
pub const RECORD_KEY: &str = "#quorum";

/// The admission by which an external master votes.
///
/// A vote is valid if the record has no later epoch of this quorum, and has not been lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// UID of the RedisQuorum.
    pub uid: String,
    /// Membership epoch of the voting connection.
    pub epoch: i64,
    /// Since when the process has the record, in milliseconds of its own clock. `None` is not compared.
    pub since: Option<i64>,
}
