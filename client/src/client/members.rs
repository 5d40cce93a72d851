//! The members of a client: which of their processes may vote, and counters that were forgotten.

use super::admission::Admission;
use super::error::NotAcquired;
use crate::redlock::{
    Answers, Command, Elector, Electorate, FencingToken, KeyState, LockKey, LockMember, Reply, RunId, TOKEN_KEY,
    recovered,
};
use crate::time::{Clock, Monotonic};
use crate::voting::Link;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// One member, however it is reached.
pub(super) struct Member {
    pub(super) member: Arc<dyn LockMember>,
    pub(super) link: watch::Receiver<Link>,
}

/// What is known of the process behind a member.
#[derive(Clone)]
struct Process {
    run_id: RunId,
    first_seen: Monotonic,
    has_counter: bool,
}

struct State {
    links: Vec<watch::Receiver<Link>>,
    processes: Vec<Option<Process>>,
    electorate: Arc<Electorate>,
    /// So many of the electorate may vote.
    admitted: usize,
    /// When the next process may vote.
    due: Option<Monotonic>,
    is_stale: bool,
}

pub(super) struct Members {
    members: Vec<Member>,
    clock: Arc<dyn Clock>,
    admission: Admission,
    /// Tokens are wanted, and no operator restores the counters.
    restores: bool,
    state: Mutex<State>,
}

impl Members {
    pub(super) fn new(members: Vec<Member>, clock: Arc<dyn Clock>, admission: Admission, restores: bool) -> Self {
        let state = State {
            links: members.iter().map(|member| member.link.clone()).collect(),
            processes: vec![None; members.len()],
            electorate: Arc::new(Electorate::single(Vec::new())),
            admitted: 0,
            due: None,
            is_stale: true,
        };
        Self { members, clock, admission, restores, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many are a majority.
    pub(super) fn quorum(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Who may vote now.
    pub(super) fn electorate(&self) -> Arc<Electorate> {
        Arc::clone(&self.current().electorate)
    }

    /// Who may vote now, if a majority may; or if it may not for want of connections, which an attempt finds out.
    ///
    /// # Errors
    /// Why no majority may vote.
    pub(super) fn voters(&self) -> Result<Arc<Electorate>, NotAcquired> {
        let state = self.current();
        match self.obstacle_in(&state) {
            None => Ok(Arc::clone(&state.electorate)),
            Some(obstacle) => Err(obstacle),
        }
    }

    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        let changed = state.links.iter().any(|link| link.has_changed().unwrap_or(true));
        // Looked at only while somebody waits: a clock is not read for nothing.
        let is_due = || state.due.is_some_and(|due| due <= self.clock.monotonic());
        if state.is_stale || changed || is_due() {
            self.refresh(&mut state);
        }
        state
    }

    fn refresh(&self, state: &mut State) {
        let now = self.clock.monotonic();
        let State { links, processes, .. } = state;
        for (link, process) in links.iter_mut().zip(processes) {
            let Link::Open(run_id) = link.borrow_and_update().clone() else { continue };
            if process.as_ref().is_none_or(|known| known.run_id != run_id) {
                *process = Some(Process { run_id, first_seen: now, has_counter: !self.restores });
            }
        }
        let opens = |process: &Process| process.first_seen + self.admission.delay();
        let votes = |process: &&Process| process.has_counter && opens(process) <= now;
        let elector = |(member, process): (&Member, &Option<Process>)| Elector {
            member: Arc::clone(&member.member),
            admitted: process.as_ref().filter(votes).map(|process| process.run_id.clone()),
        };
        let electors: Vec<_> = self.members.iter().zip(&state.processes).map(elector).collect();
        state.admitted = electors.iter().filter(|elector| elector.admitted.is_some()).count();
        state.due = state.processes.iter().flatten().map(opens).filter(|at| *at > now).min();
        state.electorate = Arc::new(Electorate::single(electors));
        state.is_stale = false;
    }

    /// Why no majority may vote, if that is so and not for want of connections.
    pub(super) fn obstacle(&self) -> Option<NotAcquired> {
        self.obstacle_in(&self.state())
    }

    fn obstacle_in(&self, state: &State) -> Option<NotAcquired> {
        if state.admitted >= self.quorum() {
            return None;
        }
        let now = self.clock.monotonic();
        let known = state.processes.iter().flatten();
        if known.clone().count() < self.quorum() {
            return None;
        }
        let mut left: Vec<_> =
            known.clone().map(|process| (process.first_seen + self.admission.delay()).since(now)).collect();
        left.sort_unstable();
        match left.get(self.quorum() - 1) {
            Some(left) if !left.is_zero() => Some(NotAcquired::Waiting { left: *left }),
            _ if known.clone().filter(|process| process.has_counter).count() < self.quorum() => {
                Some(NotAcquired::CountersUnknown)
            }
            _ => None,
        }
    }

    /// So many members may vote.
    pub(super) fn admitted(&self) -> usize {
        self.current().admitted
    }

    /// Follows the members: takes note of their processes early, since waiting counts from then, and gives them back their counters.
    pub(super) async fn follow(self: Arc<Self>, node_timeout: Duration) {
        loop {
            // Taken before anything is looked at: whoever looks, a change after this moment ends the wait.
            let links = self.state().links.clone();
            self.electorate();
            let is_complete = !self.restores || self.restore(node_timeout).await;
            let pause = if is_complete { Duration::from_secs(3600) } else { node_timeout };
            let _ = timeout(pause, any_changed(links)).await;
        }
    }

    /// Whether all known processes have their counters.
    async fn restore(&self, node_timeout: Duration) -> bool {
        let missing: Vec<usize> = {
            let state = self.state();
            let lacks = |process: &Option<Process>| process.as_ref().is_some_and(|process| !process.has_counter);
            (0..self.members.len()).filter(|index| lacks(&state.processes[*index])).collect()
        };
        if missing.is_empty() {
            return true;
        }
        let counters = self.counters(node_timeout).await;
        let mut is_complete = true;
        for index in missing {
            let Some((run_id, own)) = &counters[index] else {
                is_complete = false;
                continue;
            };
            let others = counters.iter().enumerate().filter(|(other, _)| *other != index);
            let others: Vec<FencingToken> = others.filter_map(|(_, read)| Some(read.as_ref()?.1)).collect();
            let Some(token) = self.counter_for(*own, &others) else {
                is_complete = false;
                continue;
            };
            let restored = *own >= token || self.raise(index, run_id, token, node_timeout).await;
            is_complete &= restored;
            if restored {
                let mut state = self.state();
                let process = state.processes[index].as_mut().filter(|process| process.run_id == *run_id);
                if let Some(process) = process {
                    process.has_counter = true;
                }
                state.is_stale = true;
            }
        }
        is_complete
    }

    /// What a member's counter has to be at least before it votes; `None` while that cannot be told.
    fn counter_for(&self, own: FencingToken, others: &[FencingToken]) -> Option<FencingToken> {
        let clock = FencingToken::new(self.clock.wall().0.saturating_mul(1_000)).unwrap_or_default();
        recovered(own, others, (self.members.len(), self.quorum()), clock)
    }

    /// The counters of all members that answer, and of which process each is.
    async fn counters(&self, node_timeout: Duration) -> Vec<Option<(RunId, FencingToken)>> {
        let key = LockKey::from(TOKEN_KEY);
        let asked: Vec<_> =
            self.members.iter().map(|member| member.member.send(vec![Command::Inspect { key: key.clone() }])).collect();
        let mut counters = Vec::with_capacity(asked.len());
        for answer in asked {
            counters.push(timeout(node_timeout, answer).await.ok().and_then(Result::ok).and_then(counter));
        }
        counters
    }

    async fn raise(&self, index: usize, run_id: &RunId, token: FencingToken, node_timeout: Duration) -> bool {
        let answer = self.members[index].member.send(vec![Command::Restore { token }]);
        let answer = timeout(node_timeout, answer).await;
        matches!(answer, Ok(Ok(answers)) if answers.run_id == *run_id && answers.replies == [Reply::Raised])
    }
}

fn counter(answers: Answers) -> Option<(RunId, FencingToken)> {
    let number = match answers.replies.first()? {
        Reply::State(KeyState::Missing) => FencingToken::ZERO,
        Reply::State(KeyState::String { value, .. }) => FencingToken::new(value.expose().parse().ok()?)?,
        _ => return None,
    };
    Some((answers.run_id, number))
}

/// Resolves when one of the connections has changed. One whose task has ended never does.
async fn any_changed(mut links: Vec<watch::Receiver<Link>>) {
    let mut waits: Vec<_> = links.iter_mut().map(|link| Box::pin(link.changed())).collect();
    poll_fn(|cx| {
        let mut is_ready = false;
        waits.retain_mut(|wait| match wait.as_mut().poll(cx) {
            Poll::Ready(changed) => {
                is_ready |= changed.is_ok();
                false
            }
            Poll::Pending => true,
        });
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
