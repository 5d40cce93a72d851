//! The claims of the operators that share masters, for the links and the votes of one quorum.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::api::RedisQuorum;
use crate::quorum::model::agreement::{Agreement, claim_of};
use crate::quorum::model::lists::Lists;
use crate::quorum::model::plan::external_members;
use crate::redlock::MemberName;

/// The claims of the operators that share masters, as this replica observed them.
///
/// The links read them, and the votes depend on them.
#[derive(Clone)]
pub struct SharedAgreement(Arc<Mutex<Agreement>>);

impl SharedAgreement {
    pub(super) fn new(quorum: &RedisQuorum) -> Self {
        let agreement = Self(Arc::new(Mutex::new(Agreement::default())));
        agreement.follow(quorum);
        agreement
    }

    /// Takes the members and the claim from this state of the quorum.
    pub(super) fn follow(&self, quorum: &RedisQuorum) {
        let lists = Lists::of(quorum);
        let external: Vec<_> =
            external_members(quorum).into_iter().map(|member| MemberName::from(member.name)).collect();
        let paused = lists.is_joint() && !external.is_empty();
        let claimed = lists.token_list().iter().map(|name| MemberName::from(name.as_str())).collect();
        let mut agreement = self.lock();
        agreement.set_members(claimed, external, paused);
        agreement.set_claim(claim_of(quorum));
    }

    /// Locks the claims. The caller must release the lock soon.
    pub fn lock(&self) -> MutexGuard<'_, Agreement> {
        self.0.lock()
    }
}
