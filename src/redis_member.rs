//! The users of Redis, and the admin connection to a member.
//!
//! [`RedisMember`] is the voting connection of the library `redlock-client`. [`AdminConnection`] checks and opens the fence of a managed
//! member on one connection, which cannot outlive its process (docs/dev/rules.md). On an external master it logs in as the locking user and
//! only reads. [`acl`] has the rights of every user.

pub mod acl;
mod admin;
mod external;
mod outward;
mod tls;
mod wire;

pub use admin::{ActError, AdminConnection, EPOCH_KEY, Keys, Observation, Users};
pub use external::{Claim, OtherClaim, RecordState, missing_rights, raise_counter, read_record};
pub use outward::{Outward, network};
pub use redlock_engine::voting::{
    Connect, Endpoint, Guard, Link, Machine, RECORD_KEY, RedisMember, Secret, Stream, Tcp, TlsClient,
};
pub use tls::{Authorities, Fingerprint, TlsError};

#[cfg(test)]
mod properties;
