//! Seals the keys of holds that run out. No replica can extend a sealed key, and the members confirm its end.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;

use super::member_access::{HoldKey, MemberAccess};
use super::memory::Memory;
use super::progress::Progress;
use crate::api::DistributedLock;
use crate::lock::model::delay::{left_of_delay, lock_delay};
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::status::is_unconfirmed;
use crate::redlock::{AcquireRequest, Seal};
use crate::runtime::reconciles::Action;
use crate::time::Boottime;

/// The pause before another attempt to seal a key.
const SEAL_RETRY: Duration = Duration::from_millis(200);
/// The pause between attempts when the outage has outlasted the memory of all members.
const OUTAGE_RETRY: Duration = Duration::from_secs(1);

/// Seals the keys of a hold that runs out.
pub(super) async fn held(members: &MemberAccess, memory: &Memory, lock: &Arc<DistributedLock>) -> Progress {
    let Some(until) = seal(members, lock).await else {
        return Progress::Done(Action::requeue(if is_unconfirmed(lock) { OUTAGE_RETRY } else { SEAL_RETRY }));
    };
    memory.mark_sealed(&lock.uid().unwrap_or_default(), holder_nonce(lock), until);
    Progress::Next(lock.clone())
}

/// Returns when the last sealed key expires, if a majority confirms that.
async fn seal(members: &MemberAccess, lock: &DistributedLock) -> Option<Boottime> {
    let HoldKey { session, key, value, sealed } = members.hold_key(lock)?;
    let (redlock, electorate) = (session.redlock(), session.electorate());
    let delay = lock_delay(lock, session.max_ttl_in_force());
    match redlock.seal(&electorate, &key, &value, &sealed, delay).await {
        Seal::NoQuorum { .. } => None,
        Seal::Sealed { until, .. } => Some(until),
        Seal::Gone => {
            let earliest = members.context.api_clock().map(|clock| clock.earliest(members.now()).floor());
            let left = left_of_delay(lock, earliest, session.max_ttl_in_force());
            if !left.is_zero() {
                // Only a seal applies the rest of the delay to clients outside the operator. Without a majority, or with another client on the
                // key, there is nothing to set.
                let request = AcquireRequest { key, value: sealed, ttl: left, token: true };
                let _best_effort = redlock.acquire(&session.electorate(), request).await;
            }
            Some(members.now() + left)
        }
    }
}
