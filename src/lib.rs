//! A Kubernetes operator that gives distributed locks and leader election through Redlock, over independent Redis masters
//! that it runs and fences itself. `ARCHITECTURE.md` has the map; the modules below are its layers, lowest first.
//!
//! Words that this project uses with one meaning each:
//!
//! - **member**: one Redis master of a quorum. **process**: one run of its server, told apart by its `run_id`.
//! - **quorum**: the members of one RedisQuorum. **majority**: more than half of a list of them.
//! - **admit**: let a process vote. **fence**: keep a process from voting until every promise of its predecessors has expired; the
//!   time that this takes is the **rejoin delay**.
//! - **lock**: a DistributedLock. **claim**: a lock for one holder. **election**: a lock for one of several pods.
//! - **holder**: who has the lock. **candidate**: a container that may get it.
//! - **hold**: one period of one holder, named by its **nonce**. **validity**: the time until which a hold is certain.
//! - **verdict**: whether a holder keeps its lock, is stopped first, releases it, or lets it expire.
//! - **seal**: replace the value of a key so that no replica can extend it. **repair**: set the key again on a member that lost it.
//! - **orphan**: a value in Redis that no status names. **adopt**: take up the renewal of a hold that another replica published.
//! - **fencing token**: a number that rises with each hold of a key.
//! - **observation**: what the leader sees of a quorum at one moment. **step**: what it decides and does on one of them.
//! - **agreement**: the claims of the operators that share masters, in a **record** on each of them.
//! - **leader**: the replica of the operator that writes. **term**: the time for which it leads; **epoch** of the leader: its number.
//! - **membership epoch**: the number of a member list. **joint**: while a change needs majorities of two lists.
//! - **installation**: the name by which an operator finds the quorums that it serves.
//! - **agent**: a process that tells an application whether it leads. **instance**: one start of that application, which registers.
// These macros panic when the stream is closed or full: `redlock_cli::console` writes instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

// What the library `redlock-client` brings, under its names here.
pub mod redlock;
pub use redlock_api as api;
pub use redlock_engine::time;

// Pure: no IO, no clock, no Kubernetes, no Redis.
pub mod fence;

// The users of Redis, and the operator's hand on members.
pub mod redis_member;

// Kubernetes. The order of the rooms is in tests/layers.rs.
pub mod evidence;
pub mod job;
pub mod lock;
pub mod operator;
pub mod quorum;
pub mod runtime;
