//! What a session does for masters that others run: whose votes count, where they are, and as whom they are asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Credentials, MemberLink, QuorumSession};
use crate::api::RedisQuorum;
use crate::quorum::accord::Accord;
use crate::quorum::plan;
use crate::quorum::status::admitted_run_id;
use crate::redlock::RunId;
use crate::time::Clock;

/// What the operators that share masters say to each other, as this replica knows it: the links read it, the votes rest on it.
#[derive(Clone)]
pub struct SharedAccord(Arc<Mutex<Accord>>);

impl SharedAccord {
    pub(super) fn new(quorum: &RedisQuorum) -> Self {
        let external = plan::external_members(quorum).into_iter().map(|member| member.name.into());
        Self(Arc::new(Mutex::new(Accord::new(external))))
    }

    /// For a moment.
    pub fn lock(&self) -> MutexGuard<'_, Accord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuorumSession {
    /// The process of a member whose votes count now.
    pub(super) fn voting_run_id(&self, quorum: &RedisQuorum, link: &MemberLink) -> Option<RunId> {
        let run_id = admitted_run_id(quorum, link.name().as_str())?;
        let (accord, now) = (self.accord.lock(), self.context.clock.boottime());
        (accord.may_vote(now) && accord.counts(link.name(), &run_id, now)).then_some(run_id)
    }

    /// The users of masters that others run were read: those found, and what is wrong with the others.
    pub(super) fn set_credentials(&self, found: BTreeMap<String, Credentials>, missing: &BTreeMap<String, String>) {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        self.place();
        for link in self.links().iter().filter(|link| !link.is_seen()) {
            if let Some(trouble) = missing.get(link.name().as_str()) {
                link.note_missed(trouble);
            }
        }
    }

    pub(super) fn place_external(&self, quorum: &RedisQuorum, link: &MemberLink, epoch: i64) {
        let name = link.name();
        let admitted = admitted_run_id(quorum, name.as_str());
        self.accord.lock().admitted(name, admitted.clone());
        let known = self.credentials.lock().unwrap_or_else(PoisonError::into_inner).get(name.as_str()).cloned();
        link.place_external(known, admitted, epoch);
    }
}
