//! Pure: the instance that is served, its locks, the answers to requests, and the actions of the task.

use std::collections::BTreeMap;
use std::time::Duration;

use super::leadership::{Answer, Refusal};
use super::lock::{Action, Lock, Order};
use redlock_engine::time::Boottime;

/// Maximum number of locks at the same time.
const MOST_LOCKS: usize = 64;

/// The served instance of the application, which is the last one that registered.
#[derive(Debug)]
struct Instance {
    id: String,
    last_request: Boottime,
}

/// The state of the agent.
#[derive(Debug)]
pub(super) struct AgentState {
    /// The lock that every instance wants.
    elected: String,
    /// The operator elects the leader, and the agent takes no locks.
    is_election: bool,
    /// The application gets signals when it begins or ceases to lead.
    has_hooks: bool,
    /// An instance that sends no request for this time is treated as gone.
    patience: Duration,
    instance: Option<Instance>,
    locks: BTreeMap<String, Lock>,
    is_stopping: bool,
    /// The token of the last signal. `None` if that signal was about the end of the leadership.
    signalled: Option<i64>,
    is_changed: bool,
}

impl AgentState {
    pub(super) fn new(order: Order, is_election: bool, has_hooks: bool, patience: Duration) -> Self {
        let elected = order.args.lock.to_string();
        let locks = [(elected.clone(), Lock::new(order, true))].into();
        let (instance, signalled, is_stopping, is_changed) = (None, None, false, true);
        Self { elected, is_election, has_hooks, patience, instance, locks, is_stopping, signalled, is_changed }
    }

    /// The lock that every instance wants.
    pub(super) fn elected(&self) -> &str {
        &self.elected
    }

    /// Serves a new instance.
    ///
    /// # Errors
    /// With `if_none`, while another instance is served.
    pub(super) fn register(&mut self, id: String, if_none: bool, now: Boottime) -> Result<(), Refusal> {
        if if_none && self.is_present(now) {
            return Err(Refusal::Served);
        }
        self.instance = Some(Instance { id, last_request: now });
        for lock in self.locks.values_mut() {
            lock.leadership.register();
            lock.is_requested = lock.is_permanent;
        }
        Ok(())
    }

    /// Removes the served instance, which has ended. Its locks are released.
    pub(super) fn unregister(&mut self, instance: Option<&str>, now: Boottime) -> Result<(), Refusal> {
        self.authenticate(instance, now)?;
        self.instance = None;
        for lock in self.locks.values_mut() {
            lock.leadership.leave(now);
            lock.is_requested = false;
        }
        Ok(())
    }

    /// Checks that the instance is the served one. Records that it sent a request.
    fn authenticate(&mut self, id: Option<&str>, now: Boottime) -> Result<(), Refusal> {
        match (&mut self.instance, id) {
            (Some(instance), Some(id)) if instance.id == id => {
                instance.last_request = now;
                Ok(())
            }
            (_, Some(_)) => Err(Refusal::NotServed),
            (_, None) => Err(Refusal::NotRegistered),
        }
    }

    fn is_present(&self, now: Boottime) -> bool {
        self.instance.as_ref().is_some_and(|instance| now.since(instance.last_request) < self.patience)
    }

    /// The answer to the question whether the instance holds a lock.
    pub(super) fn answer(&mut self, lock: &str, instance: Option<&str>, now: Boottime) -> Answer {
        let caller = self.authenticate(instance, now);
        let Some(lock) = self.locks.get_mut(lock) else { return Answer::No(Refusal::NotAcquired) };
        match caller {
            Ok(()) => lock.leadership.answer(now),
            Err(refusal) => Answer::No(refusal),
        }
    }

    /// The leader's name, for programs that do not register.
    pub(super) fn leader(&mut self, now: Boottime) -> Option<String> {
        self.locks.get_mut(&self.elected)?.leadership.leader(now)
    }

    /// Adds a request of the instance that waits for a lock, until [`Self::request_ended`].
    pub(super) fn acquire(&mut self, instance: Option<&str>, order: Order, now: Boottime) -> Result<(), Refusal> {
        if self.is_election {
            return Err(Refusal::Election);
        }
        let caller = self.authenticate(instance, now);
        if self.is_stopping {
            return Err(Refusal::Stopping);
        }
        caller?;
        let name = order.args.lock.to_string();
        if self.locks.len() >= MOST_LOCKS && !self.locks.contains_key(&name) {
            return Err(Refusal::TooManyLocks);
        }
        let lock = self.locks.entry(name).or_insert_with(|| Lock::new(order.clone(), false));
        if lock.request(order) { Ok(()) } else { Err(Refusal::Taken) }
    }

    /// Handles the end of a request that waited for a lock.
    pub(super) fn request_ended(&mut self, lock: &str, is_held: bool) {
        if let Some(lock) = self.locks.get_mut(lock) {
            lock.request_ended(is_held);
        }
    }

    /// Whether the agent tries to hold a lock, or holds it.
    pub(super) fn is_wanted(&self, lock: &str, now: Boottime) -> bool {
        let is_present = self.is_present(now);
        !self.is_stopping && self.locks.get(lock).is_some_and(|lock| lock.is_wanted(is_present))
    }

    /// Releases a lock that the instance no longer uses.
    pub(super) fn release(
        &mut self,
        lock: &str,
        instance: Option<&str>,
        token: i64,
        now: Boottime,
    ) -> Result<(), Refusal> {
        self.authenticate(instance, now)?;
        let released = self.locks.get_mut(lock).and_then(|lock| lock.leadership.release(token, now).then_some(lock));
        released.ok_or(Refusal::OtherToken { token })?.is_requested = false;
        Ok(())
    }

    /// The lock with this name, for a report about it.
    pub(super) fn lock(&mut self, lock: &str) -> Option<&mut Lock> {
        self.locks.get_mut(lock)
    }

    /// Assumes that an earlier agent promised this token of the election until then.
    pub(super) fn assume_promise(&mut self, token: i64, until: Boottime) {
        let is_registered = self.instance.is_some();
        if let Some(lock) = self.locks.get_mut(&self.elected) {
            lock.leadership.assume_promise(token, until, is_registered);
        }
    }

    /// Whether a token of the election is held for an application that cannot use it.
    pub(super) fn is_unused(&mut self, token: i64, now: Boottime) -> bool {
        self.locks.get_mut(&self.elected).is_some_and(|lock| lock.leadership.is_unused(token, now))
    }

    /// Stops the agent. From now on it wants no lock.
    pub(super) fn stop(&mut self) {
        (self.is_stopping, self.is_changed) = (true, true);
    }

    pub(super) const fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// Whether the agent can end, because all locks are released.
    pub(super) fn has_stopped(&self) -> bool {
        self.is_stopping && self.locks.values().all(Lock::is_idle)
    }

    /// The actions that are due.
    pub(super) fn step(&mut self, now: Boottime) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_present = self.is_present(now);
        for (name, lock) in &mut self.locks {
            lock.leadership.expire(now);
            let is_wanted = !self.is_stopping && lock.is_wanted(is_present);
            if !self.is_election {
                actions.extend(std::iter::from_fn(|| lock.step(name, is_wanted, now)));
            }
            self.is_changed |= lock.leadership.take_changed();
        }
        self.locks.retain(|_, lock| !lock.can_be_removed());
        actions.extend(self.signal(now));
        actions
    }

    /// The signals for the application. A signal makes the same promise as an answer.
    fn signal(&mut self, now: Boottime) -> impl Iterator<Item = Action> {
        let is_asked = self.has_hooks && !self.is_stopping && self.is_present(now);
        let elected = self.locks.get_mut(&self.elected).filter(|_| is_asked);
        let token = match elected.map(|lock| lock.leadership.answer(now)) {
            Some(Answer::Leads { token, .. }) => Some(token),
            _ => None,
        };
        let before = std::mem::replace(&mut self.signalled, token);
        let is_other = before != token;
        let lost = before.filter(|_| is_other).map(|_| Action::Lost);
        let elected = token.filter(|_| is_other).map(|_| Action::Elected);
        lost.into_iter().chain(elected)
    }

    /// Whether an answer can have changed since the last call.
    pub(super) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    /// The time until a step can become due without a report.
    pub(super) fn next_step(&self, now: Boottime) -> Option<Duration> {
        let gone = self.instance.as_ref().map(|instance| instance.last_request + self.patience);
        let times = self.locks.values().flat_map(Lock::times).chain(gone);
        times.filter(|at| now < *at).min().map(|at| at.since(now))
    }
}

#[cfg(test)]
mod tests;
