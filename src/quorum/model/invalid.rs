//! Why a specification cannot be carried out.

/// Why the operator cannot execute a specification. The API server also refuses these errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The object has no namespace, name or UID.
    #[error("the object has no {0}")]
    Incomplete(&'static str),
    /// The number is even, or outside 1 to 9.
    #[error("members and external are {0} together: set 1, 3, 5, 7 or 9 in total")]
    Members(i32),
    /// Two members have one name or address, or an external one has the name of one of the operator's own.
    #[error("external[{0}]: {1}")]
    External(String, &'static str),
    /// A client would get the addresses of some members only, and calculate another majority.
    #[error("clients cannot be used with external members, where the operator can make no users for them")]
    ClientsOfExternal,
    /// The name is too long, because it becomes part of other names.
    #[error("the name is longer than 40 characters")]
    Name,
    /// The key prefix could contain ACL rules.
    #[error(
        "clients[{0}].keyPrefix: a prefix is letters, digits, '.', '_' and '-' between slashes, and ends with a slash"
    )]
    KeyPrefix(String),
    /// The client name cannot be part of the name of a user or Secret.
    #[error("clients[{0}].name can contain a-z, 0-9 and '-', and cannot be a name of the operator's own users")]
    ClientName(String),
    /// The address is invalid.
    #[error("expose.addresses: {0:?} is no address: set a host, or host:port")]
    Address(String),
    /// The range of addresses is invalid.
    #[error("expose.sourceRanges: {0:?} is no network: set one such as 192.0.2.0/24 or 2001:db8::/32")]
    SourceRange(String),
    /// The quantity cannot be read, or Redis does not start with it.
    #[error("pod.resources.limits.memory: {0:?} is no quantity of at least 32Mi: set one such as 256Mi")]
    Memory(String),
    /// The value is out of its range.
    #[error("{0} is out of range")]
    Range(&'static str),
}
