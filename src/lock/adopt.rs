//! Taking over the renewal of holds that are published in a lock's status: every replica does, so that a change of leader
//! loses none.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{ResourceExt, runtime::reflector::ObjectRef};

use super::{
    access,
    holds::{Hold, Holds, Terms},
};
use crate::{
    api::DistributedLock,
    operator::{cache::Change, context::Context},
    redlock::Nonce,
    time::{Boottime, UnixMillis},
};

/// Follows all locks, on every replica, until dropped.
pub async fn follow(context: Context, holds: Arc<Holds>) {
    let mut changes = std::pin::pin!(context.locks.changes());
    while let Some(change) = changes.next().await {
        match change {
            Change::Applied(lock) => match hold_of(&context, &lock) {
                Published::Hold(hold) => holds.adopt(*hold, true),
                Published::Over => {}
                Published::Nothing => holds.forget_published(&lock.uid().unwrap_or_default()),
            },
            // Also one that can be read no longer: nobody here knows then for whom it would be renewed.
            Change::Deleted(lock) | Change::Vanished(lock) => holds.forget(&lock.uid().unwrap_or_default()),
        }
    }
}

/// What a lock's status publishes, as seen from here.
enum Published {
    /// A hold that is not over yet.
    Hold(Box<Hold>),
    /// A hold that is over, as far as anybody has published. What this replica knows by its own renewals stays.
    Over,
    /// No hold, or one that is ending.
    Nothing,
}

/// Continues what the status of `lock` publishes. Only the watch can tell that a hold is gone: `lock` may be older than it.
pub fn adopt(context: &Context, holds: &Holds, lock: &DistributedLock) {
    if let Published::Hold(hold) = hold_of(context, lock) {
        holds.adopt(*hold, false);
    }
}

fn hold_of(context: &Context, lock: &DistributedLock) -> Published {
    let Some((nonce, valid_until, renewed_at)) = published(lock) else { return Published::Nothing };
    let now = (context.clock.boottime(), context.clock.wall());
    let ttl = lock.spec.ttl.get();
    let (Some(left), Ok(access)) = (remaining(valid_until, now.1, ttl), access::of(context, lock)) else {
        return Published::Over;
    };
    let terms = Terms {
        lock: ObjectRef::from_obj(lock),
        uid: lock.uid().unwrap_or_default(),
        key: access.held_key(lock),
        quorum: access.quorum,
        nonce,
        ttl,
        renew_interval: access.renew_interval,
    };
    let due = first_renewal(now, renewed_at, terms.renew_interval);
    Published::Hold(Box::new(Hold::new(terms, now.0 + left, valid_until, renewed_at, due)))
}

/// The hold that a status publishes, unless it is ending.
fn published(lock: &DistributedLock) -> Option<(Nonce, UnixMillis, UnixMillis)> {
    let status = lock.status.as_ref().filter(|status| status.ending.is_none())?;
    let nonce = status.holder.as_ref()?.nonce.as_deref()?.parse().ok()?;
    Some((nonce, UnixMillis(status.valid_until?.as_millis()), UnixMillis(status.renewed_at?.as_millis())))
}

/// What is left of a published validity: never more than a whole TTL, whatever the clocks say.
fn remaining(valid_until: UnixMillis, now: UnixMillis, ttl: Duration) -> Option<Duration> {
    let left = u64::try_from(valid_until.0.saturating_sub(now.0)).ok().filter(|left| *left > 0)?;
    Some(Duration::from_millis(left).min(ttl))
}

/// One interval after the published renewal, or now if that is past.
fn first_renewal(now: (Boottime, UnixMillis), renewed_at: UnixMillis, interval: Duration) -> Boottime {
    let age = Duration::from_millis(u64::try_from(now.1.0.saturating_sub(renewed_at.0)).unwrap_or(0));
    now.0 + interval.saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_published_validity_that_is_over_gives_nothing() {
        assert_eq!(remaining(UnixMillis(1_000), UnixMillis(1_000), TTL), None);
        assert_eq!(remaining(UnixMillis(1_000), UnixMillis(5_000), TTL), None);
    }

    #[test]
    fn a_clock_that_is_behind_gives_no_more_than_a_ttl() {
        assert_eq!(remaining(UnixMillis(60_000), UnixMillis(0), TTL), Some(TTL));
        assert_eq!(remaining(UnixMillis(60_000), UnixMillis(57_500), TTL), Some(Duration::from_millis(2_500)));
    }

    #[test]
    fn the_first_renewal_is_one_interval_after_the_published_one() {
        let now = (Boottime::new(Duration::from_secs(100)), UnixMillis(50_000));
        let interval = Duration::from_secs(3);
        assert_eq!(first_renewal(now, UnixMillis(49_000), interval), now.0 + Duration::from_secs(2));
        assert_eq!(first_renewal(now, UnixMillis(30_000), interval), now.0);
    }
}
