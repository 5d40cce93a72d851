//! A Kubernetes operator that gives distributed locks and leader election through Redlock, over independent Redis masters
//! that it runs and fences itself. `ARCHITECTURE.md` has the map; the modules below are its layers, lowest first.

// Layer 0, pure: no IO, no clock, no Kubernetes, no Redis.
pub mod fence;
pub mod redlock;
pub mod time;

// Layer 1, feature `redis-client`: the Redlock engine and its Redis adapter.
#[cfg(feature = "redis-client")]
pub mod redis_member;

// Layer 2, feature `operator`: Kubernetes.
#[cfg(feature = "operator")]
pub mod api;
#[cfg(feature = "operator")]
pub mod evidence;
#[cfg(feature = "operator")]
pub mod lock;
#[cfg(feature = "operator")]
pub mod operator;
#[cfg(feature = "operator")]
pub mod quorum;
#[cfg(feature = "operator")]
pub mod runtime;
