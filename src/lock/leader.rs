//! On the leader: observe, decide, act, until there is nothing left to do for a lock.
//!
//! [`controller`] says when a lock is looked at, [`reconcile`] what happens then: it looks by `view`, `contender` and `peers`, and acts
//! through `grant`, `publication`, `release` and [`labels`], for as long as its term makes sense ([`reachability`]).

mod contender;
pub mod controller;
pub mod exclusions;
mod grant;
pub mod index;
pub mod labels;
pub mod locks;
pub mod others;
mod peers;
mod publication;
pub mod reachability;
pub mod reconcile;
mod release;
pub mod replicas;
mod turns;
mod unreadable;
mod view;
pub mod wearers;
