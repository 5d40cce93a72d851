//! What the operators that share masters say to each other, shared between the links and the votes of one quorum.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::api::RedisQuorum;
use crate::quorum::model::agreement::{Agreement, Role, claim_of};
use crate::quorum::model::lists::Lists;
use crate::quorum::model::plan::{self, MemberPlan};
use crate::redlock::MemberName;

/// What the operators that share masters say to each other, as this replica knows it.
///
/// The links read it, and the votes rest on it.
#[derive(Clone)]
pub struct SharedAgreement(Arc<Mutex<Agreement>>);

impl SharedAgreement {
    pub(super) fn new(quorum: &RedisQuorum) -> Self {
        let agreement = Self(Arc::new(Mutex::new(Agreement::new([]))));
        agreement.follow(quorum);
        agreement
    }

    /// The members and the claim are those of this state of the quorum.
    pub(super) fn follow(&self, quorum: &RedisQuorum) {
        let lists = Lists::of(quorum);
        let external = plan::known_members(quorum).into_iter().filter(MemberPlan::is_external);
        let roles = external.map(|member| {
            let role = Role::of(&lists, &member.name);
            (MemberName::from(member.name), role)
        });
        let in_force = lists.in_force().map(|list| list.iter().map(|name| MemberName::from(name.as_str())).collect());
        let mut agreement = self.lock();
        agreement.set_members(roles, in_force.collect());
        agreement.set_claim(claim_of(quorum));
    }

    /// For a moment.
    pub fn lock(&self) -> MutexGuard<'_, Agreement> {
        self.0.lock()
    }
}
