//! Kubernetes as the operator meets it, without tasks, IO and real time.
//!
//! - [`api`]: the API server, a state machine from requests to answers.
//! - [`cluster`]: nodes, kubelets and controllers, which read and write there, and the truth about what really runs.
//! - [`people`]: what people do, drawn at random among what is valid.
//!
//! The caller owns time: whatever happens is told when it happens, in milliseconds since the Unix epoch of true time (the API
//! server's clock is the caller's to bend: it is the `now` that the server is given).

pub mod api;
pub mod chance;
pub mod cluster;
pub mod people;

/// Milliseconds since the Unix epoch.
pub type Millis = i64;

/// One step of SplitMix64: a number that looks drawn, from one that was counted.
pub fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
