//! Redis (7.0 or later) and Valkey masters as members: the connections that vote.
//!
//! [`RedisMember`] is a member with its voting connection. It implements [`crate::redlock::LockMember`] and never
//! reconnects silently, so that every vote belongs to one process. [`Listener`] is a second connection, for hints.
//!
//! The path of a request: [`RedisMember`] puts a `Request` into the `RequestQueue` of its member, and the `TaskWaker`
//! wakes the `IoTask`. The task's `MemberConnection` takes it, writes it by a `Pipeline`, and the reply goes to the
//! request's slot.

mod connect;
mod encoded_requests;
mod endpoint;
mod guard;
mod io_task;
mod listener;
mod member;
mod member_connection;
mod pending_releases;
mod pending_replies;
mod pipeline;
mod request_queue;
mod resp;
mod rights;
mod round_timers;
mod scripts;
mod task_waker;
#[cfg(feature = "tls")]
mod tls;
mod unfit;
mod wire;

pub use connect::{Connect, Machine, Stream, Tcp, open_tcp};
pub use endpoint::{Endpoint, Opened, Secret, open};
pub use guard::{Guard, RECORD_KEY};
pub use listener::{Listener, Notification, Wanted};
pub use member::{Access, RedisMember, not_connected_yet};
pub use pipeline::Link;
pub use scripts::{CODE, RESTORE_COUNTER, digest};
#[cfg(feature = "tls")]
pub use tls::{NotAServerName, TlsClient};
pub use unfit::unfit_reason;
pub use wire::{error as server_error, is_full};

#[cfg(test)]
mod properties;
