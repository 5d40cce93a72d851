//! On the leader: observe, decide, act, until there is nothing left to do for a lock.
//!
//! `controller` says when a lock is looked at, `reconcile` what happens then: it observes by `view`, asks `model::decide` for the one
//! next step, and carries that out by `grant`, `publish_grant`, `release`, `seal`, `status`, `labels`, `lease_sync` and `job_sync`. `parts` is what a term has; a
//! step's signature says which parts it reads and touches. `unreadable` is the same for locks that cannot be read.

mod contender;
pub mod controller;
mod default;
mod due_renewals;
mod grant;
mod index;
mod job_sync;
mod labels;
mod lease_sync;
mod members;
mod memory;
pub mod others;
mod parts;
mod peers;
mod progress;
mod publish_grant;
mod publish_renewals;
mod reachability;
mod reconcile;
mod release;
mod seal;
mod status;
mod store;
mod turns;
mod view;
