//! The members of a client: which of their processes may vote, and counters that were forgotten.

mod standing;

use super::admission::Admission;
use super::counters::{Forgotten, Restored, counter};
use super::error::{BuildError, NotAcquired};
use super::event::Observer;
use crate::redlock::{
    Command, Elector, Electorate, FencingToken, LockKey, LockMember, MemberError, MemberFailure, MemberName, Reply,
    RunId, TOKEN_KEY, is_set, recovered,
};
use crate::time::{Clock, Monotonic};
use crate::voting::{Link, not_connected_yet};
use standing::Standing;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Members that do not answer are waited for so long before the counters of the others are restored without theirs.
const PATIENCE: Duration = Duration::from_millis(500);

/// More causes than this are not logged.
const MOST_WARNED: usize = 256;

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
    /// What its counter of tokens was restored to. Zero where nobody restores it.
    counter: Option<FencingToken>,
}

/// A counter that was read, and whether its process was restored before.
type Read = Option<(RunId, FencingToken, bool)>;

struct State {
    links: Vec<watch::Receiver<Link>>,
    processes: Vec<Option<Process>>,
    electorate: Arc<Electorate>,
    /// So many of the electorate may vote.
    admitted: usize,
    /// When the next process may vote.
    due: Option<Monotonic>,
    is_stale: bool,
    /// Whose counter could not be read last, and why.
    unread: Vec<(MemberName, MemberFailure)>,
    /// What was logged of each member.
    warned: BTreeSet<(usize, String)>,
    /// The last state of each member that the observer received.
    notified: Vec<Option<Standing>>,
}

pub(super) struct Members {
    members: Vec<Member>,
    clock: Arc<dyn Clock>,
    admission: Admission,
    /// Tokens are wanted, and no operator restores the counters.
    restores: bool,
    forgotten: Arc<Forgotten>,
    observer: Observer,
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
            unread: Vec::new(),
            warned: BTreeSet::new(),
            notified: vec![None; members.len()],
        };
        let (forgotten, observer) = (Arc::default(), Observer::default());
        Self { members, clock, admission, restores, forgotten, observer, state: Mutex::new(state) }
    }

    /// Tells the observer of the states of members.
    pub(super) fn with_observer(self, observer: Observer) -> Self {
        Self { observer, ..self }
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
        if state.is_stale || changed || self.forgotten.is_any() || is_due() {
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
                let counter = (!self.restores).then_some(FencingToken::ZERO);
                *process = Some(Process { run_id, first_seen: now, counter });
            }
        }
        for run_id in self.forgotten.take() {
            let same = |process: &&mut Process| process.run_id == run_id && process.counter.is_some();
            // With its counter it has forgotten its locks.
            for process in state.processes.iter_mut().flatten().filter(same) {
                (process.first_seen, process.counter) = (now, None);
            }
        }
        let opens = |process: &Process| self.opens(process);
        let votes = |process: &&Process| process.counter.is_some() && opens(process) <= now;
        let elector = |(member, process): (&Member, &Option<Process>)| Elector {
            member: Arc::clone(&member.member),
            admitted: process.as_ref().filter(votes).map(|process| process.run_id.clone()),
        };
        let electors: Vec<_> = self.members.iter().zip(&state.processes).map(elector).collect();
        state.admitted = electors.iter().filter(|elector| elector.admitted.is_some()).count();
        state.due = state.processes.iter().flatten().map(opens).filter(|at| *at > now).min();
        let electorate = Electorate::single(electors);
        state.electorate = Arc::new(if self.restores {
            let restored = |process: &Process| Some((process.run_id.clone(), process.counter?));
            let counters = state.processes.iter().flatten().filter_map(restored).collect();
            electorate.with_counter_check(Arc::new(Restored { counters, forgotten: Arc::clone(&self.forgotten) }))
        } else {
            electorate
        });
        state.is_stale = false;
    }

    /// When a process may vote, if it has its counter.
    fn opens(&self, process: &Process) -> Monotonic {
        process.first_seen + self.admission.delay()
    }

    /// Microseconds since 1970.
    fn wall(&self) -> FencingToken {
        FencingToken::new(self.clock.wall().0.saturating_mul(1_000)).unwrap_or_default()
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
        let mut left: Vec<_> = known.clone().map(|process| self.opens(process).since(now)).collect();
        left.sort_unstable();
        match left.get(self.quorum() - 1) {
            Some(left) if !left.is_zero() => Some(NotAcquired::Waiting { left: *left }),
            _ if known.clone().filter(|process| process.counter.is_some()).count() >= self.quorum() => None,
            _ if is_set(self.wall()) => Some(NotAcquired::CountersUnknown { failures: state.unread.clone() }),
            _ => Some(NotAcquired::WallClock),
        }
    }

    /// So many members may vote.
    pub(super) fn admitted(&self) -> usize {
        self.current().admitted
    }

    /// The failures of a round, with what is known of members that were not asked.
    pub(super) fn explained(&self, failures: Vec<(MemberName, MemberFailure)>) -> Vec<(MemberName, MemberFailure)> {
        let explain = |(name, failure): (MemberName, MemberFailure)| {
            let member = self.members.iter().find(|member| *member.member.name() == name);
            let cause = match (&failure, member) {
                (MemberFailure::NotAdmitted, Some(member)) => match &*member.link.borrow() {
                    Link::Down(error) => Some(error.clone()),
                    Link::Fenced => Some(MemberError::Fenced),
                    Link::Open(_) => None,
                },
                _ => None,
            };
            (name, cause.map_or(failure, MemberFailure::Member))
        };
        failures.into_iter().map(explain).collect()
    }

    /// What is wrong with the members for good, as far as they have told.
    ///
    /// # Errors
    /// If one can hold no locks, if two are one process, or if there is no majority and one refuses this client.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        let links: Vec<_> = self.members.iter().map(|member| member.link.borrow().clone()).collect();
        let name = |index: usize| self.members[index].member.name().clone();
        let open = links.iter().filter(|link| matches!(link, Link::Open(_))).count();
        for (index, link) in links.iter().enumerate() {
            let same = links[..index].iter().position(|other| matches!(link, Link::Open(_)) && other == link);
            if let Some(other) = same {
                return Err(BuildError::SameProcess(name(other), name(index)));
            }
            match link {
                Link::Down(error @ MemberError::Unfit(_)) => {
                    return Err(BuildError::Member(name(index), error.clone()));
                }
                Link::Down(MemberError::Unreachable(_)) | Link::Fenced | Link::Open(_) => {}
                Link::Down(error) if open < self.quorum() => {
                    return Err(BuildError::Member(name(index), error.clone()));
                }
                Link::Down(_) => {}
            }
        }
        Ok(())
    }

    /// Logs each cause for which a member is not there, once.
    fn warn(&self) {
        let mut state = self.state();
        for (index, member) in self.members.iter().enumerate() {
            let Link::Down(error) = member.link.borrow().clone() else { continue };
            let (name, text) = (member.member.name(), error.to_string());
            if error != not_connected_yet() && state.warned.len() < MOST_WARNED && state.warned.insert((index, text)) {
                tracing::warn!(member = %name, %error, "a member cannot vote");
            }
        }
    }

    /// Follows the members: takes note of their processes early, since waiting counts from then, and gives them back their counters.
    pub(super) async fn follow(self: Arc<Self>, node_timeout: Duration) {
        loop {
            // Taken before anything is looked at: whoever looks, a change after this moment ends the wait.
            let links = self.state().links.clone();
            self.electorate();
            self.warn();
            let pause = if self.restores { self.restore(node_timeout).await } else { None };
            self.notify_states();
            let pause = pause.into_iter().chain(self.due()).min();
            tokio::select! {
                () = any_changed(links) => {}
                () = self.forgotten.noticed() => {}
                () = sleep(pause.unwrap_or(Duration::from_secs(3600))) => {}
            }
        }
    }

    /// Restores the counters of processes whose wait is over, never before: a vote of the process before can be on its way until then.
    /// Gives when to do it again, if a process lacks its counter.
    async fn restore(&self, node_timeout: Duration) -> Option<Duration> {
        let now = self.clock.monotonic();
        let lacking: Vec<(usize, Monotonic)> = {
            let state = self.state();
            let lacks = |process: &Process| process.counter.is_none().then(|| self.opens(process));
            let processes = state.processes.iter().enumerate();
            processes.filter_map(|(index, process)| Some((index, lacks(process.as_ref()?)?))).collect()
        };
        let first = lacking.iter().map(|(_, opens)| opens.since(now)).min()?;
        if !first.is_zero() {
            return Some(first);
        }
        let mut counters = self.counters(node_timeout).await;
        let patience = PATIENCE.max(2 * node_timeout);
        for (index, opens) in lacking.into_iter().filter(|(_, opens)| *opens <= now) {
            self.restore_one(index, now.since(opens) >= patience, &mut counters, node_timeout).await;
        }
        Some(node_timeout)
    }

    async fn restore_one(&self, index: usize, is_silent: bool, counters: &mut [Read], node_timeout: Duration) {
        let Some((run_id, own, _)) = counters[index].clone() else { return };
        let others =
            || counters.iter().enumerate().filter(|(other, _)| *other != index).filter_map(|(_, read)| read.as_ref());
        let of = |restored: bool| others().filter(|read| read.2 == restored).map(|read| read.1).collect::<Vec<_>>();
        let (restored, rest) = (of(true), of(false));
        let size = (self.members.len(), self.quorum());
        let Some(token) = recovered((own, &restored), &rest, size, self.wall(), is_silent) else { return };
        if own < token && !self.raise(index, &run_id, token, node_timeout).await {
            return;
        }
        let counter = own.max(token);
        counters[index] = Some((run_id.clone(), counter, true));
        let mut state = self.state();
        if let Some(process) = state.processes[index].as_mut().filter(|process| process.run_id == run_id) {
            process.counter = Some(counter);
        }
        state.is_stale = true;
    }

    /// The counters of all members that answer, and of which process each is.
    async fn counters(&self, node_timeout: Duration) -> Vec<Read> {
        let key = LockKey::from(TOKEN_KEY);
        let asked: Vec<_> =
            self.members.iter().map(|member| member.member.send(vec![Command::Inspect { key: key.clone() }])).collect();
        let mut counters = Vec::with_capacity(asked.len());
        let mut unread = Vec::new();
        for (index, answer) in asked.into_iter().enumerate() {
            let answer = timeout(node_timeout, answer).await.unwrap_or(Err(MemberError::TimedOut));
            counters.push(match answer.and_then(counter) {
                Ok((run_id, number)) => {
                    let is_restored = self.is_restored(index, &run_id, number);
                    Some((run_id, number, is_restored))
                }
                Err(error) => {
                    unread.push((self.members[index].member.name().clone(), error.into()));
                    None
                }
            });
        }
        self.state().unread = unread;
        counters
    }

    /// Whether this process was restored, and still has its counter.
    fn is_restored(&self, index: usize, run_id: &RunId, number: FencingToken) -> bool {
        let state = self.state();
        let process = state.processes[index].as_ref().filter(|process| process.run_id == *run_id);
        let Some(counter) = process.and_then(|process| process.counter) else { return false };
        if number < counter {
            self.forgotten.put(run_id);
        }
        number >= counter
    }

    async fn raise(&self, index: usize, run_id: &RunId, token: FencingToken, node_timeout: Duration) -> bool {
        let answer = self.members[index].member.send(vec![Command::Restore { token }]);
        let answer = timeout(node_timeout, answer).await;
        matches!(answer, Ok(Ok(answers)) if answers.run_id == *run_id && answers.replies == [Reply::Raised])
    }
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
