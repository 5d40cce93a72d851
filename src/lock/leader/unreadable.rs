//! The leader's work on locks that it cannot read, and on those whose handling fails again and again.

use std::{collections::HashMap, time::Duration};

use futures::{StreamExt, stream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use parking_lot::MutexGuard;
use serde_json::{Value, json};

use super::{
    labels,
    locks::{Locks, Memory},
    release::Reach,
};
use crate::{
    api::{DistributedLock, LOCK_FINALIZER, LetGo},
    lock::{
        model::{
            decide::{Sealing, seal_retry},
            events::LockEvent,
            orphans::{self, EVERY_ATTEMPT},
            unreadable::{LOOK_AGAIN, Place, Raw, Step, View, decide, ended, ending, locate, told},
        },
        replica::{location, writes::WriteError},
    },
    quorum::model::effective,
    runtime::panics::caught,
};

/// Between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// So many are worked on side by side, so that one without answers keeps no other waiting.
const SIDE_BY_SIDE: usize = 8;
/// After a write that failed, and after a panic.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// After the API server refused one.
const AFTER_REFUSAL: Duration = Duration::from_secs(30);

/// What was not looked at for so long is gone, or handled like others.
const MEMORY: Duration = Duration::from_secs(900);

impl Locks {
    /// Sees to the locks that cannot be read. Does not end.
    pub(super) async fn tend_unreadable(&self) {
        loop {
            let unreadable: Vec<_> = self.context.locks.unreadable().iter().map(|raw| Raw::unreadable(raw)).collect();
            let now = self.context.clock.boottime();
            self.remembered().retain(|_, known| known.seen.is_some_and(|seen| now.since(seen) < MEMORY));
            let due = unreadable.into_iter().filter(|raw| self.is_due(raw));
            stream::iter(due).for_each_concurrent(SIDE_BY_SIDE, async |raw| self.tend_guarded(&raw).await).await;
            tokio::time::sleep(ROUND).await;
        }
    }

    async fn tend_guarded(&self, raw: &Raw) {
        let pause = match caught(self.tend_raw(raw)).await {
            Ok((pause, _)) => pause,
            Err(_panic) => {
                self.context.metrics.count(&self.context.metrics.panics, "lock");
                tracing::error!(lock = raw.full_name(), "handling this lock, which cannot be read, panicked");
                AFTER_FAILURE
            }
        };
        let next = self.context.clock.boottime() + pause;
        let mut memory = self.remembered();
        let known = memory.entry(raw.uid().to_owned()).or_default();
        (known.next, known.version) = (Some(next), raw.metadata.resource_version.clone());
    }

    fn is_due(&self, raw: &Raw) -> bool {
        let now = self.context.clock.boottime();
        let memory = self.remembered();
        let known = memory.get(raw.uid()).filter(|known| known.version == raw.metadata.resource_version);
        known.and_then(|known| known.next).is_none_or(|next| next <= now)
    }

    /// Does what is to be done next for this lock. When to look again, and the version of the object if one was written.
    pub(super) async fn tend_raw(&self, raw: &Raw) -> (Duration, Option<String>) {
        match self.next_step(raw).await {
            Ok(done) => done,
            // The watch shows the other version in a moment, or the end.
            Err(WriteError::Conflict | WriteError::Gone) => (AFTER_FAILURE, None),
            Err(error) => {
                let refused = matches!(error, WriteError::Refused(_));
                tracing::warn!(
                    lock = raw.full_name(),
                    error = &error as &dyn std::error::Error,
                    "this lock cannot be handled, and what is to become of it could not be written"
                );
                if refused {
                    let mut memory = self.remembered();
                    memory.entry(raw.uid().to_owned()).or_default().refused = raw.metadata.resource_version.clone();
                }
                (if refused { AFTER_REFUSAL } else { AFTER_FAILURE }, None)
            }
        }
    }

    async fn next_step(&self, raw: &Raw) -> Result<(Duration, Option<String>), WriteError> {
        let place = locate(raw, &self.context.quorums.all());
        if place.as_ref().is_some_and(|place| !self.context.serves(&place.quorum)) {
            return Ok((LOOK_AGAIN, None));
        }
        let view = self.raw_view(raw, place.as_ref());
        let now = self.context.api_now();
        let written = match decide(raw, &view) {
            Step::Wait(pause) => return Ok((pause, None)),
            Step::Seal => {
                self.seal_raw(raw, place.as_ref()).await;
                return Ok((seal_retry(), None));
            }
            Step::End => {
                let written = self.patch_status(raw, &ending(raw, now)).await?;
                tracing::warn!(lock = raw.full_name(), why = %raw.trouble, "its hold is not renewed any more");
                self.raw_event(raw, LockEvent::Breaking { why: raw.trouble.to_string() });
                written
            }
            Step::Free { confirmed } => self.free_raw(raw, place.as_ref().filter(|_| !confirmed)).await?,
            Step::RemoveFinalizer => self.let_go_raw(raw).await?,
            Step::Tell => match told(raw, now) {
                Some(patch) => self.patch_status(raw, &patch).await?,
                None => return Ok((LOOK_AGAIN, None)),
            },
        };
        Ok((Duration::ZERO, written))
    }

    fn raw_view(&self, raw: &Raw, place: Option<&Place>) -> View {
        let (uid, now) = (raw.uid(), self.context.clock.boottime());
        let sighting = self.holds.sightings.see_parts(
            uid,
            raw.is_held().then(|| raw.text("/status/holder/nonce").map(str::to_owned)),
            raw.is_ending(),
            now,
        );
        let mut memory = self.remembered();
        let known = memory.entry(uid.to_owned()).or_default();
        known.seen = Some(now);
        if raw.metadata.deletion_timestamp.is_some() {
            known.deleting = Some(known.deleting.unwrap_or(now));
        }
        let exact = place.filter(|place| place.exact);
        View {
            delay: self.delay(place),
            reachable: place
                .is_some_and(|place| !place.keys.is_empty() && location::exists(&self.context, &place.quorum)),
            sealing: exact.map_or(Sealing::Unconfirmed, |place| self.sealing_of(uid, place.nonce)),
            ending: sighting.and_then(|sighting| sighting.ending),
            deleting: known.deleting,
            refused: known.refused.is_some() && known.refused == raw.metadata.resource_version,
            told: told(raw, self.context.api_now()).is_none(),
            now,
        }
    }

    /// For how long the members may remember the hold: what its record says, or the longest that any quorum here waits for.
    fn delay(&self, place: Option<&Place>) -> Duration {
        let recorded = place.and_then(|place| place.recorded).map(|delay| delay.get());
        if let (Some(recorded), true) = (recorded, place.is_some_and(|place| place.exact)) {
            return recorded;
        }
        let quorums = self.context.quorums.all();
        let longest = quorums.iter().map(|quorum| effective::current(quorum).rejoin_delay()).max();
        let assumed = || effective::Effective::wanted(&crate::api::RedisQuorum::default()).rejoin_delay();
        longest.unwrap_or_else(assumed).max(recorded.unwrap_or_default())
    }

    async fn seal_raw(&self, raw: &Raw, place: Option<&Place>) {
        let Some(place) = place else { return };
        if let (true, Some(nonce), Some(key)) = (place.exact, place.nonce, place.keys.first()) {
            if let Some(reach) = self.reach(raw.uid(), &place.quorum, key.clone(), nonce) {
                match reach.seal(Duration::ZERO).await {
                    Sealing::Unconfirmed => {}
                    sealing => self.mark_sealed(raw.uid(), Some(nonce), sealing),
                }
            }
            return;
        }
        for key in &place.keys {
            self.seal_every(raw.uid(), &place.quorum, key).await;
        }
    }

    /// No status names the holder when this returns.
    async fn free_raw(&self, raw: &Raw, unconfirmed: Option<&Place>) -> Result<Option<String>, WriteError> {
        self.clear_label(raw).await?;
        let let_go = unconfirmed.and_then(|place| {
            Some(LetGo {
                nonce: place.nonce.map_or_else(|| EVERY_ATTEMPT.to_owned(), |nonce| nonce.to_string()),
                quorum: place.quorum.clone(),
                key: place.keys.first()?.as_str().to_owned(),
            })
        });
        let written = self.patch_status(raw, &ended(raw, let_go.as_ref(), self.context.api_now())).await?;
        self.holds.forget(raw.uid());
        self.context.metrics.count(&self.context.metrics.ended, raw.trouble.held().as_str());
        tracing::warn!(lock = raw.full_name(), why = %raw.trouble, "its hold has ended");
        self.raw_event(raw, LockEvent::Broken { why: raw.trouble.to_string() });
        Ok(written)
    }

    async fn let_go_raw(&self, raw: &Raw) -> Result<Option<String>, WriteError> {
        self.clear_label(raw).await?;
        let left: Vec<_> =
            raw.metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != LOCK_FINALIZER).collect();
        let version = &raw.metadata.resource_version;
        let patch = json!({"metadata": {"uid": raw.metadata.uid, "resourceVersion": version, "finalizers": left}});
        let (api, name) = self.raw_api(raw);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        match self.written.write(&raw.metadata, api.patch(name, &parameters, &patch)).await {
            Ok(_) | Err(WriteError::Gone) => {}
            Err(error) => return Err(error),
        }
        self.holds.forget(raw.uid());
        tracing::info!(lock = raw.full_name(), "a lock that cannot be handled was let go");
        Ok(None)
    }

    async fn clear_label(&self, raw: &Raw) -> Result<(), WriteError> {
        let name = |part: &Option<String>| part.clone().unwrap_or_default();
        let (namespace, name) = (name(&raw.metadata.namespace), name(&raw.metadata.name));
        labels::clear(&self.context.client, &namespace, &name, None).await
    }

    async fn patch_status(&self, raw: &Raw, patch: &Value) -> Result<Option<String>, WriteError> {
        let (api, name) = self.raw_api(raw);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        let write = api.patch_status(name, &parameters, &patch);
        Ok(self.written.write(&raw.metadata, write).await?.metadata.resource_version)
    }

    fn raw_api<'a>(&self, raw: &'a Raw) -> (Api<DynamicObject>, &'a str) {
        let kind = ApiResource::erase::<DistributedLock>(&());
        let namespace = raw.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::namespaced_with(self.context.client.clone(), namespace, &kind);
        (api, raw.metadata.name.as_deref().unwrap_or_default())
    }

    fn raw_event(&self, raw: &Raw, event: LockEvent) {
        let object = DistributedLock { metadata: raw.metadata.clone(), ..DistributedLock::default() };
        let context = self.context.clone();
        tokio::spawn(async move { context.event(&object, event.kind(), event.reason(), event.to_string()).await });
    }

    /// Seals whatever attempt of this lock has the key: which one its status means nobody can tell. What the members said.
    pub(super) async fn seal_every(
        &self,
        uid: &str,
        quorum: &crate::api::HeldQuorum,
        key: &crate::redlock::LockKey,
    ) -> Sealing {
        let session = location::session(&self.sessions, quorum);
        let Some((session, signer)) = session.and_then(|session| Some((session.clone(), session.signer()?))) else {
            return Sealing::Unconfirmed;
        };
        let electorate = session.electorate();
        let seen = session.redlock().inspect(&electorate, key).await;
        let mut sealing =
            if orphans::is_told_by_a_majority(&electorate, &seen) { Sealing::Gone } else { Sealing::Unconfirmed };
        for nonce in orphans::attempts(uid, &signer, &seen) {
            let value = signer.value(uid, &nonce);
            let reach = Reach { session: session.clone(), key: key.clone(), signer: signer.clone(), value };
            sealing = later(sealing, reach.seal(Duration::ZERO).await);
        }
        sealing
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.unreadable.lock()
    }
}

/// What is known of several keys together.
fn later(one: Sealing, other: Sealing) -> Sealing {
    match (one, other) {
        (Sealing::Unconfirmed, _) | (_, Sealing::Unconfirmed) => Sealing::Unconfirmed,
        (Sealing::RunsOut(one), Sealing::RunsOut(other)) => Sealing::RunsOut(one.max(other)),
        (Sealing::Gone, runs_out) | (runs_out, Sealing::Gone) => runs_out,
    }
}
