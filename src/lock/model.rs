//! Pure: decisions about a lock, and their messages.
//!
//! - [`decide`]: the next step.
//! - [`verdict`]: whether a hold is kept, by [`instance`], [`job`] and [`heartbeat`].
//! - [`queue`], [`contention`]: the order of locks on a key. [`candidate`], [`nodes`]: the pods that can hold one.
//! - [`orphans`]: values of a dead leader. [`grant_writes`]: open writes of a grant.
//! - [`status`], [`readiness`], [`lease`]: the content of the status and of an election's Lease.

pub mod candidate;
pub mod contention;
pub mod decide;
pub mod delay;
pub mod end;
pub mod events;
pub mod foreign;
pub mod grant_writes;
pub mod heartbeat;
pub mod held_message;
pub mod hold;
pub mod hold_record;
pub mod instance;
pub mod job;
pub mod key;
pub mod lease;
pub mod nodes;
pub mod orphans;
pub mod queue;
pub mod readiness;
pub mod refusal;
pub mod status;
pub mod verdict;

#[cfg(test)]
mod properties;
