//! A quorum of Redis members that the operator runs: the objects it is made of, the connections to it, and the controller
//! that lets its members vote (docs/safety.md).
//!
//! Every replica keeps a [`session`] per quorum and through it renews locks and watches members; only the leader runs the
//! [`controller`]. What the controller decides is pure: [`plan`], [`build`], [`status`], [`facts`], [`in_force`], [`rollout`],
//! [`membership`], [`secrets`], [`timekeeping`] and [`crate::fence`].

pub mod accord;
pub mod auth;
pub mod build;
pub mod controller;
pub mod expose;
pub mod facts;
pub mod in_force;
pub mod installation;
pub mod lookup;
pub mod membership;
pub mod plan;
pub mod rollout;
pub mod rotation;
pub mod secrets;
pub mod session;
pub mod status;
pub mod timekeeping;
pub mod tls;

pub use controller::{ensure_default_quorum, warn_of_other_defaults};

#[cfg(test)]
mod fuzz;
