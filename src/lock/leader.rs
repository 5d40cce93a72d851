//! On the leader: observe, decide and act, until a lock needs no further step.
//!
//! `controller` starts a reconcile. `reconcile` observes a lock by `observation`, and `model::decide` returns the next step. Other modules carry
//! out that step: `grant`, `publish_grant`, `release`, `seal`, `status`, `labels`, `lease_sync` and `job_sync`.
//! `leader_context` has the state of a term. The parameters of a step are the parts of that state which the step uses.

mod contender;
pub mod controller;
mod default;
mod due_renewals;
mod grant;
mod index;
mod job_sync;
mod key_mutexes;
mod labels;
mod leader_context;
mod lease_sync;
mod lock_store;
mod member_access;
mod memory;
mod observation;
mod other_installation;
mod peers;
mod progress;
mod publish_grant;
mod publish_renewals;
mod reachability;
mod reconcile;
mod release;
mod seal;
mod status;
