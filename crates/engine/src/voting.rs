//! Redis (7.0 or later) and Valkey masters as members of a quorum.
//!
//! [`RedisMember`] is the voting connection: it implements [`crate::redlock::LockMember`] and never reconnects
//! silently, so that every vote is bound to one process. [`Listener`] is a connection beside it, for hints.

mod connect;
mod connection;
mod copies;
mod deadlines;
mod driver;
mod due;
mod endpoint;
mod guard;
mod hub;
mod inbox;
mod job;
mod line;
mod listener;
mod member;
mod owed;
mod resp;
mod scripts;
#[cfg(feature = "tls")]
mod tls;
mod unfit;
mod wire;

pub use connect::{Connect, Machine, Stream, Tcp, open_tcp};
pub use endpoint::{Endpoint, Opened, Secret, open};
pub use guard::{Guard, RECORD_KEY};
pub use job::Link;
pub use listener::{Heard, Listener, Wanted};
pub use member::{Access, RedisMember, not_connected_yet};
pub use scripts::{CODE, RESTORE_COUNTER, digest};
#[cfg(feature = "tls")]
pub use tls::{NotAServerName, TlsClient};

#[cfg(test)]
mod properties;
