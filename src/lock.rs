//! A DistributedLock, from its object to a key on a majority of the members, and into its status.
//!
//! It has three layers, and no layer uses a higher one. [`model`] decides by pure functions of observed state. [`replica`] runs on every
//! replica: it renews held locks, and adopts what other replicas have published. [`leader`] runs where this replica leads: it grants,
//! ends and publishes.

pub mod leader;
pub mod model;
pub mod replica;
