//! Renewal of held locks, on every replica, by a timer of its own: neither reconciles nor the API server are in its way.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::join_all;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    holds::{Hold, Holds},
    standing::{self, Standing},
};
use crate::{
    api::RedisQuorum,
    operator::{context::Context, leader::Term},
    quorum::session::{QuorumSession, Sessions},
    redlock::{Extend, ExtendRequest, LockValue},
    time::Clock,
};

/// How long a renewal is put off while the lock may not be renewed or its quorum has no session yet.
const NOT_NOW: Duration = Duration::from_millis(100);
/// With nothing held, the timer looks again this often; a new hold wakes it at once.
const IDLE: Duration = Duration::from_secs(60);

/// What renewal needs.
#[derive(Clone)]
pub struct Renewal {
    /// Caches and clocks.
    pub context: Context,
    /// Connections to the quorums.
    pub sessions: Sessions,
    /// The holds of this replica.
    pub holds: Arc<Holds>,
    /// Whether this replica leads; only the leader repairs.
    pub leadership: watch::Receiver<Option<Term>>,
}

impl Renewal {
    /// Renews whatever is due until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let now = self.context.clock.boottime();
            let pause = self.holds.next_due().map_or(IDLE, |due| due.since(now));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.holds.added() => {}
                () = stop.cancelled() => return,
            }
            let due = self.holds.take_due(self.context.clock.boottime());
            for (quorum, batch) in self.admissible(due) {
                tokio::spawn(self.clone().renew(quorum, batch));
            }
        }
    }

    /// The batches to renew by quorum, without the holds that may not be renewed: nothing renews, as far as this replica can
    /// know, for a holder that is gone, suspended or past its time.
    fn admissible(&self, due: Vec<Hold>) -> HashMap<ObjectRef<RedisQuorum>, Vec<Hold>> {
        let mut batches: HashMap<_, Vec<Hold>> = HashMap::new();
        let later = self.context.clock.boottime() + NOT_NOW;
        for hold in due {
            if self.may_renew(&hold) {
                batches.entry(hold.terms.quorum.clone()).or_default().push(hold);
            } else {
                self.holds.postpone(&hold.terms.uid, later);
            }
        }
        batches
    }

    fn may_renew(&self, hold: &Hold) -> bool {
        let Some(lock) = self.context.locks.get(&hold.terms.lock) else {
            // The object is gone, and with it everything that could end the hold properly: let it run out.
            return false;
        };
        if lock.metadata.uid.as_deref() != Some(hold.terms.uid.as_str()) {
            return false;
        }
        // A grant of this replica that is being published is not in the cached status yet.
        !hold.published || standing::of(&self.context, &lock) == Standing::Good
    }

    async fn renew(self, quorum: ObjectRef<RedisQuorum>, batch: Vec<Hold>) {
        let session = self.sessions.get(&quorum);
        let Some((session, signer)) = session.and_then(|session| Some((session.clone(), session.signer()?))) else {
            let later = self.context.clock.boottime() + NOT_NOW;
            batch.iter().for_each(|hold| self.holds.postpone(&hold.terms.uid, later));
            return;
        };
        let started = (self.context.clock.boottime(), self.context.clock.wall());
        let requests = batch
            .iter()
            .map(|Hold { terms, valid_until, .. }| ExtendRequest {
                key: terms.key.clone(),
                value: signer.value(&terms.uid, &terms.nonce),
                ttl: terms.ttl,
                valid_until: *valid_until,
            })
            .collect();
        let outcomes = session.redlock().extend(&session.electorate(), requests).await;
        let now = self.context.clock.boottime();
        let repairs = batch.iter().zip(outcomes).map(|(hold, outcome)| {
            self.holds.settle(&hold.terms.uid, &hold.terms.nonce, outcome.clone(), started, now);
            let value = signer.value(&hold.terms.uid, &hold.terms.nonce);
            self.repair(&session, hold, value, outcome)
        });
        join_all(repairs.collect::<Vec<_>>()).await;
    }

    /// Sets the key again on members that lost it, with what is left of the round that just reached a majority. Never a vote.
    async fn repair(&self, session: &QuorumSession, hold: &Hold, value: LockValue, outcome: Extend) {
        if self.leadership.borrow().is_none() {
            return;
        }
        let Extend::Renewed { valid_until, missing, .. } = outcome else { return };
        if missing.is_empty() {
            return;
        }
        let repaired =
            session.redlock().repair(&session.electorate(), &hold.terms.key, &value, valid_until, &missing).await;
        tracing::info!(lock = %hold.terms.lock, members = ?repaired, "key set again on members that had lost it");
    }
}
