//! Pure: the Lease of an election, and the writes of the operator to it.
//!
//! Candidates that elect by this Lease do not read the lock. The chart's policy admits a holder's name only from the pod that holds the
//! lock, so the operator never decides who leads.
//!
//! The operator empties a Lease whose holder has lost the lock, and names a holder outside this cluster. It opens the Lease for one hold
//! with an annotation, the token of that hold. The policy admits no new name to a Lease without the token of the present hold. A name that it
//! did not admit, for example from before the lock, keeps the Lease for its whole duration.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::ResourceExt;

use super::end::End;
use super::heartbeat::Heartbeat;
use super::refusal::Refusal;
use super::status::is_unconfirmed;
use crate::api::conditions::{HeldReason, LockCondition, find_condition};
use crate::api::{DistributedLock, LEASE_LABEL, LEASE_TOKEN_ANNOTATION, PastHold};
use crate::time::{Boottime, UnixMillis};

/// The duration in seconds of a Lease with a holder elsewhere.
///
/// Local candidates do not try to lead in this time. They also wait this long after the lock is deleted or the gate is removed.
const LONG: i32 = 60;
/// The age at which the operator renews such a Lease.
const NAME_AGAIN: Duration = Duration::from_secs(30);
/// The duration in seconds of a Lease without a holder. Candidates do not read it.
const SHORT: i32 = 1;
/// The duration of a Lease that has a holder and no duration.
const UNKNOWN: Duration = Duration::from_secs(60);
/// The prefix of the name of a holder elsewhere.
const ELSEWHERE: &str = "elsewhere: ";
/// Maximum length of the name of a holder elsewhere.
const LONGEST_NAME: usize = 253;

/// The kind of holder that the Lease of a lock must have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// A pod of this cluster, with this fencing token.
    Pod(i64),
    /// A holder outside this election, with the message of the condition Held.
    Elsewhere(String),
    /// The lock has no holder.
    Absent,
}

impl Holder {
    /// The holder according to the status of a lock. `None` if another client has removed the token.
    fn of(lock: &DistributedLock) -> Option<Self> {
        let Some(status) = &lock.status else { return Some(Self::Absent) };
        if status.holder.is_some() {
            return if is_unconfirmed(lock) { Some(Self::Absent) } else { status.fencing_token.map(Self::Pod) };
        }
        let others = [HeldReason::HeldByOther, HeldReason::Queued].map(HeldReason::as_str);
        let held = find_condition(&status.conditions, LockCondition::Held);
        let other = held.filter(|held| others.contains(&&*held.reason));
        Some(other.map_or(Self::Absent, |held| {
            Self::Elsewhere(ELSEWHERE.chars().chain(held.message.chars()).take(LONGEST_NAME).collect())
        }))
    }
}

/// The change that a Lease needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It has the right content.
    Leave,
    /// It has a holder that possibly leads without the lock, for this time at most.
    Wait(Duration),
    /// Write the label by which the policy selects the Lease, and keep its holder. Then decide again.
    Label(Box<Lease>),
    /// Write this Lease. It has the version that the decision read, or none if the Lease is missing.
    Write(Box<Lease>),
}

/// Returns the change that a Lease needs.
///
/// `lease` is a read of the API server, with the time since its last change.
pub fn decide(
    lock: &DistributedLock,
    lease: Option<(&Lease, &Heartbeat)>,
    (now, api_now): (Boottime, UnixMillis),
) -> Change {
    let Some(holder) = Holder::of(lock) else { return Change::Leave };
    let Some((lease, heartbeat)) = lease else { return written(&empty(lock), &holder, api_now) };
    let Named { name, token, is_elsewhere, is_admitted } = Named::of(lock, lease);
    let (is_named, left) = (!name.is_empty(), left_of(lease, heartbeat, now));
    let is_right = match &holder {
        Holder::Pod(current) => token == Some(*current) && !is_elsewhere,
        Holder::Elsewhere(other) => name == other && !is_old(lease, api_now),
        Holder::Absent => !is_named && token.is_none(),
    };
    match is_labelled(lease) {
        false if is_named => Change::Label(Box::new(labelled(lease.clone()))),
        true if is_named && !is_admitted && !left.is_zero() => Change::Wait(left),
        true if is_right => Change::Leave,
        _ => written(lease, &holder, api_now),
    }
}

/// Returns the change that closes a Lease, because the container of its lock's holder has terminated.
///
/// A closed Lease is empty and has no token, so the policy admits no name to it. If the pod possibly wrote the name after `since`, the
/// change waits until the duration of the Lease has passed.
pub fn close(
    lock: &DistributedLock,
    lease: Option<(&Lease, &Heartbeat)>,
    since: UnixMillis,
    (now, api_now): (Boottime, UnixMillis),
) -> Change {
    let Some((lease, heartbeat)) = lease else { return written(&empty(lock), &Holder::Absent, api_now) };
    let Named { name, token, is_elsewhere, is_admitted } = Named::of(lock, lease);
    let left = left_of(lease, heartbeat, now);
    let leads_perhaps = !name.is_empty() && !is_elsewhere && (!is_admitted || is_of_successor(lock, lease, since));
    match () {
        () if name.is_empty() && token.is_none() && is_labelled(lease) => Change::Leave,
        () if leads_perhaps && !left.is_zero() => Change::Wait(left),
        () => written(lease, &Holder::Absent, api_now),
    }
}

/// Whether a process that began after this time can have written the name in a Lease.
///
/// A process with a new identity writes a later `acquireTime`. A process that reuses the identity of an earlier one keeps `acquireTime`, and
/// writes a later `renewTime`.
fn is_of_successor(lock: &DistributedLock, lease: &Lease, since: UnixMillis) -> bool {
    let Some(spec) = lease.spec.as_ref() else { return false };
    let is_later = |time: &Option<MicroTime>| time.as_ref().is_none_or(|time| time.0.as_millisecond() >= since.0);
    let name = spec.holder_identity.as_deref().unwrap_or_default();
    let pod_uid = lock.holder().and_then(|holder| holder.pod_uid.as_deref());
    let is_reused = !ends_in_uuid(name) || pod_uid.is_some_and(|uid| name.ends_with(uid));
    is_later(&spec.acquire_time) || is_reused && is_later(&spec.renew_time)
}

/// Whether the identity ends in a UUID, which programs with client-go create for each process.
fn ends_in_uuid(identity: &str) -> bool {
    let uuid = identity.len().checked_sub(36).and_then(|start| identity.get(start..));
    uuid.is_some_and(|uuid| {
        let is_hex = |group: &str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        uuid.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && uuid.split('-').all(is_hex)
    })
}

/// How long the holder in a Lease can still lead, unless it renews.
fn left_of(lease: &Lease, heartbeat: &Heartbeat, now: Boottime) -> Duration {
    duration_of(lease).saturating_sub(heartbeat.silent_for(now))
}

/// Whether the policy compares the writes of this Lease with its lock.
pub fn is_labelled(lease: &Lease) -> bool {
    lease.labels().get(LEASE_LABEL).is_some_and(|value| value == "true")
}

fn labelled(mut lease: Lease) -> Lease {
    lease.labels_mut().insert(LEASE_LABEL.to_owned(), "true".to_owned());
    lease
}

/// A Lease that does not exist yet.
fn empty(lock: &DistributedLock) -> Lease {
    let metadata =
        ObjectMeta { name: lock.lease().map(str::to_owned), namespace: lock.namespace(), ..ObjectMeta::default() };
    Lease { metadata, ..Lease::default() }
}

/// The time after which a Lease with the right content must be written again.
pub fn read_again(lock: &DistributedLock) -> Option<Duration> {
    matches!(Holder::of(lock), Some(Holder::Elsewhere(_))).then_some(NAME_AGAIN)
}

/// Reports a Lease whose holder can lead for more than half of the lock's ttl.
pub fn misfit(lock: &DistributedLock, lease: &Lease) -> Option<Refusal> {
    let Named { name, is_elsewhere, .. } = Named::of(lock, lease);
    let (duration, ttl) = (duration_of(lease), lock.spec.ttl);
    (!name.is_empty() && !is_elsewhere && duration > ttl.get() / 2).then(|| Refusal::LeaseTooLong {
        lease: format!("{}/{}", lock.namespace().unwrap_or_default(), lease.name_any()),
        duration: duration.into(),
        half: Duration::from_secs(ttl.get().as_secs() / 2).into(),
        ttl,
        least: (duration * 2).into(),
    })
}

/// The holder that a Lease names.
struct Named<'a> {
    name: &'a str,
    /// The token of the hold for which the operator last wrote the Lease.
    token: Option<i64>,
    /// The operator has written the name.
    is_elsewhere: bool,
    /// The operator has written the name, or the policy has admitted it.
    is_admitted: bool,
}

impl<'a> Named<'a> {
    fn of(lock: &DistributedLock, lease: &'a Lease) -> Self {
        let annotations = lease.annotations();
        let name = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        let token = annotations.get(LEASE_TOKEN_ANNOTATION).and_then(|token| token.parse().ok());
        let is_elsewhere = name.starts_with(ELSEWHERE);
        let is_admitted = is_elsewhere || token.is_some_and(|token| was_opened(lock, lease, token));
        Self { name, token, is_elsewhere, is_admitted }
    }
}

/// Whether the policy admitted the last renewal of a Lease that has this token.
///
/// The token must be that of the present hold, or of a hold in the history that had not ended at the renewal. A name without such a hold is
/// older than the lock, or was written while the cluster had no policy.
fn was_opened(lock: &DistributedLock, lease: &Lease, token: i64) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0.as_millisecond());
    let is_past = |past: &PastHold| past.fencing_token == Some(token) && renewed <= Some(past.to.as_millis());
    lock.holder().is_some() && lock.fencing_token() == Some(token)
        || lock.status.as_ref().is_some_and(|status| status.history.iter().any(is_past))
}

/// The end of a hold whose leader does not renew the Lease, with the token of that hold.
///
/// The Lease was read at `now`. A client-go leader that has not renewed its Lease for its duration has stopped leading. A leader that has
/// not written its name has one ttl for that.
pub fn idle(lock: &DistributedLock, lease: &Lease, heartbeat: &Heartbeat, now: Boottime) -> Option<(i64, End)> {
    let Named { name, token, .. } = Named::of(lock, lease);
    let limit = if name.is_empty() { lock.spec.ttl.get() } else { duration_of(lease) };
    let silent = heartbeat.silent_for(now);
    let end = End::LeaseIdle { lease: lease.name_any(), silent: Duration::from_secs(silent.as_secs()).into() };
    token.filter(|_| silent >= limit).map(|token| (token, end))
}

fn duration_of(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(UNKNOWN, Duration::from_secs)
}

fn is_old(lease: &Lease, api_now: UnixMillis) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    renewed.is_none_or(|renewed| api_now.since(UnixMillis(renewed.0.as_millisecond())) > NAME_AGAIN)
}

/// The write of the Lease for this holder. A pod writes its own name, so its Lease is empty at first.
fn written(lease: &Lease, holder: &Holder, api_now: UnixMillis) -> Change {
    let before = lease.spec.clone().unwrap_or_default();
    let (name, duration) = match holder {
        Holder::Elsewhere(other) => (other.as_str(), LONG),
        Holder::Pod(_) | Holder::Absent => ("", SHORT),
    };
    let is_other = before.holder_identity.as_deref().unwrap_or_default() != name;
    let now = Some(MicroTime(Timestamp::from_millisecond(api_now.0).unwrap_or_default()));
    // As in client-go, a new holder is a transition, and the end of a holder is not.
    let transitions = before.lease_transitions.unwrap_or(0).saturating_add(i32::from(is_other && !name.is_empty()));
    let mut lease = labelled(lease.clone());
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(duration),
        acquire_time: if is_other { now.clone() } else { before.acquire_time.or_else(|| now.clone()) },
        renew_time: now,
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    });
    let annotations = lease.annotations_mut();
    match holder {
        Holder::Pod(token) => drop(annotations.insert(LEASE_TOKEN_ANNOTATION.to_owned(), token.to_string())),
        Holder::Elsewhere(_) | Holder::Absent => drop(annotations.remove(LEASE_TOKEN_ANNOTATION)),
    }
    Change::Write(Box::new(lease))
}

#[cfg(test)]
mod tests;
