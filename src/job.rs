//! Jobs that ask for a lock by an annotation: each gets a claim that names it.
//!
//! [`lock`](crate::lock) starts and stops the Job of a claim, because a claim that a user has written needs the same. [`model`] decides
//! which claim a Job asks for, and has the messages. [`controller`] runs where this replica leads.

pub mod controller;
pub mod model;
