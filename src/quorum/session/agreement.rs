//! The claims of the operators that share masters, for the links and the votes of one quorum.

use parking_lot::Mutex;

use crate::api::RedisQuorum;
use crate::quorum::model::agreement::{Agreement, claim_of};
use crate::quorum::model::lists::Lists;
use crate::quorum::model::plan::external_members;
use crate::redlock::MemberName;

/// Takes the members and the claim from this state of the quorum.
pub(super) fn follow(agreement: &Mutex<Agreement>, quorum: &RedisQuorum) {
    let lists = Lists::of(quorum);
    let external: Vec<_> = external_members(quorum).into_iter().map(|member| MemberName::from(member.name)).collect();
    let paused = lists.is_joint() && !external.is_empty();
    let claimed = lists.token_list().iter().map(|name| MemberName::from(name.as_str())).collect();
    let mut agreement = agreement.lock();
    agreement.set_members(claimed, external, paused);
    agreement.set_claim(claim_of(quorum));
}
