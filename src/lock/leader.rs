//! On the leader: observe, decide, act, until there is nothing left to do for a lock.
//!
//! `controller` says when a lock is looked at, `reconcile` what happens then: it observes by `view`, asks `model::decide` for the one
//! next step, and carries that out by `grant`, `publication`, `release`, `seal`, `status`, `labels`, `leases` and `jobs`. `parts` is what a term has; a
//! step's signature says which parts it reads and touches. `unreadable` is the same for locks that cannot be read.

mod candidates;
pub mod controller;
mod default;
mod grant;
mod index;
mod jobs;
mod labels;
mod leases;
mod members;
mod memory;
pub mod others;
mod parts;
mod peers;
mod progress;
mod publication;
mod publications;
mod publisher;
mod reachability;
mod reconcile;
mod release;
mod seal;
mod status;
mod store;
mod turns;
mod view;
