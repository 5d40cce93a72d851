//! The leader's memory of one quorum during its term. A later leader can determine all of it again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;

use crate::quorum::model::effective::Lowering;
use crate::quorum::model::plan::TlsPlan;
use crate::quorum::model::problems::Problem;
use crate::quorum::model::tls::Certificate;
use crate::quorum::model::tls::authority::Authority;
use crate::redlock::RunId;
use crate::time::Monotonic;

/// The parts have separate locks. A step locks only the part that it needs.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) applied: Mutex<Option<Applied>>,
    pub(super) kept: Mutex<KeptObjects>,
    /// When a process was confirmed as permanently closed, by its `run_id`.
    pub(super) closed: Mutex<HashMap<String, Monotonic>>,
    pub(super) lowering: Mutex<Option<Lowering>>,
    /// Failures at members that delay a change of the members.
    pub(super) change_failures: Mutex<Vec<String>>,
    /// `None` if members use plain TCP.
    pub(super) tls: Mutex<Option<ReadTls>>,
    /// The operator's own authority at its last reading, which is written back if its Secret is deleted.
    pub(super) authority: Mutex<Authority>,
    pub(super) passwords: Mutex<Passwords>,
    /// Since when the auth Secret has been missing without a copy at this leader.
    pub(super) auth_missing_since: Mutex<Option<Monotonic>>,
    /// The refusals of the API server to write the auth Secret while its passwords are in use.
    pub(super) auth_obstacles: Mutex<BTreeMap<AuthWrite, String>>,
    /// Since when each member has been away, as this leader observed it.
    pub(super) away: Mutex<BTreeMap<String, Monotonic>>,
    /// Why the API server did not delete the pods of members in this reconciliation, by member.
    pub(super) undeleted: Mutex<BTreeMap<String, String>>,
    /// Members without a pod.
    pub(super) podless: Mutex<BTreeMap<String, Podless>>,
    /// The number of consecutive failed reconciliations.
    pub(super) failures: AtomicU32,
}

/// The steps that write the auth Secret while its passwords are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AuthWrite {
    /// The passwords in memory are written back.
    Keep,
    /// New clients get passwords.
    Grant,
    /// A step of a rotation.
    Rotate,
}

impl Memory {
    /// Records whether the API server refused this step. Returns whether the step had no earlier refusal.
    pub(super) fn record_auth_refusal(&self, write: AuthWrite, refusal: Option<String>) -> bool {
        let mut obstacles = self.auth_obstacles.lock();
        let before = obstacles.remove(&write);
        obstacles.extend(refusal.map(|refusal| (write, refusal)));
        before.is_none()
    }
}

/// The result of the last apply.
#[derive(Clone)]
pub(super) struct Applied {
    /// The requested Secrets.
    pub(super) secrets: (Secret, Vec<Secret>),
    /// Client Secrets that could not be written, with the reason.
    pub(super) blocked_clients: Vec<String>,
    /// The obstacle to the config Secret.
    pub(super) blocked_config: Option<String>,
    /// Whether the config Secret has the wanted state.
    pub(super) config_kept: bool,
    /// An object in the way.
    pub(super) obstacle: Option<Problem>,
    /// When Secrets were read.
    pub(super) at: Monotonic,
    /// When the next apply is due.
    pub(super) due: Monotonic,
}

/// How long the operator relies on a Secret that it has read.
///
/// A reconciliation often follows the previous one within milliseconds, and the operator cannot watch Secrets. Every reconciliation
/// compares all other objects with the watched state.
pub(super) const SECRETS_PERIOD: Duration = Duration::from_secs(10);

impl Applied {
    /// The end of the time for which the read Secrets are fresh. `None` if they must be read now.
    pub(super) fn fresh_until(&self, now: Monotonic) -> Option<Monotonic> {
        Some(self.at + SECRETS_PERIOD).filter(|until| now < *until)
    }
}

/// Objects in the last state that the operator confirmed, by kind and name.
pub(super) type KeptObjects = HashMap<(String, String), Kept>;

/// SHA-256 of an object, which the memory keeps instead of the object.
///
/// The objects of one quorum are some hundred kilobytes of JSON.
pub(super) type Digest = [u8; 32];

/// The confirmed state of one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kept {
    /// The applied object.
    pub(super) wanted: Digest,
    /// The object in the reply of the API server.
    pub(super) is: Digest,
    /// The `resourceVersion` of the last object that had this digest.
    pub(super) version: Option<String>,
    /// Its UID.
    pub(super) uid: Option<String>,
    /// When the operator last restored it after a change by another client.
    pub(super) mended: Option<Monotonic>,
}

/// The pause between two repairs of an edited object.
///
/// Another controller that writes the same field would otherwise answer each repair at once, without end.
const MEND_PAUSE: Duration = Duration::from_secs(5);

impl Kept {
    /// The end of the pause before the next repair. `None` if there is none.
    pub(super) fn paused_until(&self, now: Monotonic) -> Option<Monotonic> {
        Some(self.mended? + MEND_PAUSE).filter(|until| now < *until)
    }
}

/// The certificates at the last reading.
#[derive(Clone)]
pub(super) struct ReadTls {
    pub(super) plan: (Option<TlsPlan>, Vec<String>),
    pub(super) certificate: Option<Result<Certificate, String>>,
    pub(super) published: Option<String>,
    /// The end of the validity of the last certificate without a fault, in seconds of Unix time.
    pub(super) expires: Option<i64>,
    pub(super) at: Monotonic,
}

/// A member that has no pod.
#[derive(Clone, Debug)]
pub(super) struct Podless {
    /// When to read the Events again.
    pub(super) due: Monotonic,
    /// The report of the StatefulSet controller.
    pub(super) why: Option<String>,
}

/// The passwords of the current stage of a rotation.
#[derive(Default)]
pub(super) struct Passwords {
    /// The generation of the passwords that each process is known to accept.
    pub(super) confirmed: HashMap<RunId, u64>,
    /// Since when this leader has known this generation.
    since: Option<(u64, Monotonic)>,
}

/// The time in which every replica reads the passwords of a new stage.
///
/// Replicas read them when they observe the stage.
const READ_TIME: Duration = Duration::from_secs(10);

impl Passwords {
    /// The rest of the time for the other replicas to read the passwords of this generation.
    pub(super) fn wait_for_readers(&mut self, generation: u64, now: Monotonic) -> Option<Duration> {
        let (_, since) = self.since.filter(|(of, _)| *of == generation).unwrap_or((generation, now));
        self.since = Some((generation, since));
        Some((since + READ_TIME).since(now)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repaired_object_is_not_repaired_again_during_the_pause() {
        let now = Monotonic::default();
        let kept = |mended| Kept { wanted: [0; 32], is: [0; 32], version: None, uid: None, mended };
        assert_eq!(kept(None).paused_until(now), None);
        assert_eq!(kept(Some(now)).paused_until(now + MEND_PAUSE / 5), Some(now + MEND_PAUSE));
        assert_eq!(kept(Some(now)).paused_until(now + MEND_PAUSE), None);
    }

    #[test]
    fn a_refusal_of_one_step_stays_when_another_one_succeeds() {
        let memory = Memory::default();
        assert!(memory.record_auth_refusal(AuthWrite::Rotate, Some("policy p".into())));
        assert!(!memory.record_auth_refusal(AuthWrite::Rotate, Some("policy p".into())), "it is in the status");
        memory.record_auth_refusal(AuthWrite::Keep, None);
        assert_eq!(memory.auth_obstacles.lock().values().cloned().collect::<Vec<_>>(), ["policy p"]);
        memory.record_auth_refusal(AuthWrite::Rotate, None);
        assert!(memory.auth_obstacles.lock().is_empty());
    }
}
