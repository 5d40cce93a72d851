//! On the leader: observe, decide, act, until there is nothing left to do for a lock.
//!
//! [`controller`] says when a lock is looked at, [`reconcile`] what happens then: it looks by `view`, `contender` and `peers`, and acts
//! through `grant`, `publication`, `ending` and [`labels`], for as long as its term makes sense ([`tenure`]).

mod contender;
pub mod controller;
mod ending;
mod grant;
pub mod index;
pub mod labels;
pub mod others;
mod peers;
mod publication;
pub mod reconcile;
pub mod replicas;
pub mod shunned;
pub mod tenure;
mod turns;
mod unreadable;
mod view;
