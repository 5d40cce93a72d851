//! A Kubernetes operator for locks and elections by Redlock, over masters that it runs and fences.
//!
//! `ARCHITECTURE.md` has the map. The modules below are its layers, lowest first.
//!
//! Terms with one meaning each:
//!
//! - **member**: one Redis master of a quorum. **process**: one run of its server, identified by its `run_id`.
//! - **quorum**: the members of one RedisQuorum. More than half of them are a majority.
//! - **admit**: let a process vote. **fence**: keep a process from voting until every promise of its predecessors has expired. That takes
//!   the **rejoin delay**.
//! - **lock**: a DistributedLock. **claim**: a lock for one holder. **election**: a lock for one of several pods.
//! - **holder**: the user of a lock. **candidate**: a container that can become the holder.
//! - **hold**: one period of one holder. **validity**: the time until which a hold is certain.
//! - **verdict**: whether a holder keeps its lock, is stopped first, releases it, or lets it expire.
//! - **seal**: replace the value of a key so that no replica can extend it. **repair**: set the key again on a member that lost it.
//! - **orphan**: a value in Redis that no status names. **adopt**: continue the renewal of a hold that another replica published.
//! - **fencing token**: a number that rises with each hold of a key.
//! - **observation**: the state of a quorum at one moment, as the leader reads it.
//! - **agreement**: the records of the operators that share masters.
//! - **leader**: the replica of the operator that writes. **term**: the time for which it leads. **epoch**: the number of a term, or of a
//!   member list.
//! - **installation**: the name by which an operator finds the quorums that it serves.
// These macros panic when the stream is closed or full. Use `redlock_cli::console` instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod macros;

// The crates of the library `redlock-client`, under their names here.
pub mod redlock;
pub use redlock_api as api;
pub use redlock_engine::time;

// Pure: no IO, no clock, no Kubernetes, no Redis.
pub mod fence;

// The users of Redis, and the operator's admin connection to members.
pub mod redis_member;

// Kubernetes. The order of these modules is in tests/layers.rs.
pub mod evidence;
pub mod job;
pub mod lock;
pub mod operator;
pub mod quorum;
pub mod runtime;

#[cfg(test)]
mod tests;
