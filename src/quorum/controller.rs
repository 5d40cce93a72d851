//! The controller of RedisQuorums. Runs on the leader only.

mod default;

pub use default::{DefaultQuorumError, ensure_default_quorum};

use super::session::Sessions;
use crate::operator::context::Context;
use crate::operator::leader::Term;

/// Runs until the term is over.
pub async fn run(_context: Context, _sessions: Sessions, term: Term) {
    term.over.cancelled().await;
}
