//! A Kubernetes API server as a state machine: requests in, responses and watch lines out.
//!
//! Reads are linearizable, and writes take effect in [`ApiServer::handle`]. The caller decides when a request arrives,
//! whether its response arrives, and how far a watch lags. It can hold requests and responses back, and requests the
//! lines of a watch up to a version of its choice.

mod http;
mod kinds;
mod lists;
mod merge;
mod meta;
mod outcome;
mod request;
mod schema;
mod selector;
mod server;
mod store;
mod strategy;
mod verbs;
mod watch;

pub use self::kinds::Kind;
pub use self::merge::merge;
pub use self::meta::{millis, seconds};
pub use self::outcome::{By, DeleteOptions, Part, Propagation, Refusal};
pub use self::server::{Answer, ApiServer};
pub use self::store::{Change, Entry, Object, Shared};
pub use self::watch::{Lines, Watch};

#[cfg(test)]
mod tests;
