//! Sealing the keys of holds that run out: no replica can extend a sealed key, and the members say when it has ended.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;

use super::members::{Members, Reach};
use super::memory::Memory;
use super::progress::Progress;
use crate::api::DistributedLock;
use crate::lock::model::decide::{Sealing, seal_retry};
use crate::lock::model::delay::{left_of_delay, lock_delay};
use crate::lock::model::orphans::holder_nonce;
use crate::lock::model::status::is_unconfirmed;
use crate::redlock::AcquireRequest;

/// Between two attempts after so long an outage that no member can remember the hold.
const OUTAGE_RETRY: Duration = Duration::from_secs(1);

/// Seals the keys of a hold that runs out.
pub(super) async fn held(members: &Members, memory: &Memory, lock: &Arc<DistributedLock>) -> Progress {
    let uid = lock.uid().unwrap_or_default();
    let nonce = holder_nonce(lock);
    let sealing = match members.reach_held(lock) {
        None => Sealing::Unconfirmed,
        Some(reach) => {
            let sealing = reach.seal(lock_delay(lock, reach.session.max_ttl_in_force())).await;
            let earliest = members.api_clock().map(|clock| clock.earliest(members.now()).floor());
            let left = left_of_delay(lock, earliest, reach.session.max_ttl_in_force());
            if sealing == Sealing::Gone && !left.is_zero() {
                plant_delay(&reach, left).await;
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

/// Sets a seal for what is left of `lockDelay`, after the key has run out.
///
/// Only a seal makes the delay bind clients outside the operator. Where no majority answers, or another client has the key, there is nothing to set.
async fn plant_delay(reach: &Reach, left: Duration) {
    let request = AcquireRequest { key: reach.key.clone(), value: reach.sealed(), ttl: left, token: true };
    let _best_effort = reach.session.redlock().acquire(&reach.session.electorate(), request).await;
}
