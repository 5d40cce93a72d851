//! The default quorum in force.
//!
//! An administrator can move the default while locks without a quorum of their own are held on the earlier one. The earlier default stays
//! in force until all these holds have ended, so that no key has two holders. The Lease records the default in force, because the watch of a
//! new leader can be late. Before another default comes into force, its counters rise above every token of the earlier one.

use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use kube::runtime::reflector::ObjectRef;

use super::leader_context::LeaderContext;
use super::lock_store::LockStore;
use crate::api::requests::RequestError;
use crate::api::{DistributedLock, HeldQuorum, RedisQuorum};
use crate::lock::model::contention::LockRef;
use crate::lock::replica::location;
use crate::quorum::session::{FLOOR_STEP, floor_of};
use crate::redlock::FencingToken;
use crate::runtime::cache::{Guarded, pages};
use crate::runtime::context::Context;
use crate::runtime::leader::{Term, quorum_name};
use crate::time::UnixMillis;

/// How often the leader checks for holds on the earlier default.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a term must last before another default comes into force.
///
/// By then no write of an earlier leader is under way.
const SETTLED: Duration = Duration::from_secs(15);

/// Sets the default in force at the beginning of a term, before the first grant.
pub(super) fn begin(context: &Context, store: &LockStore, term: &Term) {
    let wanted = context.replica.settings.default_quorum.clone();
    let earlier = match term.recorded_default() {
        Some(recorded) => reference(&recorded),
        None => held_elsewhere(context, store).map(|earlier| earlier.reference()).or_else(|| wanted.clone()),
    };
    if earlier != wanted {
        tracing::warn!(
            in_force = earlier.as_ref().map(ToString::to_string),
            wanted = wanted.as_ref().map(ToString::to_string),
            "the default quorum was moved: the earlier one stays in force until nothing is held there"
        );
    }
    context.put_default_in_force(earlier);
}

/// Puts the default quorum of the settings in force when no lock is held on the earlier one.
pub(super) async fn follow(leader: &LeaderContext, term: &Term) {
    let LeaderContext { context, store, peers, .. } = leader;
    let wanted = &context.replica.settings.default_quorum;
    term.record_default(name(context.default_quorum().as_ref())).await;
    if context.default_quorum() != *wanted {
        tokio::time::sleep(SETTLED).await;
    }
    while context.default_quorum() != *wanted {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if held_elsewhere(context, store).is_some() || !has_larger_tokens(leader).await {
            continue;
        }
        // The write lock excludes grants of locks without a quorum of their own.
        let _nothing_granted = leader.granting_by_default.write().await;
        if held_elsewhere(context, store).is_none() && is_free(context).await {
            term.record_default(name(wanted.as_ref())).await;
            tracing::info!(quorum = wanted.as_ref().map(ToString::to_string), "this default quorum is in force now");
            context.put_default_in_force(wanted.clone());
            peers.index.of_quorum(&None).into_iter().for_each(|lock| peers.request_reconcile(lock));
        }
    }
    std::future::pending().await
}

/// The record of a default quorum in the Lease.
fn name(quorum: Option<&ObjectRef<RedisQuorum>>) -> String {
    quorum.map(quorum_name).unwrap_or_default()
}

/// The default quorum of a record.
fn reference(record: &str) -> Option<ObjectRef<RedisQuorum>> {
    record.split_once('/').map(|(namespace, name)| ObjectRef::new(name).within(namespace))
}

/// Whether the API server has no hold on an earlier default. The watch can be late.
async fn is_free(context: &Context) -> bool {
    match listed_elsewhere(context).await {
        Ok(held) => held.is_none(),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the default quorum stays, because the locks cannot be listed"
            );
            false
        }
    }
}

async fn listed_elsewhere(context: &Context) -> Result<Option<HeldQuorum>, RequestError> {
    let served = context.replica.settings.locks.fields();
    for (_namespace, api) in context.replica.settings.locks.apis::<Guarded<DistributedLock>>(&context.client) {
        let mut pages = pin!(pages(api, served.clone()));
        while let Some(locks) = pages.try_next().await? {
            let locks = locks.into_iter().filter_map(Guarded::object);
            if let Some(earlier) = earlier_default(context, locks.filter_map(|lock| held_by_default(&lock))) {
                return Ok(Some(earlier));
            }
        }
    }
    Ok(None)
}

/// Raises the counters of the wanted default above the tokens of the earlier one.
///
/// A quorum without an admitted member needs no raise, because an admission begins with the present time.
async fn has_larger_tokens(leader: &LeaderContext) -> bool {
    let LeaderContext { context, members, .. } = leader;
    let wanted = context.replica.settings.default_quorum.as_ref();
    let Some(quorum) = wanted.and_then(|wanted| context.quorums.get(wanted)) else { return true };
    if !context.replica.settings.serves(&quorum) {
        return true;
    }
    let Some(session) = location::session(&members.sessions, &HeldQuorum::of(&quorum)) else { return false };
    let earlier = context.default_quorum().and_then(|earlier| context.quorums.get(&earlier));
    session.raise_counters(above_tokens(earlier.as_deref(), context.api_now())).await
}

/// A number above all tokens of the earlier default, which can be ahead of the API server's clock.
fn above_tokens(earlier: Option<&RedisQuorum>, api_now: UnixMillis) -> FencingToken {
    let now = FencingToken::new(api_now.0.saturating_mul(1_000)).unwrap_or_default();
    earlier.map_or(now, |earlier| floor_of(earlier).max(now)).saturating_add(FLOOR_STEP)
}

/// Returns the earlier default on which locks without a quorum of their own are held.
fn held_elsewhere(context: &Context, store: &LockStore) -> Option<HeldQuorum> {
    let locks = context.locks.all();
    let newest = locks.iter().filter_map(|lock| store.get(&LockRef::from_obj(&**lock)));
    earlier_default(context, newest.filter_map(|lock| held_by_default(&lock)))
}

fn earlier_default(context: &Context, held: impl Iterator<Item = HeldQuorum>) -> Option<HeldQuorum> {
    let wanted = context.replica.settings.default_quorum.as_ref();
    first_other(held, wanted, |quorum| location::exists(context, quorum))
}

/// The quorum of a hold, if the lock names no quorum.
fn held_by_default(lock: &DistributedLock) -> Option<HeldQuorum> {
    lock.holder().filter(|_| lock.spec.quorum_ref.is_none())?.quorum.clone()
}

/// The first existing quorum by name that is not the wanted one.
fn first_other(
    held: impl Iterator<Item = HeldQuorum>,
    wanted: Option<&ObjectRef<RedisQuorum>>,
    exists: impl Fn(&HeldQuorum) -> bool,
) -> Option<HeldQuorum> {
    let earlier = held.filter(|quorum| Some(&quorum.reference()) != wanted && exists(quorum));
    earlier.min_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::test_util::parsed;
    use crate::runtime::cache::Cache;
    use crate::runtime::fake_api;
    use crate::runtime::settings::Settings;

    fn quorum(name: &str) -> HeldQuorum {
        HeldQuorum { namespace: "ns".to_owned(), name: name.to_owned(), uid: name.to_owned() }
    }

    #[test]
    fn a_moved_default_waits_for_holds_on_the_earlier_one() {
        let wanted = quorum("new").reference();
        let other = |held: &[&str], gone: &str| {
            let held = held.iter().map(|name| quorum(name));
            first_other(held, Some(&wanted), |quorum| quorum.name != gone).map(|quorum| quorum.name)
        };
        assert_eq!(other(&["new", "old"], ""), Some("old".to_owned()));
        assert_eq!(other(&["new"], ""), None);
        assert_eq!(other(&["old"], "old"), None, "a hold on a deleted quorum runs out");
    }

    #[test]
    fn the_next_default_begins_above_counters_that_are_ahead() {
        let above = |floor: i64| {
            let earlier = parsed(json!({"metadata": {"name": "old"}, "spec": {}, "status": {"tokenFloor": floor}}));
            above_tokens(Some(&earlier), UnixMillis(5)).get()
        };
        assert_eq!(above(9_000), 9_000 + i64::from(FLOOR_STEP));
        assert_eq!(above(4_000), 5_000 + i64::from(FLOOR_STEP));
    }

    #[tokio::test]
    async fn a_hold_that_only_the_api_server_has_keeps_the_default() {
        let is_free_with = async |code: u16, quorum: Value| {
            let settings = Settings { default_quorum: Some(reference("ns/new").unwrap()), ..Settings::default() };
            let lock = json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"key": "k"},
                "status": {"transitions": 1, "holder": {"identity": "a", "quorum": quorum}}});
            let list = json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLockList", "metadata": {}, "items": [lock]});
            let mut context = fake_api::context(move |_request| (code, list.clone()));
            context.replica.settings = settings.into();
            let quorum = json!({"metadata": {"name": "old", "namespace": "ns", "uid": "old"}, "spec": {}});
            context.quorums = Cache::filled(vec![parsed(quorum)]);
            assert!(context.locks.all().is_empty());
            is_free(&context).await
        };
        assert!(!is_free_with(200, json!(quorum("old"))).await);
        assert!(is_free_with(200, json!(quorum("new"))).await);
        assert!(!is_free_with(500, json!(quorum("new"))).await, "an error proves nothing");
    }

    #[test]
    fn a_lock_with_a_quorum_ref_does_not_determine_the_default() {
        let held = |spec: Value| {
            let holder = json!({"identity": "a", "quorum": quorum("old")});
            held_by_default(&parsed(
                json!({"metadata": {"name": "a"}, "spec": spec, "status": {"transitions": 1, "holder": holder}}),
            ))
        };
        assert_eq!(held(json!({"key": "k"})), Some(quorum("old")));
        assert_eq!(held(json!({"key": "k", "quorumRef": {"name": "old"}})), None);
    }
}
