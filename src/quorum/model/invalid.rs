//! Why a specification cannot be carried out.

/// Why a specification cannot be carried out. The API server refuses these, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The object has no namespace, name or UID.
    #[error("the object has no {0}")]
    Incomplete(&'static str),
    /// An even number, or outside 1 to 9.
    #[error("members and external are {0} together: set 1, 3, 5, 7 or 9 in total")]
    Members(i32),
    /// Two members of one name or address, or an external one named like one of the operator's own.
    #[error("external[{0}]: {1}")]
    External(String, &'static str),
    /// A client would get the addresses of some members only, and count another majority.
    #[error("clients cannot be used with external members, where the operator can make no users for them")]
    ClientsOfExternal,
    /// The name becomes part of others.
    #[error("the name is longer than 40 characters")]
    Name,
    /// A key prefix that could carry ACL rules.
    #[error(
        "clients[{0}].keyPrefix: a prefix is letters, digits, '.', '_' and '-' between slashes, and ends with a slash"
    )]
    KeyPrefix(String),
    /// A client name that cannot be part of a user's or Secret's name.
    #[error("clients[{0}].name may hold a-z, 0-9 and '-', and no name of the operator's own users")]
    ClientName(String),
    /// An address that is none.
    #[error("expose.addresses: {0:?} is no address: set a host, or host:port")]
    Address(String),
    /// A range of addresses that is none.
    #[error("expose.sourceRanges: {0:?} is no network: set one such as 192.0.2.0/24 or 2001:db8::/32")]
    SourceRange(String),
    /// A quantity that cannot be read, or with which Redis does not start.
    #[error("pod.resources.limits.memory: {0:?} is no quantity of at least 32Mi: set one such as 256Mi")]
    Memory(String),
    /// Out of its range.
    #[error("{0} is out of range")]
    Range(&'static str),
}
