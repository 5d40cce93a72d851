//! Adopts holds from the status of locks. Every replica does, so that a change of leader loses none.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use tokio::time::{Interval, MissedTickBehavior};

use super::hold_table::Holds;
use super::{access, location};
use crate::api::DistributedLock;
use crate::lock::model::hold::{Hold, Terms};
use crate::lock::model::hold_record::HoldRecord;
use crate::lock::model::orphans::holder_nonce;
use crate::quorum::model::effective;
use crate::quorum::session::Sessions;
use crate::redlock::{Settings, longest_ttl};
use crate::runtime::cache::{Change, version};
use crate::runtime::context::Context;
use crate::time::{Boottime, UnixMillis};

/// How often locks without a session are checked again.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Follows all locks until dropped.
pub async fn follow(context: Context, sessions: Sessions, holds: Arc<Holds>) {
    let mut changes = std::pin::pin!(context.locks.changes());
    let mut not_taken = HashSet::new();
    // The interval outlives each turn, so that frequent changes of other locks do not delay the next check.
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        match next_turn(&mut changes, &mut checks, !not_taken.is_empty()).await {
            None => not_taken
                .retain(|lock| context.locks.get(lock).is_some_and(|lock| !take(&context, &sessions, &holds, &lock))),
            Some(Change::Applied(lock)) => {
                holds.observation_times.record(&lock, context.clock.boottime());
                let reference = ObjectRef::from_obj(&*lock);
                if take(&context, &sessions, &holds, &lock) {
                    not_taken.remove(&reference);
                } else {
                    not_taken.insert(reference);
                }
            }
            Some(Change::Deleted(lock) | Change::Vanished(lock)) => {
                holds.forget_deleted(&lock.uid().unwrap_or_default());
            }
        }
    }
}

/// Waits for the next change, or for the next check if one is wanted. `None` means that the check is due.
async fn next_turn<C>(
    changes: &mut (impl Stream<Item = C> + Unpin),
    checks: &mut Interval,
    wants_check: bool,
) -> Option<C> {
    tokio::select! {
        // The changes do not end, because the context has the cache.
        Some(change) = changes.next() => Some(change),
        _ = checks.tick(), if wants_check => None,
    }
}

/// Updates the table of holds from a watched lock. Returns false if this replica cannot renew its hold yet.
fn take(context: &Context, sessions: &Sessions, holds: &Holds, lock: &DistributedLock) -> bool {
    let uid = lock.uid().unwrap_or_default();
    match hold_of(context, sessions, lock) {
        Ok(Some(hold)) => holds.adopt(hold, true),
        Ok(None) => holds.forget_ended(&uid, version(lock)),
        Err(NotYet) => return false,
    }
    true
}

/// This replica cannot renew a published hold yet. Its record, its session or the settings in force are missing.
struct NotYet;

/// Adds the hold that the status of `lock` names.
///
/// Only the watch proves that a hold is gone, since `lock` can be older than the watch.
pub fn adopt(context: &Context, sessions: &Sessions, holds: &Holds, lock: &Arc<DistributedLock>) {
    if let Ok(Some(hold)) = hold_of(context, sessions, lock) {
        holds.adopt(Hold { written: Some(lock.clone()), ..hold }, false);
    }
}

/// The hold that the status publishes and this installation renews, unless it ends.
fn hold_of(context: &Context, sessions: &Sessions, lock: &DistributedLock) -> Result<Option<Hold>, NotYet> {
    let status = lock.status.as_ref().filter(|status| status.ending.is_none());
    let (Some(status), Some(nonce)) = (status, holder_nonce(lock)) else { return Ok(None) };
    let now = context.clock.boottime();
    let record = HoldRecord::of(lock).ok_or(NotYet)?;
    if !context.serves(&record.quorum) {
        // Another installation renews it.
        return Ok(None);
    }
    let session = location::session(sessions, &record.quorum).ok_or(NotYet)?;
    let quorum = session.quorum();
    let in_force = effective::published(&quorum).ok_or(NotYet)?;
    let ttl = covered_ttl(lock.spec.ttl.get(), record.rejoin_delay, in_force, effective::settings(&quorum));
    let terms = Terms {
        lock: ObjectRef::from_obj(lock),
        uid: lock.uid().unwrap_or_default(),
        key: record.key,
        quorum: record.quorum,
        nonce,
        ttl,
        renew_interval: access::renew_interval(lock, ttl),
    };
    let due = match (context.api_clock(), status.renewed_at) {
        (Some(clock), Some(at)) => first_renewal((now, clock.latest(now).ceil()), at.into(), terms.renew_interval),
        _ => now,
    };
    Ok(Some(Hold::named(terms, now, due)))
}

/// The time to live of renewals.
///
/// It is the ttl of the specification, limited to what fences wait for and to what the record of the hold covers. If the members do not answer,
/// the leader waits only for the delay in that record.
fn covered_ttl(wanted: Duration, recorded: Duration, in_force: Duration, settings: Settings) -> Duration {
    let covered = longest_ttl(recorded, settings.drift, settings.node_timeout);
    let ttl = wanted.min(in_force).min(covered);
    // Redis and the API use whole milliseconds.
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

/// One interval after the published renewal, or now if that is past.
fn first_renewal(now: (Boottime, UnixMillis), renewed_at: UnixMillis, interval: Duration) -> Boottime {
    now.0 + interval.saturating_sub(now.1.since(renewed_at))
}

#[cfg(test)]
mod tests {
    use tokio_stream::wrappers::IntervalStream;

    use super::*;
    use crate::redlock::rejoin_delay;

    #[tokio::test(start_paused = true)]
    async fn frequent_changes_of_locks_do_not_delay_a_check() {
        let mut changes = IntervalStream::new(tokio::time::interval(CHECK_INTERVAL / 2));
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        let mut turns = Vec::new();
        for _ in 0..30 {
            turns.push(next_turn(&mut changes, &mut checks, true).await);
        }
        let due = turns.iter().filter(|turn| turn.is_none()).count();
        assert!((9..=11).contains(&due), "{due}");
        assert!(next_turn(&mut changes, &mut checks, false).await.is_some());
    }

    #[test]
    fn the_first_renewal_is_one_interval_after_the_published_one() {
        let now = (Boottime::new(Duration::from_secs(100)), UnixMillis(50_000));
        let interval = Duration::from_secs(3);
        assert_eq!(first_renewal(now, UnixMillis(49_000), interval), now.0 + Duration::from_secs(2));
        assert_eq!(first_renewal(now, UnixMillis(30_000), interval), now.0);
    }

    #[test]
    fn a_renewal_uses_at_most_the_ttl_that_the_record_covers() {
        let settings = Settings::default();
        let recorded = rejoin_delay(Duration::from_secs(10), settings.drift, settings.node_timeout);
        let ttl = |wanted, max| covered_ttl(Duration::from_secs(wanted), recorded, Duration::from_secs(max), settings);
        assert_eq!(ttl(10, 10), Duration::from_secs(10));
        assert_eq!(ttl(60, 60), Duration::from_secs(10), "the recorded delay covers only 10 s");
        assert_eq!(ttl(60, 5), Duration::from_secs(5));
    }
}
