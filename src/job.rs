//! Jobs that ask for a lock by an annotation: each gets a claim that names it. What the claim does with the Job is a matter of
//! [`lock`](crate::lock), since a claim that a person has written does the same.
//!
//! [`model`] decides: what claim a Job asks for, and what is told about it. [`controller`] runs where this replica leads.

pub mod controller;
pub mod model;
