//! The commands that change locks and quorums through the API server.

mod annotation;
pub mod break_lock;
pub mod quorum_restart;
pub mod release;
pub mod step_down;

pub(crate) use annotation::annotate;
