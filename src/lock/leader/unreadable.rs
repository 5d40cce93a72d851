//! The leader's work on locks that it cannot read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::members::Members;
use super::parts::Parts;
use super::store::Store;
use super::{jobs, labels};
use crate::api::{DistributedLock, LOCK_FINALIZER};
use crate::lock::model::events::LockEvent;
use crate::lock::model::unreadable::{Raw, Step, View, decide, ended, ending, told};
use crate::runtime::panics::caught;
use crate::runtime::requests::{RequestError, unless_gone};
use crate::time::Boottime;

/// Between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// So many are worked on side by side, so that one without answers keeps no other waiting.
const SIDE_BY_SIDE: usize = 8;
/// After the API server refused a write.
const AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// What is remembered of these locks, by UID.
type Memory = Mutex<HashMap<String, Remembered>>;

#[derive(Clone, Copy, Debug, Default)]
struct Remembered {
    /// When the object was first seen being deleted.
    deleting: Option<Boottime>,
    /// Nothing is written before.
    next: Option<Boottime>,
}

/// Sees to the locks that cannot be read. Does not end.
pub(super) async fn tend(parts: &Parts) {
    let memory = Memory::default();
    loop {
        let unreadable: Vec<_> = parts.context.locks.unreadable().iter().map(|raw| Raw::unreadable(raw)).collect();
        memory.lock().retain(|uid, _| unreadable.iter().any(|raw| raw.uid() == uid));
        let tended = stream::iter(unreadable);
        tended.for_each_concurrent(SIDE_BY_SIDE, async |raw| tend_guarded(parts, &memory, &raw).await).await;
        tokio::time::sleep(ROUND).await;
    }
}

async fn tend_guarded(parts: &Parts, memory: &Memory, raw: &Raw) {
    if caught(tend_one(parts, memory, raw)).await.is_err() {
        parts.context.metrics.count(&parts.context.metrics.panics, "lock");
        tracing::error!(lock = raw.full_name(), "handling this lock, which cannot be read, panicked");
    }
}

/// Does what is to be done next for this lock.
async fn tend_one(parts: &Parts, memory: &Memory, raw: &Raw) {
    let Parts { members, store, .. } = parts;
    let place = raw.place();
    if place.as_ref().is_some_and(|(quorum, ..)| !parts.context.serves(quorum)) {
        return;
    }
    let now = members.now();
    let remembered = remember(memory, raw, now);
    if remembered.next.is_some_and(|next| next > now) {
        return;
    }
    let done = match decide(raw, &view(members, store, raw, remembered)) {
        Step::End => end(store, raw).await,
        Step::Free => free(store, members, raw).await,
        Step::RemoveFinalizer => remove_finalizer(store, members, raw).await,
        Step::Tell => match told(raw, store.api_now()) {
            Some(patch) => patch_status(store, raw, &patch).await,
            None => Ok(()),
        },
        Step::Wait => {
            // A replica that does not know that the hold ends cannot extend a sealed key.
            if let Some((quorum, key, nonce)) = place.filter(|_| raw.is_ending())
                && let Some(reach) = members.reach(raw.uid(), &quorum, key, nonce)
            {
                let _best_effort = reach.seal(Duration::ZERO).await;
            }
            Ok(())
        }
    };
    if let Err(error) = done {
        failed(memory, raw, now, &error);
    }
}

fn remember(memory: &Memory, raw: &Raw, now: Boottime) -> Remembered {
    let mut memory = memory.lock();
    let remembered = memory.entry(raw.uid().to_owned()).or_default();
    if raw.metadata.deletion_timestamp.is_some() {
        remembered.deleting = remembered.deleting.or(Some(now));
    }
    *remembered
}

/// The watch shows another version in a moment, or the end of the object. What was refused is tried again later.
fn failed(memory: &Memory, raw: &Raw, now: Boottime, error: &RequestError) {
    if matches!(error, RequestError::Conflict | RequestError::Gone) {
        return;
    }
    tracing::warn!(
        lock = raw.full_name(),
        error = error as &dyn std::error::Error,
        "this lock cannot be read, and what is to become of it could not be written"
    );
    if matches!(error, RequestError::Refused(_)) {
        memory.lock().entry(raw.uid().to_owned()).or_default().next = Some(now + AFTER_REFUSAL);
    }
}

fn view(members: &Members, store: &Store, raw: &Raw, remembered: Remembered) -> View {
    let now = members.now();
    let nonce = raw.is_held().then(|| raw.text("/status/holder/nonce").map(str::to_owned));
    let sighting = members.holds.sightings.see_parts(raw.uid(), nonce, raw.is_ending(), now);
    View {
        delay: members.longest_rejoin_delay().max(raw.rejoin_delay().unwrap_or_default()),
        ending: sighting.and_then(|sighting| sighting.ending),
        deleting: remembered.deleting,
        told: told(raw, store.api_now()).is_none(),
        now,
    }
}

async fn end(store: &Store, raw: &Raw) -> Result<(), RequestError> {
    jobs::stop_raw(store.client(), raw).await?;
    patch_status(store, raw, &ending(raw, store.api_now())).await?;
    tracing::warn!(lock = raw.full_name(), why = %raw.trouble, "its hold is not renewed any more");
    emit(store, raw, LockEvent::Breaking { why: raw.trouble.to_string() });
    Ok(())
}

/// No status names the holder when this returns.
async fn free(store: &Store, members: &Members, raw: &Raw) -> Result<(), RequestError> {
    clear_label(store, raw).await?;
    jobs::stop_raw(store.client(), raw).await?;
    patch_status(store, raw, &ended(raw, store.api_now())).await?;
    members.holds.forget(raw.uid());
    store.count_end(raw.trouble.held());
    tracing::warn!(lock = raw.full_name(), why = %raw.trouble, "its hold has ended");
    emit(store, raw, LockEvent::Broken { why: raw.trouble.to_string() });
    Ok(())
}

async fn remove_finalizer(store: &Store, members: &Members, raw: &Raw) -> Result<(), RequestError> {
    clear_label(store, raw).await?;
    let left: Vec<_> = raw.metadata.finalizers.iter().flatten().filter(|name| *name != LOCK_FINALIZER).collect();
    let version = &raw.metadata.resource_version;
    let patch =
        Patch::Merge(json!({"metadata": {"uid": raw.metadata.uid, "resourceVersion": version, "finalizers": left}}));
    let (api, name) = raw_api(store, raw);
    unless_gone(store.write(&raw.metadata, api.patch(name, &PatchParams::default(), &patch)).await)?;
    members.holds.forget(raw.uid());
    tracing::info!(lock = raw.full_name(), "a lock that cannot be read has no finalizer of the operator any more");
    Ok(())
}

async fn clear_label(store: &Store, raw: &Raw) -> Result<(), RequestError> {
    let name = (raw.metadata.namespace.clone().unwrap_or_default(), raw.metadata.name.clone().unwrap_or_default());
    labels::clear(store.client(), &name, None).await
}

async fn patch_status(store: &Store, raw: &Raw, patch: &Value) -> Result<(), RequestError> {
    let (api, name) = raw_api(store, raw);
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    store.write(&raw.metadata, api.patch_status(name, &parameters, &patch)).await.map(drop)
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
