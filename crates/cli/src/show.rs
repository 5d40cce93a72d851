//! The commands that show locks and quorums. They only read.

pub mod advice;
pub mod explain;
pub mod history;
pub mod list;
pub mod lock_row;
pub mod picture;
pub mod quorum;
pub mod status;
pub mod version;
pub mod wait;
