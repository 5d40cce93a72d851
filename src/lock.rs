//! DistributedLock: from an object in the API server to a key on a majority of Redis members, and back into its status.
//!
//! Three floors, and nothing on one of them knows those above it. [`model`] decides: pure functions of what others have seen.
//! [`replica`] runs on every replica: it keeps held locks renewed, and takes up what other replicas have published. [`leader`] runs
//! where this replica leads: it grants, ends and publishes.

pub mod leader;
pub mod model;
pub mod replica;
