//! Locks that the application asks for.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::super::holding::{LockArgs, LockName, Way};
use super::desk::{Desk, Order, now};
use super::keeper::keep;
use super::route::Query;
use super::say::{Said, of_refused, of_word};
use axum::http::StatusCode;

/// Beyond the wait that was asked for: for the operator to say why the lock is not free.
const MARGIN: Duration = Duration::from_secs(15);

/// How locks are taken.
pub(super) struct Orders {
    desk: Arc<Desk>,
    /// `None`: the operator elects, and the agent takes nothing.
    way: Option<Arc<Way>>,
    /// What a lock is taken with, if the request does not say otherwise.
    template: LockArgs,
    keepers: Mutex<JoinSet<()>>,
    /// Wakes the task that waits for keepers to fail.
    spawned: Notify,
}

/// A request that waits, also when its client breaks the connection.
struct Waiting<'a> {
    desk: &'a Desk,
    lock: &'a str,
    is_held: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.desk.waits_no_more(self.lock, self.is_held);
    }
}

impl Orders {
    pub(super) fn new(desk: Arc<Desk>, way: Option<Arc<Way>>, template: LockArgs) -> Self {
        Self { desk, way, template, keepers: Mutex::new(JoinSet::new()), spawned: Notify::new() }
    }

    /// In an election a hold may have been granted that this agent has not heard of.
    pub(super) fn reads_first(&self) -> bool {
        self.way.is_none()
    }

    /// Cares for a lock from now on.
    pub(super) fn keep(&self, lock: String) {
        if let Some(way) = &self.way {
            self.keepers.lock().spawn(keep(Arc::clone(&self.desk), Arc::clone(way), lock));
            self.spawned.notify_one();
        }
    }

    /// Waits until a keeper has panicked. Its lock is neither renewed nor released, so the agent must end.
    pub(super) async fn failed(&self) -> anyhow::Error {
        loop {
            let ended = poll_fn(|context| match self.keepers.lock().poll_join_next(context) {
                Poll::Ready(Some(result)) => Poll::Ready(result),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            tokio::select! {
                result = ended => if let Err(error) = result {
                    return anyhow::Error::new(error).context("the task that keeps a lock has failed");
                },
                () = self.spawned.notified() => {}
            }
        }
    }

    /// Until all that was taken is given back.
    pub(super) async fn ended(&self) {
        let mut keepers = std::mem::take(&mut *self.keepers.lock());
        while keepers.join_next().await.is_some() {}
        if let Some(way) = &self.way {
            way.close().await;
        }
    }

    /// Takes a lock for the instance that asks, and waits for it if it is to.
    pub(super) async fn acquire(&self, lock: &LockName, query: Query) -> Said {
        let Some(way) = &self.way else {
            let detail = "The operator elects the leader. GET /leader says whether it is this instance.";
            return Said::problem(StatusCode::METHOD_NOT_ALLOWED, "Election", detail);
        };
        let name = lock.to_string();
        let wait = query.wait.unwrap_or_default();
        let order = self.order(lock.clone(), &query, matches!(**way, Way::Direct(_)));
        match self.desk.orders(&name, query.instance.as_deref(), order) {
            Ok(true) => self.keep(name.clone()),
            Ok(false) => {}
            Err(refused) => return of_refused(refused),
        }
        let mut waiting = Waiting { desk: &self.desk, lock: &name, is_held: false };
        let said = self.outcome(&name, &query, wait).await;
        waiting.is_held = said.status.is_success();
        said
    }

    async fn outcome(&self, name: &str, query: &Query, wait: Duration) -> Said {
        let until = now() + wait + MARGIN;
        let mut changes = self.desk.changes();
        loop {
            let Some((word, _)) = self.desk.word(name, query.instance.as_deref()) else { return given_up() };
            let said = of_word(name, word, now());
            if said.status.is_success() || !self.desk.is_wanted(name) || until <= now() {
                return said;
            }
            self.desk.pause(name, &mut changes).await;
        }
    }

    fn order(&self, lock: LockName, query: &Query, is_direct: bool) -> Order {
        let mut args = LockArgs { lock, ..self.template.clone() };
        args.ttl = query.ttl.unwrap_or(args.ttl);
        args.wait = query.wait.filter(|wait| !wait.is_zero()).map(Into::into);
        args.try_once = args.wait.is_none();
        let min_hold = query.min_hold.filter(|least| !least.get().is_zero());
        args.min_hold = min_hold.filter(|_| !is_direct);
        args.max_hold = query.hold_for.map(Into::into);
        let begun = now();
        Order {
            args,
            request: query.request.clone(),
            until: query.hold_for.map(|hold_for| begun + hold_for),
            // The operator remembers it with a claim.
            not_before: min_hold.filter(|_| is_direct).map(|least| begun + least.get()),
        }
    }
}

fn given_up() -> Said {
    Said::problem(StatusCode::CONFLICT, "NotHeld", "The lock was not acquired. Ask again, or with a longer wait.")
}
