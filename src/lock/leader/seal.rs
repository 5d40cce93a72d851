//! Seals the keys of holds that run out. No replica can extend a sealed key, and the members confirm its end.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::member_access::{HoldKey, MemberAccess};
use super::memory::Memory;
use super::progress::Progress;
use crate::api::DistributedLock;
use crate::lock::model::decide::{Sealing, seal_retry};
use crate::lock::model::delay::{left_of_delay, lock_delay};
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::status::is_unconfirmed;
use crate::redlock::AcquireRequest;

/// The pause between attempts after an outage that no member can remember a hold through.
const OUTAGE_RETRY: Duration = Duration::from_secs(1);

/// Seals the keys of a hold that runs out.
pub(super) async fn held(members: &MemberAccess, memory: &Memory, lock: &Arc<DistributedLock>) -> Progress {
    let uid = lock.uid().unwrap_or_default();
    let nonce = holder_nonce(lock);
    let sealing = match members.hold_key(lock) {
        None => Sealing::Unconfirmed,
        Some(key) => {
            let sealing = key.seal(lock_delay(lock, key.session.max_ttl_in_force())).await;
            let earliest = members.api_clock().map(|clock| clock.earliest(members.now()).floor());
            let left = left_of_delay(lock, earliest, key.session.max_ttl_in_force());
            if sealing == Sealing::Gone && !left.is_zero() {
                seal_for_lock_delay(&key, left).await;
                Sealing::RunsOut(members.now() + left)
            } else {
                sealing
            }
        }
    };
    if sealing == Sealing::Unconfirmed {
        return Progress::Done(Action::requeue(if is_unconfirmed(lock) { OUTAGE_RETRY } else { seal_retry() }));
    }
    memory.mark_sealed(&uid, nonce, sealing);
    Progress::Next(lock.clone())
}

/// Sets a seal for the rest of `lockDelay`, after the key has expired.
///
/// Only a seal applies the delay to clients outside the operator. Without a majority, or with another client on the key, there is nothing
/// to set.
async fn seal_for_lock_delay(key: &HoldKey, left: Duration) {
    let request = AcquireRequest { key: key.key.clone(), value: key.sealed(), ttl: left, token: true };
    let _best_effort = key.session.redlock().acquire(&key.session.electorate(), request).await;
}
