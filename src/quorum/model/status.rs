//! The status of a quorum besides the records of its members: columns and conditions. Pure.

mod agreement;
mod external;
mod messages;
mod overview;
mod watches;

use super::lists::Lists;
use crate::api::{MemberState, MemberStatus, RedisQuorumStatus};

pub use agreement::quorum_agrees;
pub use external::{has_forgotten, memory, merged, unfit};
pub use messages::{Condition, MemberWaits, QuorumMessage};
pub use overview::{Overview, conditions, refused};
pub use watches::{ClockReport, Keys, Watched, watch_conditions};

/// The number of admitted members, and of all members in the newest list, as text.
pub fn ready_column(status: &RedisQuorumStatus, lists: &Lists) -> String {
    format!("{}/{}", admitted_of(status, &lists.voters), lists.voters.len())
}

/// The number of admitted members of this list.
fn admitted_of(status: &RedisQuorumStatus, list: &[String]) -> usize {
    let admitted = |member: &&MemberStatus| member.state == MemberState::Admitted && list.contains(&member.name);
    status.members.iter().filter(admitted).count()
}

#[cfg(test)]
mod tests;
