//! What waits are counted from: every replica notes it, so that a change of leader starts no wait again.

use std::sync::PoisonError;

use super::QuorumSession;
use crate::api::RedisQuorum;
use crate::quorum::membership::{Lists, former_is_closed};
use crate::quorum::status::record_named;
use crate::time::Monotonic;

impl QuorumSession {
    /// What restarts a count is noted by every replica, whoever leads later.
    pub(super) fn note_fencings(&self, old: &RedisQuorum, new: &RedisQuorum) {
        for link in self.links().iter() {
            let name = link.name().as_str();
            let (before, after) = (record_named(old.status.as_ref(), name), record_named(new.status.as_ref(), name));
            let concerned = [before.run_id.as_ref(), after.run_id.as_ref()].into_iter().flatten();
            if let Some(run_id) = concerned.into_iter().find(|run_id| after.restarts_count(&before, run_id)) {
                link.note_fenced(run_id);
            }
        }
    }

    /// Since when this replica has known that the pod with this UID is gone; from now on, if it did not know yet. Every replica
    /// keeps this of every process that matters, so that a change of leader starts no wait again.
    pub(crate) fn gone_since(&self, pod_uid: &str) -> Monotonic {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        *gone.entry(pod_uid.to_owned()).or_insert_with(|| self.context.clock.monotonic())
    }

    /// Since when this replica has known that the member can make no promise any more, by this process or, without one, by any; from
    /// now on, if it did not know yet. Kept beyond a term, so that the end of a quorum waits once, whoever leads.
    pub(crate) fn harmless_since(&self, member: &str, process: Option<&str>) -> Monotonic {
        let mut harmless = self.harmless.lock().unwrap_or_else(PoisonError::into_inner);
        if process.is_some() {
            // What was known of a time without a process is about an earlier one.
            harmless.remove(&(member.to_owned(), None));
        }
        let key = (member.to_owned(), process.map(str::to_owned));
        *harmless.entry(key).or_insert_with(|| self.context.clock.monotonic())
    }

    /// A process of the member may make promises.
    pub(crate) fn note_threat(&self, member: &str) {
        self.harmless.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| of != member);
    }

    /// The count to the end of a joint change of members. Every replica keeps it, so that a change of leader need not start it
    /// again; it starts again whenever a member of the old list may be open.
    pub(super) fn note_change(&self, quorum: &RedisQuorum) {
        let epoch = Lists::of(quorum).epoch;
        let now = self.context.clock.monotonic();
        let mut since = self.former_closed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = since.filter(|(of, _)| *of == epoch);
        *since = former_is_closed(quorum).then(|| known.unwrap_or((epoch, now)));
    }

    /// Since when this replica has known that the list before `epoch` can promise nothing any more.
    pub(crate) fn former_closed_since(&self, epoch: i64) -> Option<Monotonic> {
        let since = self.former_closed.lock().unwrap_or_else(PoisonError::into_inner);
        since.filter(|(of, _)| *of == epoch).map(|(_, since)| since)
    }

    /// A pod that is there is not gone, even if this replica's cache once lagged behind the status and did not have it yet.
    pub(super) fn note_pod(&self, pod_uid: &str, is_there: bool) {
        if is_there {
            self.gone.lock().unwrap_or_else(PoisonError::into_inner).remove(pod_uid);
        } else {
            self.gone_since(pod_uid);
        }
    }
}
