//! The state of a link, and a reading of it at one moment.

use super::busy::Service;
use crate::fence::{ObservedProcess, ProcessWatch};
use crate::redis_member::{Fingerprint, Observation, Users};
use crate::redlock::{MemberError, RunId};
use crate::time::Monotonic;

/// The observations of a link.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkState {
    /// The pod of `processes`. The target is perhaps another pod since a moment ago.
    pub(super) pod_uid: Option<String>,
    pub(super) processes: ProcessWatch,
    pub(super) observation: Option<Observation>,
    pub(super) fenced: Option<(RunId, Monotonic)>,
    pub(super) raised: Option<(RunId, i64)>,
    /// The highest membership epoch that a user of a process carries, and unexpected open users.
    /// These users were open on it without having been asked about.
    pub(super) users: Option<(RunId, Option<i64>, Vec<String>)>,
    /// Since when the record of a process has had this quorum.
    pub(super) record_since: Option<(RunId, i64)>,
    /// The certificate that a process served last.
    pub(super) certificate: Option<(RunId, Fingerprint)>,
    /// Why the last connection could not be made.
    pub(super) failure: Option<MemberError>,
    pub(super) service: Service,
}

/// The state of a member at one moment, as its link observed it.
#[derive(Clone, Debug)]
pub struct LinkReading {
    /// The processes that answered.
    pub processes: ProcessWatch,
    /// The pod that they are of.
    pub pod_uid: Option<String>,
    /// Where the member is asked.
    pub address: Option<String>,
    /// The last observed process, whether or not it still answers.
    pub last_process: Option<ObservedProcess>,
    /// The last observation of that process.
    pub observation: Option<Observation>,
    /// When this replica observed that the last observed process was fenced after an admission.
    pub fenced_since: Option<Monotonic>,
    /// The epoch that this replica raised on the last observed process.
    pub raised: Option<i64>,
    /// The highest membership epoch that a user of the last observed process carries, open or not.
    pub highest_epoch: Option<i64>,
    /// Since when its record has had this quorum, on an external master.
    pub record_since: Option<i64>,
    /// The certificate that it served when it was connected to last.
    pub certificate: Option<Fingerprint>,
    /// Why it cannot be connected to, if it cannot.
    pub failure: Option<MemberError>,
}

impl LinkReading {
    /// Whether the process in the pod with this UID lives and refuses the operator's password.
    pub fn is_refused_by(&self, pod_uid: Option<&str>) -> bool {
        self.failure == Some(MemberError::Refused) && self.is_of(pod_uid)
    }

    /// Whether the last observed process is in the pod with this UID, and answers still.
    ///
    /// The last observation stays until another process answers, even when a new pod exists already.
    pub fn answers_in(&self, pod_uid: Option<&str>) -> bool {
        self.processes.answers() && self.is_of(pod_uid)
    }

    fn is_of(&self, pod_uid: Option<&str>) -> bool {
        pod_uid.is_some() && self.pod_uid.as_deref() == pod_uid
    }
}

impl LinkState {
    /// All users whose state on a process decides whether it can vote.
    pub(super) fn asked_about(&self, users: &[String], run_id: &RunId) -> Vec<String> {
        let others = self.users.iter().filter(|(of, ..)| of == run_id).flat_map(|(.., others)| others);
        users.iter().chain(others.filter(|other| !users.contains(other))).cloned().collect()
    }

    /// All users that a process has.
    pub(super) fn note_users(&mut self, run_id: &RunId, users: Users) {
        self.users = Some((run_id.clone(), users.highest_epoch(), users.open));
    }

    /// A reading of a member with this address.
    pub(super) fn reading(self, address: Option<String>) -> LinkReading {
        let last_process = self.processes.last().cloned();
        let is_last = |run_id: &RunId| last_process.as_ref().is_some_and(|last_process| last_process.run_id == *run_id);
        LinkReading {
            fenced_since: self.fenced.filter(|(run_id, _)| is_last(run_id)).map(|(_, since)| since),
            raised: self.raised.filter(|(run_id, _)| is_last(run_id)).map(|(_, epoch)| epoch),
            highest_epoch: self.users.filter(|(run_id, ..)| is_last(run_id)).and_then(|(_, highest, _)| highest),
            record_since: self.record_since.filter(|(run_id, _)| is_last(run_id)).map(|(_, since)| since),
            certificate: self.certificate.filter(|(run_id, _)| is_last(run_id)).map(|(_, certificate)| certificate),
            observation: self.observation.filter(|observation| is_last(&observation.run_id)),
            failure: self.failure,
            processes: self.processes,
            pod_uid: self.pod_uid,
            address,
            last_process,
        }
    }
}
