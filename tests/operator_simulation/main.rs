//! The whole operator in one deterministic process: two or three replicas of the product's own code against a simulated API
//! server, a simulated cluster and simulated Redis members, in simulated time.
//!
//! One process runs one seed, since tokio counts the runtimes of a process and draws from that count. What a seed does is the
//! same on every machine, to the byte.

mod kube;
mod redis;
