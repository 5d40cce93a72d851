//! Taking over the renewal of holds that are published in a lock's status: every replica does, so that a change of leader
//! loses none.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

use super::holds::Holds;
use super::{access, location};
use crate::api::DistributedLock;
use crate::lock::model::hold::{Hold, Terms};
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::record::HoldRecord;
use crate::lock::model::unreadable::Raw;
use crate::quorum::model::effective::Effective;
use crate::quorum::session::Sessions;
use crate::redlock::{Nonce, longest_ttl};
use crate::runtime::cache::Change;
use crate::runtime::context::Context;
use crate::time::{Boottime, UnixMillis};

/// Between two looks at holds whose quorum is not connected yet, so that its clock is unknown.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Between two looks at the locks that cannot be read.
const LOOK_AT_UNREADABLE: Duration = Duration::from_secs(1);

/// Follows all locks, on every replica, until dropped.
pub async fn follow(context: Context, sessions: Sessions, holds: Arc<Holds>) {
    let mut changes = std::pin::pin!(context.locks.changes());
    let (mut unsettled, mut unreadable) = (HashSet::new(), HashMap::new());
    let mut looks = tokio::time::interval(LOOK_AT_UNREADABLE);
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            _ = looks.tick() => {
                see_unreadable(&context, &holds, &mut unreadable);
                continue;
            }
            () = tokio::time::sleep(LOOK_AGAIN), if !unsettled.is_empty() => {
                unsettled.retain(|lock| {
                    context.locks.get(lock).is_some_and(|lock| !take(&context, &sessions, &holds, &lock))
                });
                continue;
            }
        };
        match change {
            Some(Change::Applied(lock)) => {
                holds.sightings.see(&lock, context.clock.boottime());
                let reference = ObjectRef::from_obj(&*lock);
                if take(&context, &sessions, &holds, &lock) {
                    unsettled.remove(&reference);
                } else {
                    unsettled.insert(reference);
                }
            }
            Some(Change::Deleted(lock)) => {
                let uid = lock.uid().unwrap_or_default();
                holds.forget(&uid);
                holds.sightings.forget(&uid);
            }
            // Also one that can no longer be read: it is not known then for whom it would be renewed.
            Some(Change::Vanished(lock)) => holds.forget(&lock.uid().unwrap_or_default()),
            None => return,
        }
    }
}

/// Keeps the first sights of the holds of locks that cannot be read.
///
/// `known` are those of the last look.
fn see_unreadable(context: &Context, holds: &Holds, known: &mut HashMap<String, ObjectRef<DistributedLock>>) {
    let now = context.clock.boottime();
    let before = std::mem::take(known);
    for raw in context.locks.unreadable().iter().map(|raw| Raw::unreadable(raw)) {
        let nonce = raw.is_held().then(|| raw.text("/status/holder/nonce").map(str::to_owned));
        holds.sightings.see_parts(raw.uid(), nonce, raw.is_ending(), now);
        let (name, namespace) = (raw.metadata.name.clone().unwrap_or_default(), raw.metadata.namespace.as_deref());
        let reference = ObjectRef::new(&name).within(namespace.unwrap_or_default());
        known.insert(raw.uid().to_owned(), reference);
    }
    for (uid, reference) in before.iter().filter(|(uid, _)| !known.contains_key(*uid)) {
        if context.locks.get(reference).is_none_or(|lock| lock.uid().as_ref() != Some(uid)) {
            holds.sightings.forget(uid);
        }
    }
}

/// Takes what the watch shows of a lock. Whether that could be judged.
fn take(context: &Context, sessions: &Sessions, holds: &Holds, lock: &DistributedLock) -> bool {
    let uid = lock.uid().unwrap_or_default();
    // First of all: a watch that begins again can leave out the end of the hold of before.
    holds.keep_only(&uid, holder_nonce(lock).as_ref());
    match hold_of(context, sessions, holds, lock) {
        Published::Hold(hold) => holds.adopt(*hold, true),
        Published::Known(nonce) => holds.seen(&uid, &nonce),
        Published::Over => {}
        Published::Unknown => return false,
        Published::Nothing => holds.keep_only(&uid, None),
    }
    true
}

/// What a lock's status publishes, as seen from here.
enum Published {
    /// A hold that is valid.
    Hold(Box<Hold>),
    /// A hold that this replica knows better than the status does.
    Known(Nonce),
    /// A hold that has ended by what is published. What this replica knows by its own renewals stays.
    Over,
    /// A hold that cannot be judged: the quorum or its clock is not known yet.
    Unknown,
    /// No hold, or one that is ending.
    Nothing,
}

/// Continues what the status of `lock` publishes. Only the watch can tell that a hold is gone: `lock` may be older than it.
pub fn adopt(context: &Context, sessions: &Sessions, holds: &Holds, lock: &DistributedLock) {
    if let Published::Hold(hold) = hold_of(context, sessions, holds, lock) {
        holds.adopt(*hold, false);
    }
}

fn hold_of(context: &Context, sessions: &Sessions, holds: &Holds, lock: &DistributedLock) -> Published {
    let Some((nonce, valid_until, renewed_at)) = published(lock) else { return Published::Nothing };
    let now = context.clock.boottime();
    let Some(record) = HoldRecord::of(lock) else { return Published::Unknown };
    if !context.serves(&record.quorum) {
        // Another installation renews it.
        return Published::Nothing;
    }
    let Some(session) = location::session(sessions, &record.quorum) else { return Published::Unknown };
    let in_force = Effective::published(&session.quorum());
    let (Some(quorum_now), Some(in_force)) = (session.quorum_time(now), in_force) else { return Published::Unknown };
    let uid = lock.uid().unwrap_or_default();
    let ttl = covered_ttl(lock.spec.ttl.get(), record.rejoin_delay, in_force);
    let left = remaining(valid_until, quorum_now, ttl);
    let assumed = left == Left::TooLong;
    let (left, valid_until) = match left {
        Left::Over => return Published::Over,
        Left::For(left) => (left, valid_until),
        // A clock that was wrong has published it. It counts as one ttl from its first sight, and as nothing to one who knows better.
        Left::TooLong if holds.get(&uid, &nonce).is_some() => return Published::Known(nonce),
        Left::TooLong => (ttl, later(quorum_now, ttl)),
    };
    let terms = Terms {
        lock: ObjectRef::from_obj(lock),
        uid,
        key: record.key,
        quorum: record.quorum,
        nonce,
        ttl,
        renew_interval: access::renew_interval(lock, ttl),
    };
    let due = first_renewal((now, quorum_now), renewed_at, terms.renew_interval);
    let mut hold = Hold::new(terms, now + left, valid_until, renewed_at, due);
    hold.assumed = assumed;
    Published::Hold(Box::new(hold))
}

/// The hold that a status publishes, unless it is ending.
fn published(lock: &DistributedLock) -> Option<(Nonce, UnixMillis, UnixMillis)> {
    let status = lock.status.as_ref().filter(|status| status.ending.is_none())?;
    let nonce = status.holder.as_ref()?.nonce.as_deref()?.parse().ok()?;
    Some((nonce, UnixMillis(status.valid_until?.as_millis()), UnixMillis(status.renewed_at?.as_millis())))
}

/// The time to live that renewals use.
///
/// It is what the specification says, but never more than fences wait for, nor more than the record of the hold covers.
/// A leader that waits for the end of the hold without an answer of the members waits for what is recorded.
fn covered_ttl(wanted: Duration, recorded: Duration, in_force: Effective) -> Duration {
    let covered = longest_ttl(recorded, in_force.drift, in_force.node_timeout);
    let ttl = wanted.min(in_force.max_ttl).min(covered);
    // Redis counts in milliseconds, and so does the API.
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// What is left of a published validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It has ended.
    Over,
    /// So much.
    For(Duration),
    /// More than one ttl, which no renewal earns.
    TooLong,
}

fn remaining(valid_until: UnixMillis, quorum_now: UnixMillis, ttl: Duration) -> Left {
    match u64::try_from(valid_until.0.saturating_sub(quorum_now.0)).map(Duration::from_millis) {
        Ok(left) if left > ttl => Left::TooLong,
        Ok(left) if !left.is_zero() => Left::For(left),
        _ => Left::Over,
    }
}

fn later(time: UnixMillis, duration: Duration) -> UnixMillis {
    UnixMillis(time.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
}

/// One interval after the published renewal, or now if that is past.
fn first_renewal(now: (Boottime, UnixMillis), renewed_at: UnixMillis, interval: Duration) -> Boottime {
    let age = Duration::from_millis(u64::try_from(now.1.0.saturating_sub(renewed_at.0)).unwrap_or(0));
    now.0 + interval.saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redlock::Drift;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_published_validity_that_has_ended_gives_nothing() {
        assert_eq!(remaining(UnixMillis(1_000), UnixMillis(1_000), TTL), Left::Over);
        assert_eq!(remaining(UnixMillis(1_000), UnixMillis(5_000), TTL), Left::Over);
    }

    #[test]
    fn a_published_validity_gives_what_is_left_of_it() {
        assert_eq!(remaining(UnixMillis(60_000), UnixMillis(57_500), TTL), Left::For(Duration::from_millis(2_500)));
    }

    #[test]
    fn a_published_validity_that_no_renewal_can_have_earned_is_recognised() {
        assert_eq!(remaining(UnixMillis(60_000), UnixMillis(50_000), TTL), Left::For(TTL));
        assert_eq!(remaining(UnixMillis(60_001), UnixMillis(50_000), TTL), Left::TooLong);
    }

    #[test]
    fn the_first_renewal_is_one_interval_after_the_published_one() {
        let now = (Boottime::new(Duration::from_secs(100)), UnixMillis(50_000));
        let interval = Duration::from_secs(3);
        assert_eq!(first_renewal(now, UnixMillis(49_000), interval), now.0 + Duration::from_secs(2));
        assert_eq!(first_renewal(now, UnixMillis(30_000), interval), now.0);
    }

    #[test]
    fn a_renewal_uses_no_longer_ttl_than_the_record_of_the_hold_covers() {
        let in_force =
            |max_ttl| Effective { max_ttl, drift: Drift::default(), node_timeout: Duration::from_millis(50) };
        let recorded = in_force(Duration::from_secs(10)).rejoin_delay();
        let ttl = |wanted, max| covered_ttl(Duration::from_secs(wanted), recorded, in_force(Duration::from_secs(max)));
        assert_eq!(ttl(10, 10), Duration::from_secs(10));
        assert_eq!(ttl(60, 60), Duration::from_secs(10), "the delay was not raised yet");
        assert_eq!(ttl(60, 5), Duration::from_secs(5));
    }
}
