//! Why a specification cannot be carried out.

/// Why the operator cannot execute a specification. The API server also refuses these errors.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display, thiserror::Error)]
pub enum Invalid {
    /// the object has no {0}
    Incomplete(&'static str),
    /// members and external are {0} together: set 1, 3, 5, 7 or 9 in total
    Members(i32),
    /// external[{0}]: {1}
    External(String, &'static str),
    // A client would get the addresses of some members only, and calculate another majority.
    /// clients cannot be used with external members, where the operator can make no users for them
    ClientsOfExternal,
    // It becomes part of other names.
    /// the name is longer than 40 characters
    Name,
    // It could contain ACL rules.
    /// clients[{0}].keyPrefix: a prefix is letters, digits, '.', '_' and '-' between slashes, and ends with a slash
    KeyPrefix(String),
    // It becomes part of the name of a user and of a Secret.
    /// clients[{0}].name can contain a-z, 0-9 and '-', and cannot be a name of the operator's own users
    ClientName(String),
    /// expose.addresses: {0:?} is no address: set a host, or host:port
    Address(String),
    /// expose.sourceRanges: {0:?} is no network: set one such as 192.0.2.0/24 or 2001:db8::/32
    SourceRange(String),
    /// pod.resources.limits.memory: {0:?} is no quantity of at least 32Mi: set one such as 256Mi
    Memory(String),
    /// {0} is out of range
    Range(&'static str),
}
