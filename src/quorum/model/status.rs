//! The status of a quorum besides the records of its members: columns and conditions. Pure.

mod agreement;
mod external;
mod messages;
mod overview;
mod watches;

pub use agreement::quorum_agrees;
pub use external::{has_lost_data, memory, merged, unfit};
pub use messages::{Condition, MemberWaits, QuorumMessage};
pub use overview::{Overview, conditions, ready_column, refused};
pub use watches::{ClockReport, Watched, watch_conditions};

#[cfg(test)]
mod tests;
