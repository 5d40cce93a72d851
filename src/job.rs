//! Jobs that request a lock by an annotation. The operator creates a claim for each of them.
//!
//! [`lock`](crate::lock) starts and stops the Job of a claim, because claims from users need the same. [`model`] makes the claim from a Job's
//! annotations, and has the messages. [`controller`] runs on the leader.

pub mod controller;
pub mod model;
