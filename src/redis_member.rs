//! Redis (7.0 or later) and Valkey masters as members of a quorum.
//!
//! [`RedisMember`] is the voting connection: it implements [`crate::redlock::LockMember`] and never reconnects
//! silently, so that every vote is bound to one process. [`AdminConnection`] is the operator's hand on a managed
//! member: it checks and opens the fence on one connection, which cannot outlive its process (docs/safety.md). On a master
//! that others run it is nobody's hand: it looks, as the user of the locking path. [`acl`] has the permissions of every user.

pub mod acl;
mod admin;
mod connect;
mod endpoint;
mod external;
mod guard;
mod limited;
mod outward;
mod scripts;
mod tls;
mod voting;
mod wire;

pub use admin::{
    AdminConnection, Connections, EPOCH_KEY, Guarded, Load, NOBODY, Observation, ScriptKill, Senders, Strain,
    TtlSample, Users,
};
pub use connect::{Connect, Machine, Stream, Tcp};
pub use endpoint::{Endpoint, Secret};
pub use external::{Claim, OtherClaim, RecordLook, look_at_record, raise_counter, relied_on, share};
pub use guard::{Guard, RECORD_KEY};
pub use outward::{Network, NotANetwork, Outward};
pub use tls::{Authorities, Fingerprint, TlsClient, TlsError};
pub use voting::{Link, RedisMember};

#[cfg(test)]
mod properties;
