//! What all reconciles of one term share: the way to the API server and to the members, and the tables of this term.

use std::{collections::HashMap, sync::Arc};

use kube::runtime::{controller::Action, reflector::ObjectRef};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::broadcast;

use super::{exclusions::Exclusions, index::Index, reachability::Reachability, turns::Turns, wearers::Wearers};
use crate::{
    api::DistributedLock,
    lock::{
        model::{
            candidate::Candidate,
            decide::{Pause, Sealing},
            publications::Publications,
        },
        replica::{
            holds::Holds,
            liveness::Asked,
            shares::Slots,
            writes::{WriteError, Written},
        },
    },
    quorum::session::Sessions,
    redlock::Nonce,
    runtime::{context::Context, leader::Term},
    time::Boottime,
};

/// So many locks are looked at side by side, of one namespace half as many. More requests at once would only wait for each other in
/// the API server, and keep the leader's own Lease waiting.
const SLOTS: usize = 64;

/// Why a reconcile could not finish; it is repeated with backoff.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused a write, or its answer is missing.
    #[error("failed to write to the API server")]
    Write(#[from] WriteError),
    /// The quorum could not be asked to reserve tokens.
    #[error("failed to raise the quorum's token floor")]
    TokenFloor(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Everything that the reconciles of one term of leadership share.
pub struct Locks {
    /// Caches, client, clock.
    pub context: Context,
    /// The term.
    pub reachability: Reachability,
    /// Connections to the quorums.
    pub sessions: Sessions,
    /// The holds of this replica.
    pub holds: Arc<Holds>,
    /// Which locks depend on what.
    pub index: Index,
    /// This replica's own writes.
    pub written: Written,
    /// Asks for reconciles of other locks.
    pub nudges: broadcast::Sender<ObjectRef<DistributedLock>>,
    pub(super) turns: Turns,
    pub(super) slots: Slots,
    publications: Mutex<Publications>,
    /// What candidates have answered.
    pub(super) asked: Asked,
    pauses: Mutex<HashMap<String, Pause>>,
    sealed: Mutex<HashMap<String, (Option<Nonce>, Sealing)>>,
    /// What is remembered of locks that cannot be read, by UID.
    pub(super) unreadable: Mutex<HashMap<String, Memory>>,
    /// Who is passed over.
    pub exclusions: Exclusions,
    /// Which pods wear leader labels.
    pub wearers: Wearers,
}

/// What this leader remembers of one such lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) seen: Option<Boottime>,
    pub(super) deleting: Option<Boottime>,
    /// The version whose status the API server refused to write.
    pub(super) refused: Option<String>,
    /// Not looked at before.
    pub(super) next: Option<Boottime>,
    /// This version was looked at.
    pub(super) version: Option<String>,
}

impl Locks {
    /// For a new term; nothing is carried over from an earlier one but the holds.
    pub fn new(context: Context, sessions: Sessions, holds: Arc<Holds>, term: Term) -> Self {
        let reachability = Reachability::new(term, context.clock.boottime());
        Self {
            written: Written::new(context.metrics.clone()),
            context,
            reachability,
            sessions,
            holds,
            index: Index::default(),
            nudges: broadcast::channel(4096).0,
            turns: Turns::default(),
            slots: Slots::new(SLOTS),
            publications: Mutex::default(),
            asked: Asked::default(),
            pauses: Mutex::default(),
            sealed: Mutex::default(),
            unreadable: Mutex::default(),
            exclusions: Exclusions::default(),
            wearers: Wearers::default(),
        }
    }

    /// As the watch has it, or as it was last written here.
    pub(super) fn newest_of(&self, lock: &ObjectRef<DistributedLock>) -> Option<Arc<DistributedLock>> {
        self.context.locks.get(lock).map(|cached| self.written.newest(cached))
    }

    pub(super) fn publications(&self) -> MutexGuard<'_, Publications> {
        self.publications.lock()
    }

    /// What a lock had to publish is published, or need not be any more: the next ones may.
    pub(super) fn publication_done(&self, uid: &str) {
        let told = self.publications().done(uid);
        told.into_iter().for_each(|lock| self.nudge(lock));
    }

    /// Asks for a reconcile.
    fn nudge(&self, lock: ObjectRef<DistributedLock>) {
        // Nobody listens only while the controller is being stopped.
        let _ = self.nudges.send(lock);
    }

    /// Drops what is remembered of an object that is gone.
    pub fn forget(&self, uid: &str) {
        self.pause(uid, None);
        self.sealed.lock().remove(uid);
        self.written.forget(uid);
        self.asked.forget(uid);
        let told = self.publications().forget(uid);
        told.into_iter().for_each(|lock| self.nudge(lock));
    }

    /// Postpones the next attempt, or forgets the last one.
    pub fn pause(&self, uid: &str, pause: Option<Pause>) {
        let mut pauses = self.pauses.lock();
        match pause {
            Some(pause) => pauses.insert(uid.to_owned(), pause),
            None => pauses.remove(uid),
        };
    }

    /// Why the last attempt failed.
    pub fn last_pause(&self, uid: &str) -> Option<Pause> {
        self.pauses.lock().get(uid).cloned()
    }

    /// Remembers what a majority said about the end of this hold; without a nonce, about that of every attempt.
    pub fn mark_sealed(&self, uid: &str, nonce: Option<Nonce>, sealing: Sealing) {
        self.sealed.lock().insert(uid.to_owned(), (nonce, sealing));
    }

    /// The hold of this lock that was last sealed here.
    pub fn sealed_nonce(&self, uid: &str) -> Option<Nonce> {
        self.sealed.lock().get(uid).and_then(|(nonce, _)| *nonce)
    }

    pub(super) fn sealing_of(&self, uid: &str, nonce: Option<Nonce>) -> Sealing {
        let sealed = self.sealed.lock();
        match sealed.get(uid) {
            Some((of, sealing)) if *of == nonce => *sealing,
            _ => Sealing::Unconfirmed,
        }
    }

    /// Asks for a reconcile of the others on the key that this one's news concern.
    pub fn nudge_others(&self, lock: &DistributedLock) {
        let own = ObjectRef::from_obj(lock);
        let concerned = self.index.concerned(lock, self.spans_namespaces(lock));
        concerned.into_iter().filter(|other| *other != own).for_each(|other| self.nudge(other));
    }
}

/// How far a step came.
pub enum Progress {
    /// There is more to do, from this state.
    Next(Arc<DistributedLock>),
    /// Nothing more until then.
    Done(Action),
    /// Ask this candidate for its health, and decide again.
    Ask(Box<Candidate>),
}
