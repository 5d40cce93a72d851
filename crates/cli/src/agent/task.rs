//! The one task that owns the state: it passes requests and reports to the state, and performs its actions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::hooks::HookArgs;
use super::leadership::{Hold, Refusal};
use super::lock::{Action, Lock};
use super::state::AgentState;
use crate::console;
use crate::hold::{HeldLock, LONGEST_SLEEP, LockArgs, LockSource, NotHeld, Progress, Signals, Validity, reserve};
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// The number of the signal that ends an attempt: SIGTERM.
const END: i32 = 15;

type Input = Box<dyn FnOnce(&mut AgentState, Boottime) + Send>;

/// The handle of the task, for requests and reports.
#[derive(Clone, Debug)]
pub(super) struct Agent {
    inputs: mpsc::UnboundedSender<Input>,
    changes: watch::Receiver<bool>,
}

/// A request that waits for a lock. A drop ends it, for example when its client disconnects.
pub(super) struct Waiter {
    agent: Agent,
    lock: String,
    pub(super) is_held: bool,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let (lock, is_held) = (std::mem::take(&mut self.lock), self.is_held);
        self.agent.send(move |state, _| state.request_ended(&lock, is_held));
    }
}

impl Agent {
    pub(super) fn send(&self, input: impl FnOnce(&mut AgentState, Boottime) + Send + 'static) {
        // The task ends last. After that a report has no effect.
        let _ = self.inputs.send(Box::new(input));
    }

    /// # Errors
    /// When the agent ends.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut AgentState, Boottime) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (sender, answer) = oneshot::channel();
        // If the receiver is gone, the request has ended and needs no answer.
        self.send(move |state, now| drop(sender.send(question(state, now))));
        answer.await.map_err(|_| Refusal::Stopping)
    }

    pub(super) fn waiter(&self, lock: String) -> Waiter {
        Waiter { agent: self.clone(), lock, is_held: false }
    }

    pub(super) fn changes(&self) -> watch::Receiver<bool> {
        self.changes.clone()
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.changes.borrow()
    }

    /// Waits until another answer is possible.
    ///
    /// The wait is short, so that the requests of a waiting instance keep it present.
    pub(super) async fn changed(&mut self) {
        let _ = timeout(LONGEST_SLEEP, self.changes.changed()).await;
    }

    /// Sends a report about a lock.
    pub(super) fn report(&self, lock: &str, report: impl FnOnce(&mut Lock, Boottime) + Send + 'static) {
        let lock = lock.to_owned();
        self.send(move |state, now| {
            if let Some(lock) = state.lock(&lock) {
                report(lock, now);
            }
        });
    }
}

/// The task that owns the state.
pub(super) struct Task {
    state: AgentState,
    agent: Agent,
    inputs: mpsc::UnboundedReceiver<Input>,
    changes: watch::Sender<bool>,
    source: Option<Arc<LockSource>>,
    hooks: HookArgs,
    /// The signals that end the attempt for a lock.
    attempts: BTreeMap<String, mpsc::Sender<i32>>,
    futures: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Task {
    /// Creates the task. `source` takes locks, unless the operator elects the leader.
    pub(super) fn new(state: AgentState, source: Option<Arc<LockSource>>, hooks: HookArgs) -> Self {
        let (sender, inputs) = mpsc::unbounded_channel();
        let (changes, receiver) = watch::channel(false);
        let agent = Agent { inputs: sender, changes: receiver };
        let (attempts, futures) = (BTreeMap::new(), FuturesUnordered::new());
        Self { state, agent, inputs, changes, source, hooks, attempts, futures }
    }

    pub(super) fn agent(&self) -> Agent {
        self.agent.clone()
    }

    /// Runs until a signal has stopped the agent and all locks are released.
    ///
    /// A panic of an attempt ends the task, so that its lock is neither renewed nor released.
    pub(super) async fn run(mut self, mut signals: Signals, election: Option<BoxFuture<'static, ()>>) {
        self.futures.extend(election);
        while !self.state.has_stopped() {
            let pause = self.state.next_step(now()).map_or(LONGEST_SLEEP, |pause| pause.min(LONGEST_SLEEP));
            tokio::select! {
                _ = signals.ending() => self.state.stop(),
                Some(input) = self.inputs.recv() => input(&mut self.state, now()),
                Some(()) = self.futures.next() => {}
                () = sleep(pause) => {}
            }
            self.perform();
        }
        if let Some(source) = &self.source {
            source.close().await;
        }
    }

    fn perform(&mut self) {
        for action in self.state.step(now()) {
            match action {
                Action::Acquire { lock, args } => self.start(lock, *args),
                Action::End { lock } => {
                    // A failed attempt has no receiver.
                    let _ = self.attempts.remove(&lock).map(|attempt| attempt.try_send(END));
                }
                Action::Log { lock, line } => console::report(format_args!("lock {lock}: {line}")),
                Action::Elected => self.hooks.elected(self.state.elected()),
                Action::Lost => self.hooks.lost(self.state.elected()),
            }
        }
        if self.state.take_changed() {
            self.changes.send_replace(self.state.is_stopping());
        }
    }

    fn start(&mut self, lock: String, args: LockArgs) {
        let Some(source) = self.source.clone() else { return };
        let (end, signals) = Signals::of_one_wait();
        self.attempts.retain(|_, end| !end.is_closed());
        self.futures.push(Box::pin(attempt(self.agent.clone(), source, lock.clone(), args, signals)));
        self.attempts.insert(lock, end);
    }
}

/// Takes a lock, reports its validity, and releases it after a signal.
async fn attempt(agent: Agent, source: Arc<LockSource>, lock: String, args: LockArgs, mut signals: Signals) {
    let mut progress = Progress::reported(&args.lock, {
        let (agent, lock) = (agent.clone(), lock.clone());
        move |why, is_certain| agent.report(&lock, not_held(why.to_owned(), is_certain))
    });
    let failed = |why: String, is_certain| {
        agent.report(&lock, not_held(why, is_certain));
        agent.report(&lock, Lock::failed);
    };
    let mut held = match source.take(&args, &mut signals, &mut progress).await {
        Ok(held) => held,
        Err(NotHeld::Signal(_)) => return agent.report(&lock, Lock::released),
        Err(NotHeld::NotAcquired(why)) => return failed(why, true),
        Err(NotHeld::NotAnswered(why)) => return failed(why, false),
        Err(NotHeld::Failed(error)) => {
            let (name, why) = (lock.clone(), format!("{error:#}"));
            let reason = why.clone();
            let is_new = agent.ask(move |state, _| state.lock(&name).is_some_and(|lock| lock.record_failure(reason)));
            if is_new.await == Ok(true) {
                console::report(format_args!("lock {lock}: {why}"));
            }
            return failed(why, false);
        }
    };
    follow(&agent, &lock, &mut held, reserve(args.ttl.get()), &mut signals).await;
    if let Err(error) = held.release_one().await {
        console::report(format_args!("lock {lock}: {error:#}"));
    }
    agent.report(&lock, Lock::released);
}

fn not_held(why: String, is_certain: bool) -> impl FnOnce(&mut Lock, Boottime) + Send + 'static {
    move |lock, _| if is_certain { lock.leadership.not_held(&why) } else { lock.leadership.unknown(&why) }
}

/// Reports the validity until a signal comes.
async fn follow(agent: &Agent, lock: &str, held: &mut HeldLock, reserve: Duration, signals: &mut Signals) {
    loop {
        let Validity { until, end } = held.validity.borrow_and_update().clone();
        let hold = Hold::new(held.token, held.holder.clone(), true, until, reserve);
        agent.report(lock, move |lock, now| {
            lock.held(hold, now);
            if let Some(end) = end {
                lock.leadership.not_held(&end.to_string());
            }
        });
        tokio::select! {
            changed = held.validity.changed() => if changed.is_err() {
                break;
            },
            _ = signals.next() => return,
        }
    }
    // There are no more renewals, so the deadline ends the hold.
    signals.next().await;
}

pub(super) fn now() -> Boottime {
    SystemClock.boottime()
}
