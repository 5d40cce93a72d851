//! The leader's work on locks that it cannot read, and on those whose handling fails again and again.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::members::Members;
use super::memory::{Look, Looks, Memory};
use super::parts::Parts;
use super::store::Store;
use super::{jobs, labels, seal};
use crate::api::{DistributedLock, LOCK_FINALIZER, LetGo};
use crate::lock::model::decide::{Sealing, seal_retry};
use crate::lock::model::events::LockEvent;
use crate::lock::model::orphans::EVERY_ATTEMPT;
use crate::lock::model::unreadable::{LOOK_AGAIN, Place, Raw, Step, View, decide, ended, ending, locate, told};
use crate::runtime::panics::caught;
use crate::runtime::requests::{RequestError, unless_gone};

/// Between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// So many are worked on side by side, so that one without answers keeps no other waiting.
const SIDE_BY_SIDE: usize = 8;
/// After a write that failed, and after a panic.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// After the API server refused one.
const AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// Sees to the locks that cannot be read. Does not end.
pub(super) async fn tend(parts: &Parts) {
    loop {
        let now = parts.members.now();
        let unreadable: Vec<_> = parts.context.locks.unreadable().iter().map(|raw| Raw::unreadable(raw)).collect();
        parts.looks.forget_old(now);
        let due = unreadable.into_iter().filter(|raw| parts.looks.is_due(raw, parts.members.now()));
        stream::iter(due).for_each_concurrent(SIDE_BY_SIDE, async |raw| tend_guarded(parts, &raw).await).await;
        tokio::time::sleep(ROUND).await;
    }
}

async fn tend_guarded(parts: &Parts, raw: &Raw) {
    let pause = match caught(tend_one(parts, raw)).await {
        Ok((pause, _)) => pause,
        Err(_panic) => {
            parts.context.metrics.count(&parts.context.metrics.panics, "lock");
            tracing::error!(lock = raw.full_name(), "handling this lock, which cannot be read, panicked");
            AFTER_FAILURE
        }
    };
    let next = parts.members.now() + pause;
    parts.looks.change(raw, |look| {
        (look.next, look.version) = (Some(next), raw.metadata.resource_version.clone());
    });
}

/// Does what is to be done next for this lock. When to look again, and the version of the object if one was written.
pub(super) async fn tend_one(parts: &Parts, raw: &Raw) -> (Duration, Option<String>) {
    let place = locate(raw, &parts.context.quorums.all());
    if place.as_ref().is_some_and(|place| !parts.context.serves(&place.quorum)) {
        return (LOOK_AGAIN, None);
    }
    let Parts { members, memory, store, .. } = parts;
    let look = parts.looks.see(raw, members.now());
    let is_told = told(raw, store.api_now()).is_none();
    let done = match decide(raw, &view(members, memory, &look, raw, place.as_ref(), is_told)) {
        Step::Wait(pause) => return (pause, None),
        Step::Seal => {
            seal_keys(members, memory, raw, place.as_ref()).await;
            return (seal_retry(), None);
        }
        Step::End => end(store, raw).await,
        Step::Free { confirmed } => free(store, members, raw, place.as_ref().filter(|_| !confirmed)).await,
        Step::RemoveFinalizer => remove_finalizer(store, members, raw).await,
        Step::Tell => match told(raw, store.api_now()) {
            Some(patch) => patch_status(store, raw, &patch).await,
            None => return (LOOK_AGAIN, None),
        },
    };
    done.map_or_else(|error| (failed(&parts.looks, raw, &error), None), |written| (Duration::ZERO, written))
}

/// When to try again after a write that failed.
fn failed(looks: &Looks, raw: &Raw, error: &RequestError) -> Duration {
    // The watch shows the other version in a moment, or the end.
    if matches!(error, RequestError::Conflict | RequestError::Gone) {
        return AFTER_FAILURE;
    }
    tracing::warn!(
        lock = raw.full_name(),
        error = error as &dyn std::error::Error,
        "this lock cannot be handled, and what is to become of it could not be written"
    );
    if !matches!(error, RequestError::Refused(_)) {
        return AFTER_FAILURE;
    }
    looks.change(raw, |look| look.refused = raw.metadata.resource_version.clone());
    AFTER_REFUSAL
}

fn view(members: &Members, memory: &Memory, look: &Look, raw: &Raw, place: Option<&Place>, told: bool) -> View {
    let (uid, now) = (raw.uid(), members.now());
    let nonce = raw.is_held().then(|| raw.text("/status/holder/nonce").map(str::to_owned));
    let sighting = members.holds.sightings.see_parts(uid, nonce, raw.is_ending(), now);
    let exact = place.filter(|place| place.exact);
    View {
        delay: longest_memory(members, place),
        reachable: place.is_some_and(|place| !place.keys.is_empty() && members.exists(&place.quorum)),
        sealing: exact.map_or(Sealing::Unconfirmed, |place| memory.sealing_of(uid, place.nonce)),
        ending: sighting.and_then(|sighting| sighting.ending),
        deleting: look.deleting,
        refused: look.refused.is_some() && look.refused == raw.metadata.resource_version,
        told,
        now,
    }
}

/// For how long the members may remember the hold.
///
/// It is what the record of the hold says, or the longest time that any quorum here waits for.
fn longest_memory(members: &Members, place: Option<&Place>) -> Duration {
    let recorded = place.and_then(|place| place.recorded).map(|delay| delay.get());
    if let (Some(recorded), true) = (recorded, place.is_some_and(|place| place.exact)) {
        return recorded;
    }
    members.longest_rejoin_delay().max(recorded.unwrap_or_default())
}

async fn seal_keys(members: &Members, memory: &Memory, raw: &Raw, place: Option<&Place>) {
    let Some(place) = place else { return };
    if let (true, Some(nonce), Some(key)) = (place.exact, place.nonce, place.keys.first()) {
        match seal::attempt(members, raw.uid(), &place.quorum, key.clone(), Some(nonce)).await {
            Sealing::Unconfirmed => {}
            sealing => memory.mark_sealed(raw.uid(), Some(nonce), sealing),
        }
        return;
    }
    for key in &place.keys {
        seal::every(members, raw.uid(), &place.quorum, key).await;
    }
}

async fn end(store: &Store, raw: &Raw) -> Result<Option<String>, RequestError> {
    jobs::stop_raw(store.client(), raw).await?;
    let written = patch_status(store, raw, &ending(raw, store.api_now())).await?;
    tracing::warn!(lock = raw.full_name(), why = %raw.trouble, "its hold is not renewed any more");
    emit(store, raw, LockEvent::Breaking { why: raw.trouble.to_string() });
    Ok(written)
}

/// No status names the holder when this returns.
async fn free(
    store: &Store,
    members: &Members,
    raw: &Raw,
    unconfirmed: Option<&Place>,
) -> Result<Option<String>, RequestError> {
    clear_label(store, raw).await?;
    jobs::stop_raw(store.client(), raw).await?;
    let let_go = unconfirmed.and_then(|place| {
        Some(LetGo {
            nonce: place.nonce.map_or_else(|| EVERY_ATTEMPT.to_owned(), |nonce| nonce.to_string()),
            quorum: place.quorum.clone(),
            key: place.keys.first()?.as_str().to_owned(),
        })
    });
    let written = patch_status(store, raw, &ended(raw, let_go.as_ref(), store.api_now())).await?;
    members.holds.forget(raw.uid());
    store.count_end(raw.trouble.held());
    tracing::warn!(lock = raw.full_name(), why = %raw.trouble, "its hold has ended");
    emit(store, raw, LockEvent::Broken { why: raw.trouble.to_string() });
    Ok(written)
}

async fn remove_finalizer(store: &Store, members: &Members, raw: &Raw) -> Result<Option<String>, RequestError> {
    clear_label(store, raw).await?;
    let left: Vec<_> = raw.metadata.finalizers.iter().flatten().filter(|name| *name != LOCK_FINALIZER).collect();
    let version = &raw.metadata.resource_version;
    let patch =
        Patch::Merge(json!({"metadata": {"uid": raw.metadata.uid, "resourceVersion": version, "finalizers": left}}));
    let (api, name) = raw_api(store, raw);
    unless_gone(store.write(&raw.metadata, api.patch(name, &PatchParams::default(), &patch)).await)?;
    members.holds.forget(raw.uid());
    tracing::info!(lock = raw.full_name(), "a lock that cannot be handled was let go");
    Ok(None)
}

async fn clear_label(store: &Store, raw: &Raw) -> Result<(), RequestError> {
    let name = (raw.metadata.namespace.clone().unwrap_or_default(), raw.metadata.name.clone().unwrap_or_default());
    labels::clear(store.client(), &name, None).await
}

async fn patch_status(store: &Store, raw: &Raw, patch: &Value) -> Result<Option<String>, RequestError> {
    let (api, name) = raw_api(store, raw);
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let write = api.patch_status(name, &parameters, &patch);
    Ok(store.write(&raw.metadata, write).await?.metadata.resource_version)
}

fn raw_api<'a>(store: &Store, raw: &'a Raw) -> (Api<DynamicObject>, &'a str) {
    let kind = ApiResource::erase::<DistributedLock>(&());
    let namespace = raw.metadata.namespace.as_deref().unwrap_or_default();
    let api = Api::namespaced_with(store.client().clone(), namespace, &kind);
    (api, raw.metadata.name.as_deref().unwrap_or_default())
}

fn emit(store: &Store, raw: &Raw, event: LockEvent) {
    let object = DistributedLock { metadata: raw.metadata.clone(), ..DistributedLock::default() };
    store.event(&Arc::new(object), event);
}
