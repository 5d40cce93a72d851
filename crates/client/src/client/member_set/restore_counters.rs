//! Restores the token counters of processes that have lost them.

use std::time::Duration;

use tokio::time::timeout;

use super::super::counters::counter;
use super::super::locked;
use super::{MemberSet, Process};
use crate::redlock::{Command, FencingToken, LockKey, MemberError, Reply, RunId, TOKEN_KEY, recovered};
use crate::time::Monotonic;
use crate::voting::Link;

/// The wait for silent members, before counters are restored without theirs.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(500);

/// A counter that was read, with its process.
///
/// The flag is true if the process was restored before.
type Read = Option<(RunId, FencingToken, bool)>;

impl MemberSet {
    /// Restores the counters of processes whose wait has ended.
    ///
    /// It never does so before, because until then a vote of the predecessor can be in flight.
    ///
    /// Returns the time of the next attempt, if a process lacks its counter.
    pub(super) async fn restore(&self, node_timeout: Duration) -> Option<Duration> {
        let now = self.clock.monotonic();
        let lacking: Vec<(usize, Monotonic)> = {
            let state = locked(&self.state);
            let lacks = |(index, process): (usize, &Option<Process>)| {
                let process = process.as_ref().filter(|process| process.counter.is_none())?;
                // The next connection ends the wait.
                let is_connected = *self.members[index].link.borrow() == Link::Open(process.run_id.clone());
                is_connected.then(|| (index, self.opens(process)))
            };
            state.processes.iter().enumerate().filter_map(lacks).collect()
        };
        let first = lacking.iter().map(|(_, opens)| opens.since(now)).min()?;
        if !first.is_zero() {
            return Some(first);
        }
        let mut counters = self.counters(node_timeout).await;
        let wait = SILENCE_TIMEOUT.max(node_timeout.saturating_mul(2));
        for (index, opens) in lacking.into_iter().filter(|(_, opens)| *opens <= now) {
            self.restore_one(index, now.since(opens) >= wait, &mut counters, node_timeout).await;
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
        let mut state = locked(&self.state);
        if let Some(process) = state.processes[index].as_mut().filter(|process| process.run_id == run_id) {
            process.counter = Some(counter);
        }
        state.is_stale = true;
    }

    /// Reads the counters of all members that answer, with their processes.
    async fn counters(&self, node_timeout: Duration) -> Vec<Read> {
        let key = LockKey::from(TOKEN_KEY);
        let asked: Vec<_> =
            self.members.iter().map(|member| member.member.send(vec![Command::Inspect { key: key.clone() }])).collect();
        let mut counters = Vec::with_capacity(asked.len());
        let mut unreadable = Vec::new();
        for (index, answer) in asked.into_iter().enumerate() {
            let answer = timeout(node_timeout, answer).await.unwrap_or(Err(MemberError::TimedOut));
            counters.push(match answer.and_then(counter) {
                Ok((run_id, number)) => {
                    let is_restored = self.is_restored(index, &run_id, number);
                    Some((run_id, number, is_restored))
                }
                Err(error) => {
                    unreadable.push((self.members[index].member.name().clone(), error.into()));
                    None
                }
            });
        }
        locked(&self.state).unreadable = unreadable;
        counters
    }

    /// Returns true if this process was restored, and still has its counter.
    fn is_restored(&self, index: usize, run_id: &RunId, number: FencingToken) -> bool {
        let state = locked(&self.state);
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
        matches!(answer, Ok(Ok(answers)) if answers.run_id == *run_id && *answers.replies == [Reply::Raised])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::watch;

    use super::super::super::event::Observer;
    use super::super::Member;
    use super::*;
    use crate::redlock::{Answers, BoxFuture, LockMember, MemberName};
    use crate::time::SystemClock;

    /// A member that answers nothing, and counts the requests.
    struct Silent(MemberName, Arc<AtomicUsize>);

    impl LockMember for Silent {
        fn name(&self) -> &MemberName {
            &self.0
        }

        fn send(&self, _: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
            self.1.fetch_add(1, Ordering::SeqCst);
            Box::pin(std::future::ready(Err(MemberError::TimedOut)))
        }
    }

    #[tokio::test]
    async fn only_a_connected_process_is_restored() {
        let (requests, run_id) = (Arc::new(AtomicUsize::new(0)), RunId::new("r"));
        let (sender, link) = watch::channel(Link::Open(run_id));
        let member = Member { member: Arc::new(Silent("m".into(), Arc::clone(&requests))), link };
        let members = MemberSet::new(vec![member], Arc::new(SystemClock), Duration::ZERO, true, Observer::default());
        members.electorate();
        assert_eq!(members.restore(SILENCE_TIMEOUT).await, Some(SILENCE_TIMEOUT));
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        sender.send_replace(Link::Down(MemberError::TimedOut));
        assert_eq!(members.restore(SILENCE_TIMEOUT).await, None, "a connection wakes the task");
        assert_eq!(requests.load(Ordering::SeqCst), 1);
    }
}
