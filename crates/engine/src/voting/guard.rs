//! What guards a vote on a master that others run: the record of its operators.

/// Where operators that share a master say what they are: one string, JSON, by the UID of the RedisQuorum.
pub const RECORD_KEY: &str = "#quorum";

/// What a vote on a master that others run is judged by: the record must not know of a later epoch of this quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// UID of the RedisQuorum.
    pub uid: String,
    /// Membership epoch that the voting connection belongs to.
    pub epoch: i64,
}
