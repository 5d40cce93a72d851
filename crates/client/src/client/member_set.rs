//! The members of a client: the processes that can vote, and lost token counters.

mod restore_counters;
mod state_events;

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::counters::{ForgetfulProcesses, RestoredCounters};
use super::error::{BuildError, NotAcquired};
use super::event::Observer;
use super::locked;
use crate::redlock::{
    Elector, Electorate, FencingToken, LockMember, MemberError, MemberFailure, MemberName, RunId, is_set,
};
use crate::time::{Clock, Monotonic};
use crate::voting::{Link, not_connected_yet};
use state_events::ReportedState;

/// Maximum number of logged causes.
const MAX_WARNINGS: usize = 256;

/// A member, independent of the type of its connection.
pub(super) struct Member {
    pub(super) member: Arc<dyn LockMember>,
    pub(super) link: watch::Receiver<Link>,
}

/// The last process of a member.
#[derive(Clone)]
struct Process {
    run_id: RunId,
    first_observed: Monotonic,
    /// The restored token counter.
    ///
    /// Zero if an operator restores it, `None` before it is restored.
    counter: Option<FencingToken>,
}

struct State {
    links: Vec<watch::Receiver<Link>>,
    processes: Vec<Option<Process>>,
    electorate: Arc<Electorate>,
    /// The number of members that can vote.
    admitted: usize,
    /// The time at which the next process can vote.
    due: Option<Monotonic>,
    is_stale: bool,
    /// Members whose counter was not readable, with the reason.
    unreadable: Vec<(MemberName, MemberFailure)>,
    /// Logged causes, by member.
    warned: BTreeSet<(usize, String)>,
    /// The last state of each member that the observer received.
    notified: Vec<Option<ReportedState>>,
}

pub(super) struct MemberSet {
    members: Vec<Member>,
    clock: Arc<dyn Clock>,
    /// How long a process that this client has not observed before cannot vote.
    admission_delay: Duration,
    /// True if locks need tokens, and no operator restores counters.
    restores: bool,
    forgotten: Arc<ForgetfulProcesses>,
    observer: Observer,
    state: Mutex<State>,
}

impl MemberSet {
    /// Members that are not connected yet. The observer receives their states.
    pub(super) fn new(
        members: Vec<Member>,
        clock: Arc<dyn Clock>,
        admission_delay: Duration,
        restores: bool,
        observer: Observer,
    ) -> Self {
        let state = State {
            links: members.iter().map(|member| member.link.clone()).collect(),
            processes: vec![None; members.len()],
            electorate: Arc::new(Electorate::single(Vec::new())),
            admitted: 0,
            due: None,
            is_stale: true,
            unreadable: Vec::new(),
            warned: BTreeSet::new(),
            notified: vec![None; members.len()],
        };
        let (forgotten, state) = (Arc::default(), Mutex::new(state));
        Self { members, clock, admission_delay, restores, forgotten, observer, state }
    }

    /// The number of members of a majority.
    pub(super) fn quorum(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// The processes that can vote now.
    pub(super) fn electorate(&self) -> Arc<Electorate> {
        Arc::clone(&self.current().electorate)
    }

    /// The processes that can vote now, unless too few processes are admitted.
    ///
    /// With too few connections the attempt itself fails.
    ///
    /// # Errors
    /// The reason why no majority can vote.
    pub(super) fn voters(&self) -> Result<Arc<Electorate>, NotAcquired> {
        let state = self.current();
        match self.obstacle_in(&state) {
            None => Ok(Arc::clone(&state.electorate)),
            Some(obstacle) => Err(obstacle),
        }
    }

    fn current(&self) -> MutexGuard<'_, State> {
        let mut state = locked(&self.state);
        let changed = state.links.iter().any(|link| link.has_changed().unwrap_or(true));
        // The clock is read only while a process waits.
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
            if process.as_ref().is_none_or(|process| process.run_id != run_id) {
                let counter = (!self.restores).then_some(FencingToken::ZERO);
                *process = Some(Process { run_id, first_observed: now, counter });
            }
        }
        for run_id in self.forgotten.take() {
            let same = |process: &&mut Process| process.run_id == run_id && process.counter.is_some();
            // The process has lost its locks together with its counter.
            for process in state.processes.iter_mut().flatten().filter(same) {
                (process.first_observed, process.counter) = (now, None);
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
            electorate
                .with_counter_check(Arc::new(RestoredCounters { counters, forgotten: Arc::clone(&self.forgotten) }))
        } else {
            electorate
        });
        state.is_stale = false;
    }

    /// The time at which a process with its counter can vote.
    fn opens(&self, process: &Process) -> Monotonic {
        process.first_observed + self.admission_delay
    }

    /// The wall clock in microseconds since 1970.
    fn wall(&self) -> FencingToken {
        FencingToken::new(self.clock.wall().0.saturating_mul(1_000)).unwrap_or_default()
    }

    /// The reason why no majority can vote, unless connections are missing.
    pub(super) fn obstacle(&self) -> Option<NotAcquired> {
        self.obstacle_in(&locked(&self.state))
    }

    fn obstacle_in(&self, state: &State) -> Option<NotAcquired> {
        if state.admitted >= self.quorum() {
            return None;
        }
        let now = self.clock.monotonic();
        let processes = state.processes.iter().flatten();
        if processes.clone().count() < self.quorum() {
            return None;
        }
        let mut left: Vec<_> = processes.clone().map(|process| self.opens(process).since(now)).collect();
        left.sort_unstable();
        match left.get(self.quorum() - 1) {
            Some(left) if !left.is_zero() => Some(NotAcquired::Waiting { left: *left }),
            _ if processes.clone().filter(|process| process.counter.is_some()).count() >= self.quorum() => None,
            _ if is_set(self.wall()) => Some(NotAcquired::CountersUnknown { failures: state.unreadable.clone() }),
            _ => Some(NotAcquired::WallClock),
        }
    }

    /// The number of members that can vote.
    pub(super) fn admitted(&self) -> usize {
        self.current().admitted
    }

    /// Adds the state of connections to the failures of a round.
    pub(super) fn explained(&self, failures: Vec<(MemberName, MemberFailure)>) -> Vec<(MemberName, MemberFailure)> {
        let explain = |(name, failure): (MemberName, MemberFailure)| {
            let member = self.members.iter().find(|member| *member.member.name() == name);
            let cause = match (&failure, member) {
                (MemberFailure::NotAdmitted, Some(member)) => match &*member.link.borrow() {
                    Link::Down(error) | Link::Unidentified(error) => Some(error.clone()),
                    Link::Open(_) => None,
                },
                _ => None,
            };
            (name, cause.map_or(failure, MemberFailure::Member))
        };
        failures.into_iter().map(explain).collect()
    }

    /// Checks for lasting errors of members.
    ///
    /// # Errors
    /// If a member can hold no locks, if two members are one process, or if there is no majority and a member refuses
    /// this client.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        let links: Vec<_> = self.members.iter().map(|member| member.link.borrow().clone()).collect();
        let name = |index: usize| self.members[index].member.name().clone();
        let open = links.iter().filter(|link| matches!(link, Link::Open(_))).count();
        for (index, link) in links.iter().enumerate() {
            let same = links[..index].iter().position(|other| matches!(link, Link::Open(_)) && other == link);
            if let Some(other) = same {
                return Err(BuildError::SameProcess(name(other), name(index)));
            }
            if let Link::Down(error) = link {
                let is_refused = open < self.quorum() && !matches!(error, MemberError::Unreachable(_));
                if is_refused || matches!(error, MemberError::Unfit(_)) {
                    return Err(BuildError::Member(name(index), error.clone()));
                }
            }
        }
        Ok(())
    }

    /// Logs each cause that keeps a member from voting, once.
    fn warn(&self) {
        let mut state = locked(&self.state);
        for (index, member) in self.members.iter().enumerate() {
            let Link::Down(error) = member.link.borrow().clone() else { continue };
            let (name, text) = (member.member.name(), error.to_string());
            if error != not_connected_yet() && state.warned.len() < MAX_WARNINGS && state.warned.insert((index, text)) {
                tracing::warn!(member = %name, %error, "a member cannot vote");
            }
        }
    }

    /// Follows the members.
    ///
    /// It records their processes early, because waiting times begin then, and restores their counters.
    pub(super) async fn follow(self: Arc<Self>, node_timeout: Duration) {
        loop {
            // The receivers are cloned first, so a later change ends the wait, whichever call reads it.
            let links = locked(&self.state).links.clone();
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
}

/// Resolves when a connection has changed.
///
/// A connection never changes after the end of its task.
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
