//! Access of one quorum's controller to the API server: the RedisQuorum, its Events, and other objects by name.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::error::{Error, Result};
use crate::api::requests::{self, Namespaced, RequestError, request};
use crate::api::{MilliTime, QUORUM_FINALIZER, RedisQuorum, RedisQuorumStatus};
use crate::quorum::model::events::QuorumEvent;
use crate::quorum::session::QuorumSession;
use crate::runtime::context::Context;
use crate::time::{Monotonic, UnixMillis};

/// Maximum number of Events that the operator reads for one StatefulSet.
const MOST_EVENTS: u32 = 50;

/// The API server, as the controller of one quorum uses it.
pub(super) struct Cluster<'a> {
    context: &'a Context,
    session: &'a QuorumSession,
    quorums: Api<RedisQuorum>,
}

/// The patch that adds or removes the finalizer. `None` if nothing changes.
pub(super) fn finalizer_patch(quorum: &RedisQuorum, held: bool) -> Option<Patch<Value>> {
    let mut finalizers = quorum.finalizers().to_vec();
    if finalizers.iter().any(|finalizer| finalizer == QUORUM_FINALIZER) == held {
        return None;
    }
    finalizers.retain(|finalizer| finalizer != QUORUM_FINALIZER);
    finalizers.extend(held.then(|| QUORUM_FINALIZER.to_owned()));
    // The resourceVersion protects the finalizers of other controllers.
    let metadata = json!({"finalizers": finalizers, "resourceVersion": quorum.resource_version()});
    Some(Patch::Merge(json!({"metadata": metadata})))
}

impl<'a> Cluster<'a> {
    pub(super) fn new(context: &'a Context, session: &'a QuorumSession) -> Self {
        let namespace = session.reference().namespace.clone().unwrap_or_default();
        Self { context, session, quorums: Api::namespaced(context.client.clone(), &namespace) }
    }

    pub(super) fn api<K: Namespaced>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.context.client.clone(), namespace)
    }

    /// An object, if there is one of this name.
    pub(super) async fn get<K: Namespaced>(&self, namespace: &str, name: &str) -> Result<Option<K>> {
        Ok(request(self.api::<K>(namespace).get_opt(name)).await?)
    }

    /// Deletes exactly this object, and returns whether it existed.
    pub(super) async fn delete<K: Namespaced>(&self, object: &K) -> Result<bool> {
        Ok(requests::delete(&self.context.client, object).await?)
    }

    /// Checks whether the API server would delete exactly this object, and returns whether it exists.
    pub(super) async fn check_deletion<K: Namespaced>(&self, object: &K) -> Result<bool> {
        Ok(requests::check_deletion(&self.context.client, object).await?)
    }

    /// The newest report of the StatefulSet controller why it could not create a pod.
    ///
    /// `None` if it reported no failure, or if the API server does not answer.
    pub(super) async fn pod_not_created(&self, namespace: &str, set: &str) -> Option<String> {
        let fields = format!("regarding.kind=StatefulSet,regarding.name={set},reason=FailedCreate");
        let api: Api<Event> = self.api(namespace);
        let found = request(api.list(&ListParams::default().fields(&fields).limit(MOST_EVENTS))).await;
        let events = found.inspect_err(|error| tracing::debug!(%error, set, "events not read")).ok()?.items;
        events.into_iter().max_by_key(|event| event.deprecated_last_timestamp.clone())?.note
    }

    /// Publishes an Event about the quorum.
    pub(super) async fn publish_event(&self, event: QuorumEvent) {
        tracing::info!(quorum = %self.session.reference(), event = event.means().0, %event, "published an Event");
        let quorum = self.session.quorum();
        let related = match &event {
            QuorumEvent::Mended { kind, name } => {
                let (kind, name) = (Some(kind.clone()), Some(name.clone()));
                Some(ObjectReference { kind, name, namespace: quorum.namespace(), ..ObjectReference::default() })
            }
            _ => None,
        };
        self.context.event(quorum.as_ref(), event.means(), event.to_string(), related).await;
    }

    /// The current state of the quorum at the API server.
    pub(super) async fn read(&self) -> Result<Arc<RedisQuorum>> {
        let found = request(self.quorums.get_opt(&self.session.reference().name)).await?;
        let found = found.filter(|quorum| quorum.uid().as_deref() == Some(self.session.uid())).ok_or(Error::Gone)?;
        let found = Arc::new(found);
        self.session.replace_with_server_state(found.clone());
        Ok(found)
    }

    /// Writes a change of the status that was decided on this state of it.
    ///
    /// It writes nothing if the object has changed since.
    ///
    /// The leader writes a status in four places: here, in [`super::quota`] for quorums without a session, in the session for the token
    /// floor, and in `operator::unreadable`.
    pub(super) async fn replace(&self, base: &RedisQuorum, change: impl FnOnce(&mut RedisQuorumStatus)) -> Result<()> {
        let mut next = base.clone();
        let status = next.status.get_or_insert_default();
        change(status);
        status.operator = Some(self.context.replica.settings.operator.clone());
        if next.status == base.status {
            return Ok(());
        }
        self.written(self.quorums.replace_status(&base.name_any(), &PostParams::default(), &next)).await
    }

    /// Adds or removes the finalizer. With it the quorum stays until its members are closed.
    pub(super) async fn set_finalizer(&self, held: bool) -> Result<()> {
        let quorum = self.session.quorum();
        let Some(patch) = finalizer_patch(&quorum, held) else { return Ok(()) };
        self.written(self.quorums.patch(&quorum.name_any(), &PatchParams::default(), &patch)).await
    }

    async fn written(&self, call: impl Future<Output = kube::Result<RedisQuorum>>) -> Result<()> {
        let written = request(call).await;
        if matches!(written, Err(RequestError::Conflict)) {
            // The state in memory is old. After a reading, the next attempt starts from the newest state.
            self.read().await?;
        }
        self.session.update(Arc::new(written?));
        Ok(())
    }

    pub(super) fn now(&self) -> Monotonic {
        self.context.clock.monotonic()
    }

    /// The end of a pause that begins now.
    pub(super) fn after(&self, pause: Duration) -> Monotonic {
        self.now() + pause
    }

    pub(super) fn api_now(&self) -> UnixMillis {
        self.context.api_now()
    }

    /// The API server's time. Every leader dates the transitions of conditions with it.
    pub(super) fn api_time(&self) -> Timestamp {
        Timestamp::from_millisecond(self.context.api_now().0).unwrap_or_default()
    }

    /// A moment in the API server's time, for users.
    pub(super) fn wall_time(&self, at: Monotonic, now: Monotonic) -> Option<MilliTime> {
        let left = i64::try_from(at.since(now).as_millis()).ok()?;
        MilliTime::from_millis(self.context.api_now().0.saturating_add(left))
    }
}
