//! Kubernetes without tasks, IO and real time.
//!
//! - [`api`]: the API server, a state machine from requests to responses.
//! - [`cluster`]: nodes, kubelets and controllers, which read and write there, and the truth about the running
//!   containers.
//! - [`users`]: random valid actions of users.
//!
//! The caller owns the time. It passes milliseconds of true time since the Unix epoch with each call. The `now` of the
//! API server can differ from it: that is the server's clock.

pub mod api;
pub mod chance;
pub mod cluster;
pub mod users;

/// Milliseconds since the Unix epoch.
pub type Millis = i64;

/// One step of SplitMix64: it turns a counter into a pseudorandom number.
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
