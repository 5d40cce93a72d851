//! Replicas of the operator that die at a chosen write.
//!
//! The operator's own code (caches, sessions, renewal, lock controller) runs in the test, against the cluster's API server and
//! real Redis servers. Everything that one replica sends passes a [`gate`], which counts its writes and lets nothing through
//! after the chosen one. For everybody else that is a SIGKILL at this write, and the test chooses each write in turn, which
//! nobody can do to a process from outside.

pub(crate) mod gate;
pub(crate) mod redis;
pub(crate) mod replica;
pub(crate) mod world;
