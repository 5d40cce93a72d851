//! Keeps one session for each served quorum in the caches.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::broadcast;
use tokio::time::interval;
use tokio_stream::wrappers::BroadcastStream;

use super::{Announcements, QuorumSession};
use crate::api::{QUORUM_LABEL, RedisQuorum};
use crate::quorum::model::facts::Nodes;
use crate::runtime::cache::Change;
use crate::runtime::context::Context;
use crate::runtime::panics::{AFTER_PANIC, caught_in};
use crate::time::Monotonic;

/// Maximum number of announcements that a slow reader can miss.
///
/// A reader that misses more checks all quorums.
const CAPACITY: usize = 1024;
/// The pause between two checks for panicked sessions, and for sessions whose pause has ended.
const ROUND: Duration = Duration::from_millis(250);

/// The sessions of this replica. A clone is cheap.
#[derive(Clone)]
pub struct Sessions(Arc<Registry>);

struct Registry {
    context: Context,
    by_quorum: Mutex<HashMap<ObjectRef<RedisQuorum>, Arc<QuorumSession>>>,
    nodes: Mutex<Nodes>,
    /// The ends of the pauses of panicked sessions.
    paused: Mutex<HashMap<ObjectRef<RedisQuorum>, Monotonic>>,
    announcements: Announcements,
}

impl Sessions {
    /// Starts without sessions, and returns the task that follows the caches.
    ///
    /// The task runs on every replica until the result and all its clones are dropped.
    pub fn start(context: Context) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (announcements, _) = broadcast::channel(CAPACITY);
        let (by_quorum, nodes, paused) = (Mutex::default(), Mutex::default(), Mutex::default());
        let sessions = Self(Arc::new(Registry { context, by_quorum, nodes, paused, announcements }));
        let task = follow(sessions.0.context.clone(), Arc::downgrade(&sessions.0));
        (sessions, task)
    }

    /// The session of a quorum, if the quorum is known.
    pub fn get(&self, quorum: &ObjectRef<RedisQuorum>) -> Option<Arc<QuorumSession>> {
        self.0.by_quorum.lock().get(quorum).cloned()
    }

    /// All sessions.
    pub fn all(&self) -> Vec<Arc<QuorumSession>> {
        self.0.by_quorum.lock().values().cloned().collect()
    }

    /// Quorums whose session, members or status changed. A reader that falls behind gets every quorum.
    pub fn changed(&self) -> impl Stream<Item = ObjectRef<RedisQuorum>> + Send + 'static {
        let registry = Arc::clone(&self.0);
        BroadcastStream::new(self.0.announcements.subscribe()).flat_map(move |news| {
            futures::stream::iter(match news {
                Ok(quorum) => vec![quorum],
                Err(_lagged) => registry.by_quorum.lock().keys().cloned().collect(),
            })
        })
    }

    /// Locks the history of the nodes. The caller must release the lock soon.
    pub fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.0.nodes.lock()
    }

    /// Calls a session. Its panic ends that session only.
    fn deliver(&self, session: &QuorumSession, deliver: impl FnOnce(&QuorumSession)) {
        if caught_in(|| deliver(session)).is_err() {
            self.pause_session(session.reference());
        }
    }

    /// Ends a session that panicked. Its quorum counts as unreachable until the session starts again.
    fn pause_session(&self, quorum: &ObjectRef<RedisQuorum>) {
        let metrics = &self.0.context.metrics;
        metrics.count(&metrics.panics, "session");
        drop(self.0.by_quorum.lock().remove(quorum));
        let now = self.0.context.clock.monotonic();
        let mut paused = self.0.paused.lock();
        paused.retain(|_, until| now < *until);
        paused.insert(quorum.clone(), now + AFTER_PANIC);
        drop(paused);
        tracing::error!(%quorum, pause = ?AFTER_PANIC, "the session of this quorum panicked, and starts again after a pause");
        let _ = self.0.announcements.send(quorum.clone());
    }

    /// Ends the sessions that panicked, and starts the missing ones.
    fn restart_missing(&self) {
        for session in self.all().iter().filter(|session| session.is_broken()) {
            self.pause_session(session.reference());
        }
        for quorum in self.0.context.quorums.all() {
            // Earlier there was possibly no room for it, or its session panicked and pauses.
            let waits = self.get(&ObjectRef::from_obj(&*quorum)).is_none();
            if waits && self.0.context.replica.settings.serves(&quorum) && !self.0.context.has_no_room(&quorum) {
                self.on_quorum(&Change::Applied(quorum));
            }
        }
    }

    /// Starts the session of a quorum that has none.
    fn start_session(&self, reference: &ObjectRef<RedisQuorum>, quorum: &Arc<RedisQuorum>) {
        if self.0.paused.lock().get(reference).is_some_and(|until| self.0.context.clock.monotonic() < *until) {
            return;
        }
        let started = caught_in(|| QuorumSession::start(&self.0.context, quorum.clone(), self.0.announcements.clone()));
        match started {
            Ok(Some(session)) => drop(self.0.by_quorum.lock().insert(reference.clone(), session)),
            Ok(None) => {}
            Err(_panic) => self.pause_session(reference),
        }
    }

    fn on_quorum(&self, change: &Change<RedisQuorum>) {
        let quorum = change.object();
        let reference = ObjectRef::from_obj(quorum.as_ref());
        let session_of_object = self.get(&reference).filter(|session| Some(session.uid()) == quorum.uid().as_deref());
        match (change, session_of_object) {
            // Another operator serves this quorum. Two operators would repeatedly raise their epochs above each other on its members.
            (Change::Applied(quorum), _) if !self.0.context.replica.settings.serves(quorum) => {}
            (Change::Applied(quorum), Some(session)) => {
                self.deliver(&session, |session| session.update(quorum.clone()))
            }
            // Another UID under the same name is another quorum, with other secrets and other members.
            (Change::Applied(quorum), None) if !self.0.context.has_no_room(quorum) => {
                self.start_session(&reference, quorum)
            }
            (Change::Deleted(_) | Change::Vanished(_), Some(_)) => drop(self.0.by_quorum.lock().remove(&reference)),
            // The quorum waits until there is room for it. Or this is the deletion of an earlier object of that name, or of one whose
            // session pauses.
            (_, None) => {}
        }
        let _ = self.0.announcements.send(reference);
    }

    fn on_pod(&self, change: &Change<Pod>) {
        let pod = change.object();
        let (Some(name), Some(namespace)) = (pod.labels().get(QUORUM_LABEL), pod.namespace()) else { return };
        if let Some(session) = self.get(&ObjectRef::new(name).within(&namespace)) {
            self.deliver(&session, |session| {
                session.place();
                session.shared.announce();
            });
        }
    }

    fn on_node(&self, change: &Change<Node>) {
        let news = match change {
            Change::Applied(node) => self.0.nodes.lock().observe(node, self.0.context.clock.monotonic()),
            Change::Deleted(node) => self.0.nodes.lock().deleted(node),
            Change::Vanished(node) => self.0.nodes.lock().vanished(node),
        };
        // Such changes are rare, and a node can have the predecessor of any member.
        if news {
            self.all().iter().for_each(|session| session.shared.announce());
        }
    }
}

async fn follow(context: Context, registry: Weak<Registry>) {
    let mut quorums = std::pin::pin!(context.quorums.changes());
    let mut pods = std::pin::pin!(context.pods.changes());
    let mut nodes = std::pin::pin!(context.nodes.changes());
    let mut rounds = interval(ROUND);
    let sessions = || registry.upgrade().map(Sessions);
    loop {
        let done = tokio::select! {
            _ = rounds.tick() => sessions().map(|sessions| sessions.restart_missing()),
            Some(change) = quorums.next() => sessions().map(|sessions| sessions.on_quorum(&change)),
            Some(change) = pods.next() => sessions().map(|sessions| sessions.on_pod(&change)),
            Some(change) = nodes.next() => sessions().map(|sessions| sessions.on_node(&change)),
            else => None,
        };
        if done.is_none() {
            return;
        }
    }
}
