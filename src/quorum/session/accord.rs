//! What a session does for masters that others run: whose votes count, where they are, and as whom they are asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Credentials, MemberLink, QuorumSession};
use crate::{
    api::RedisQuorum,
    quorum::model::{
        accord::{Accord, Role, claim_of},
        lists::Lists,
        plan::{self, MemberPlan},
        record::admitted_run_id,
    },
    redis_member::Guard,
    redlock::{MemberName, RunId},
};
use parking_lot::{Mutex, MutexGuard};

/// What the operators that share masters say to each other, as this replica knows it: the links read it, the votes rest on it.
#[derive(Clone)]
pub struct SharedAccord(Arc<Mutex<Accord>>);

impl SharedAccord {
    pub(super) fn new(quorum: &RedisQuorum) -> Self {
        let accord = Self(Arc::new(Mutex::new(Accord::new([]))));
        accord.follow(quorum);
        accord
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
        let mut accord = self.lock();
        accord.set_members(roles, in_force.collect());
        accord.set_claim(claim_of(quorum));
    }

    /// For a moment.
    pub fn lock(&self) -> MutexGuard<'_, Accord> {
        self.0.lock()
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
        self.credentials.lock().extend(found);
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
        let known = self.credentials.lock().get(name.as_str()).cloned();
        link.place_external(known, admitted, Guard { uid: self.uid.clone(), epoch });
    }
}
