//! Replicas of the operator that die at a chosen write.
//!
//! The operator's own code (caches, sessions, renewal, lock controller) runs in the test, against the cluster's API
//! server and real Redis servers. All requests of one replica pass a [`gate`], which counts its writes and blocks
//! everything after the chosen one. Every other component observes a SIGKILL at this write. The test chooses each write
//! in turn, which is impossible with a separate process.

pub(crate) mod gate;
pub(crate) mod redis;
pub(crate) mod replica;
pub(crate) mod world;
