//! Locks whose quorum another installation of the operator looks after: they are left alone, but for the word why nothing happens.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::api::{DistributedLock, HeldQuorum, LOCK_FINALIZER, RedisQuorum};
use crate::lock::model::contention::designation;
use crate::lock::model::refusal::Refusal;
use crate::runtime::context::Context;
use crate::time::UnixMillis;

/// How long another installation may take to say something about a lock.
/// The installation that looks after the quorum has spoken by then, if it looks after the lock, too.
const SILENCE: Duration = Duration::from_secs(10);

/// What becomes here of a lock whose quorum another installation looks after.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// Nothing before so much time has passed: the other installation has the first word.
    Wait(Duration),
    /// Our finalizer is taken off.
    RemoveFinalizer,
    /// The status says why nothing happens.
    Refuse,
    /// Nothing.
    Leave,
}

/// Decides about such a lock.
pub(super) fn decide(lock: &DistributedLock, api_now: UnixMillis) -> Elsewhere {
    match (farewell_left(lock, api_now), silence_left(lock, api_now)) {
        (Some(left), _) | (None, Some(left)) if !left.is_zero() => Elsewhere::Wait(left),
        (Some(_), _) => Elsewhere::RemoveFinalizer,
        (None, Some(_)) => Elsewhere::Refuse,
        (None, None) => Elsewhere::Leave,
    }
}

/// The quorum of a lock, if another installation looks after that quorum.
///
/// It is the quorum that the lock's hold is recorded on, else the one that its specification leads to.
pub fn others_quorum(context: &Context, lock: &DistributedLock) -> Option<Arc<RedisQuorum>> {
    let status = lock.status.as_ref();
    let recorded = status.and_then(|status| status.holder.as_ref()?.quorum.as_ref());
    let quorum = match recorded {
        Some(recorded) => {
            let quorum = context.quorums.get(&recorded.reference())?;
            (HeldQuorum::of(&quorum) == *recorded).then_some(quorum)?
        }
        None => named_quorum(context, lock)?,
    };
    (!context.replica.settings.serves(&quorum)).then_some(quorum)
}

/// The quorum that the specification of a lock leads to, if there is one.
pub(super) fn named_quorum(context: &Context, lock: &DistributedLock) -> Option<Arc<RedisQuorum>> {
    match designation(lock) {
        Some((namespace, name)) => context.quorums.named(&namespace, &name),
        None => context.quorums.get(&context.default_quorum()?),
    }
}

/// Why a lock is not accepted here.
pub(super) fn refusal(quorum: &RedisQuorum) -> Refusal {
    let installation = quorum.status.as_ref().and_then(|status| status.installation.clone());
    let quorum = HeldQuorum::of(quorum);
    match installation {
        Some(installation) => Refusal::OtherInstallation { installation, quorum },
        None => Refusal::NoInstallation { quorum },
    }
}

/// How long to wait for another installation before this one says a word. `None`: another one has spoken, or what stands there is
/// our own word.
fn silence_left(lock: &DistributedLock, api_now: UnixMillis) -> Option<Duration> {
    let spoken = lock.status.as_ref().is_some_and(|status| !status.conditions.is_empty() || status.holder.is_some());
    if spoken || lock.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(silence_since(lock.metadata.creation_timestamp.as_ref(), api_now))
}

/// How long to wait before our finalizer is taken off a lock that is being deleted and has no holder.
///
/// An installation that looks after the quorum but not after the lock would never take it off. `None`: the lock has no
/// such finalizer, or the other installation has to end its hold.
fn farewell_left(lock: &DistributedLock, api_now: UnixMillis) -> Option<Duration> {
    let deleted = lock.metadata.deletion_timestamp.as_ref()?;
    let is_free = lock.status.as_ref().is_none_or(|status| status.holder.is_none() && status.ending.is_none());
    let has_finalizer = lock.finalizers().iter().any(|finalizer| finalizer == LOCK_FINALIZER);
    (is_free && has_finalizer).then(|| silence_since(Some(deleted), api_now))
}

fn silence_since(time: Option<&Time>, api_now: UnixMillis) -> Duration {
    let since = time.map_or(0, |time| time.0.as_millisecond());
    SILENCE.saturating_sub(Duration::from_millis(u64::try_from(api_now.0.saturating_sub(since)).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_installation_is_given_time_to_speak_and_is_not_contradicted() {
        let lock = |status: serde_json::Value| -> DistributedLock {
            serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"},
                "spec": {"key": "k", "claim": {"identity": "a"}}, "status": status}))
            .unwrap()
        };
        let silent = lock(json!({"transitions": 0}));
        assert_eq!(silence_left(&silent, UnixMillis(4_000)), Some(Duration::from_secs(6)));
        assert_eq!(silence_left(&silent, UnixMillis(60_000)), Some(Duration::ZERO));
        let accepted = json!({"transitions": 0, "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted",
            "message": "", "lastTransitionTime": "1970-01-01T00:00:01Z"}]});
        assert_eq!(silence_left(&lock(accepted), UnixMillis(60_000)), None);
    }

    #[test]
    fn a_deleted_lock_that_nobody_holds_goes_away_whoever_looks_after_its_quorum() {
        let lock = |status: serde_json::Value, finalizers: serde_json::Value| -> DistributedLock {
            serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
                "metadata": {"name": "a", "deletionTimestamp": "1970-01-01T00:00:00Z", "finalizers": finalizers},
                "spec": {"key": "k", "claim": {"identity": "a"}}, "status": status}))
            .unwrap()
        };
        let (ours, free) = (json!([LOCK_FINALIZER]), json!({"transitions": 1}));
        let left = |lock: &DistributedLock, seconds: i64| farewell_left(lock, UnixMillis(seconds * 1_000));
        assert_eq!(left(&lock(free.clone(), ours.clone()), 4), Some(Duration::from_secs(6)));
        assert_eq!(left(&lock(free.clone(), ours.clone()), 60), Some(Duration::ZERO));
        assert_eq!(left(&lock(free, json!([])), 60), None);
        let ending = json!({"transitions": 1, "ending": {"since": "1970-01-01T00:00:00Z", "reason": "Broken"}});
        assert_eq!(left(&lock(ending, ours), 60), None, "its hold is the other installation's to end");
    }

    #[test]
    fn the_refusal_names_the_installation_that_looks_after_the_quorum() {
        let quorum = |status: serde_json::Value| -> RedisQuorum {
            serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "RedisQuorum",
                "metadata": {"name": "q", "namespace": "a"}, "spec": {}, "status": status}))
            .unwrap()
        };
        let theirs = refusal(&quorum(json!({"installation": "team-a/redlock"})));
        let message = theirs.to_string();
        assert!(message.contains("team-a/redlock") && message.contains("a/q"), "{message}");
        assert!(matches!(refusal(&quorum(json!({}))), Refusal::NoInstallation { .. }));
    }
}
