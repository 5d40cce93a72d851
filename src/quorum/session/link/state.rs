//! The state of a link: the observations of one member at this replica.

use super::busy::Service;
use crate::fence::{ObservedProcess, ProcessWatch};
use crate::redis_member::{Fingerprint, Observation};
use crate::redlock::{MemberError, RunId};
use crate::time::Monotonic;

/// The observations of a link.
///
/// Facts of a process have its `run_id`, and are valid while it is the last observed process.
#[derive(Clone, Debug, Default)]
pub struct LinkState {
    /// The pod of `processes`. The target possibly changed to another pod a moment ago.
    pub pod_uid: Option<String>,
    /// The processes that answered.
    pub processes: ProcessWatch,
    /// The error of the last failed connection attempt.
    pub failure: Option<MemberError>,
    pub(super) observation: Option<Observation>,
    pub(super) fenced: Option<(RunId, Monotonic)>,
    pub(super) raised: Option<(RunId, i64)>,
    /// The highest membership epoch of the users of a process, and unexpected open users.
    /// These users were open on it although no request named them.
    pub(super) users: Option<(RunId, Option<i64>, Vec<String>)>,
    pub(super) record_since: Option<(RunId, i64)>,
    pub(super) certificate: Option<(RunId, Fingerprint)>,
    pub(super) service: Service,
}

impl LinkState {
    /// The answering process.
    pub fn answering(&self) -> Option<&ObservedProcess> {
        self.processes.last().filter(|_| self.processes.answers())
    }

    /// The last observation of the last observed process.
    pub fn observation(&self) -> Option<&Observation> {
        self.observation.as_ref().filter(|observation| self.is_last(&observation.run_id))
    }

    /// When this replica observed that the last observed process was fenced after an admission.
    pub fn fenced_since(&self) -> Option<Monotonic> {
        self.of_last(self.fenced.as_ref())
    }

    /// The epoch that this replica raised on the last observed process.
    pub fn raised(&self) -> Option<i64> {
        self.of_last(self.raised.as_ref())
    }

    /// The highest membership epoch of the users of the last observed process, open or not.
    pub fn highest_epoch(&self) -> Option<i64> {
        self.users.as_ref().filter(|(run_id, ..)| self.is_last(run_id)).and_then(|(_, highest, _)| *highest)
    }

    /// Since when the record of an external master has contained this quorum.
    pub fn record_since(&self) -> Option<i64> {
        self.of_last(self.record_since.as_ref())
    }

    /// The certificate that the last observed process served at its last connection.
    pub fn certificate(&self) -> Option<Fingerprint> {
        self.of_last(self.certificate.as_ref())
    }

    /// Whether the process in the pod with this UID lives and refuses the operator's password.
    pub fn is_refused_by(&self, pod_uid: Option<&str>) -> bool {
        self.failure == Some(MemberError::Refused) && pod_uid.is_some() && self.pod_uid.as_deref() == pod_uid
    }

    fn is_last(&self, run_id: &RunId) -> bool {
        self.processes.last().is_some_and(|last| last.run_id == *run_id)
    }

    fn of_last<T: Copy>(&self, fact: Option<&(RunId, T)>) -> Option<T> {
        fact.filter(|(run_id, _)| self.is_last(run_id)).map(|(_, fact)| *fact)
    }

    /// All users whose state decides whether a process can vote.
    pub(super) fn relevant_users(&self, users: &[String], run_id: &RunId) -> Vec<String> {
        let others = self.users.iter().filter(|(of, ..)| of == run_id).flat_map(|(.., others)| others);
        users.iter().chain(others.filter(|other| !users.contains(other))).cloned().collect()
    }
}
