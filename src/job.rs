//! Jobs that ask for a lock by an annotation: each gets a claim that names it.
//!
//! [`lock`](crate::lock) starts and stops the Job of a claim, because claims from users need the same. [`model`] makes the claim from a Job's
//! annotations, and has the messages. [`controller`] runs on the leader.

pub mod controller;
pub mod model;
