//! Pure: what the Lease of an election says, and what the operator writes into it.
//!
//! Candidates that elect by this Lease know nothing of the lock. The chart's policy admits a holder's name only from the pod that holds the lock,
//! so the operator never decides who leads. It empties a Lease whose holder has lost the lock, and fills in a holder that lives elsewhere. Each
//! of its writes leaves an annotation, which tells a holder that the policy has admitted from one that wrote without it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::ResourceExt;

use super::refusal::Refusal;
use super::status::is_unconfirmed;
use crate::api::conditions::{HeldReason, LockCondition, find_condition};
use crate::api::{DistributedLock, LEASE_LOCK_ANNOTATION, LEASE_TOKEN_ANNOTATION};
use crate::time::{Boottime, UnixMillis};

/// The duration in seconds of a Lease that names a holder elsewhere. Candidates here do not try meanwhile.
const LONG: i32 = 3_600;
/// After half of that the operator names it again.
const NAME_AGAIN: i64 = 1_800_000;
/// A Lease without a holder has a duration, too. Candidates do not read it.
const SHORT: i32 = 1;
/// How long a Lease counts that names a holder and no duration.
const UNKNOWN: Duration = Duration::from_secs(60);
/// The name of a holder elsewhere begins with it.
const ELSEWHERE: &str = "elsewhere: ";
/// The longest name of a holder elsewhere.
const LONGEST_NAME: usize = 253;

/// The holder of the lock, as its Lease ought to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// A pod of this cluster, with this fencing token.
    Pod(i64),
    /// A holder that is no pod of this election, and why that is known.
    Elsewhere(String),
    /// None.
    Nobody,
}

impl Holder {
    /// By the status of a lock. `None`: a person has taken the token off.
    fn of(lock: &DistributedLock) -> Option<Self> {
        let Some(status) = &lock.status else { return Some(Self::Nobody) };
        if status.holder.is_some() {
            return if is_unconfirmed(lock) { Some(Self::Nobody) } else { status.fencing_token.map(Self::Pod) };
        }
        let others = [HeldReason::HeldByOther, HeldReason::Queued].map(HeldReason::as_str);
        let held = find_condition(&status.conditions, LockCondition::Held);
        let other = held.filter(|held| others.contains(&&*held.reason));
        Some(other.map_or(Self::Nobody, |held| {
            Self::Elsewhere(ELSEWHERE.chars().chain(held.message.chars()).take(LONGEST_NAME).collect())
        }))
    }
}

/// Since when this replica has observed a Lease unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchanged {
    version: Option<String>,
    since: Boottime,
}

impl Unchanged {
    /// After a read of the Lease.
    #[must_use]
    pub fn after(before: Option<Self>, lease: &Lease, now: Boottime) -> Self {
        let version = lease.resource_version();
        before.filter(|before| before.version == version).unwrap_or(Self { version, since: now })
    }
}

/// The change that a Lease needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It says what it ought to say.
    Leave,
    /// It has a holder that the policy may not have admitted. That holder counts for this time.
    Wait(Duration),
    /// Write this. It carries the version that it was decided on, or none for a Lease that does not exist.
    Write(Box<Lease>),
}

/// Decides. `lease` is what the API server has.
pub fn decide(
    lock: &DistributedLock,
    lease: Option<&Lease>,
    unchanged: Option<&Unchanged>,
    (now, api_now): (Boottime, UnixMillis),
) -> Change {
    let Some(holder) = Holder::of(lock) else { return Change::Leave };
    let Some(lease) = lease else {
        let metadata =
            ObjectMeta { name: lock.lease().map(str::to_owned), namespace: lock.namespace(), ..ObjectMeta::default() };
        return Change::Write(Box::new(written(lock, &Lease { metadata, ..Lease::default() }, &holder, api_now)));
    };
    let Named { name, is_ours, token, is_elsewhere } = Named::of(lock, lease);
    let is_named = !name.is_empty();
    if is_named && !is_ours {
        let waited = unchanged.map_or(Duration::ZERO, |unchanged| now.since(unchanged.since));
        let left = duration_of(lease).saturating_sub(waited);
        if !left.is_zero() {
            return Change::Wait(left);
        }
    }
    let is_true = is_ours
        && match &holder {
            Holder::Pod(current) => token == Some(*current) && !is_elsewhere,
            Holder::Elsewhere(other) => name == other && !is_old(lease, api_now),
            Holder::Nobody => !is_named && token.is_none(),
        };
    if is_true {
        return Change::Leave;
    }
    // The last hold's end has emptied the Lease, so the policy has admitted this name since. It belongs to the hold of now.
    let admitted = is_ours && is_named && token.is_none() && !is_elsewhere;
    if let (true, Holder::Pod(current)) = (admitted, &holder) {
        let mut stamped = lease.clone();
        stamped.annotations_mut().insert(LEASE_TOKEN_ANNOTATION.to_owned(), current.to_string());
        return Change::Write(Box::new(stamped));
    }
    Change::Write(Box::new(written(lock, lease, &holder, api_now)))
}

/// After this time a Lease that says what it ought to say does so no longer.
pub fn read_again(lock: &DistributedLock) -> Option<Duration> {
    let renewal = Duration::from_millis(NAME_AGAIN.unsigned_abs());
    matches!(Holder::of(lock), Some(Holder::Elsewhere(_))).then_some(renewal)
}

/// Says so if a holder of this Lease counts for more than half of the lock's ttl.
pub fn misfit(lock: &DistributedLock, lease: Option<&Lease>) -> Option<Refusal> {
    let lease = lease?;
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
    /// The operator has written this Lease for this lock.
    is_ours: bool,
    /// The hold during which the operator wrote it last.
    token: Option<i64>,
    /// The operator has written the name.
    is_elsewhere: bool,
}

impl<'a> Named<'a> {
    fn of(lock: &DistributedLock, lease: &'a Lease) -> Self {
        let annotations = lease.annotations();
        let name = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        Self {
            name,
            is_ours: annotations.get(LEASE_LOCK_ANNOTATION) == Some(&lock.name_any()),
            token: annotations.get(LEASE_TOKEN_ANNOTATION).and_then(|token| token.parse().ok()),
            is_elsewhere: name.starts_with(ELSEWHERE),
        }
    }
}

fn duration_of(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(UNKNOWN, Duration::from_secs)
}

fn is_old(lease: &Lease, api_now: UnixMillis) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    renewed.is_none_or(|renewed| api_now.0.saturating_sub(renewed.0.as_millisecond()) > NAME_AGAIN)
}

/// The Lease as it shows this holder. A pod writes its own name, so its Lease is empty at first.
fn written(lock: &DistributedLock, lease: &Lease, holder: &Holder, api_now: UnixMillis) -> Lease {
    let before = lease.spec.clone().unwrap_or_default();
    let (name, duration) = match holder {
        Holder::Elsewhere(other) => (other.as_str(), LONG),
        Holder::Pod(_) | Holder::Nobody => ("", SHORT),
    };
    let is_other = before.holder_identity.as_deref().unwrap_or_default() != name;
    let now = Some(MicroTime(Timestamp::from_millisecond(api_now.0).unwrap_or_default()));
    // As client-go does: a holder counts as a transition when it comes, not when it goes.
    let transitions = before.lease_transitions.unwrap_or(0).saturating_add(i32::from(is_other && !name.is_empty()));
    let mut lease = lease.clone();
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(duration),
        acquire_time: if is_other { now.clone() } else { before.acquire_time.or_else(|| now.clone()) },
        renew_time: now,
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    });
    let annotations = lease.annotations_mut();
    annotations.insert(LEASE_LOCK_ANNOTATION.to_owned(), lock.name_any());
    match holder {
        Holder::Pod(token) => drop(annotations.insert(LEASE_TOKEN_ANNOTATION.to_owned(), token.to_string())),
        Holder::Elsewhere(_) | Holder::Nobody => drop(annotations.remove(LEASE_TOKEN_ANNOTATION)),
    }
    lease
}

#[cfg(test)]
mod tests;
