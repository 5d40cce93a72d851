//! Token counters: restored numbers, and processes that have lost theirs without a restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::locked;
use crate::redlock::{Answers, CounterCheck, FencingToken, KeyState, MemberError, Reply, RunId};

/// Processes whose votes prove that their memory is lost.
#[derive(Default)]
pub(super) struct ForgetfulProcesses {
    processes: Mutex<Vec<RunId>>,
    is_any: AtomicBool,
    noticed: Notify,
}

impl ForgetfulProcesses {
    pub(super) fn put(&self, run_id: &RunId) {
        tracing::warn!(%run_id, "a member has lost its memory without a restart: it is a new member to this client");
        locked(&self.processes).push(run_id.clone());
        self.is_any.store(true, Ordering::Release);
        self.noticed.notify_one();
    }

    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Vec<RunId> {
        let is_any = self.is_any.swap(false, Ordering::AcqRel);
        if is_any { std::mem::take(&mut *locked(&self.processes)) } else { Vec::new() }
    }

    /// Resolves when a process was added since the last call.
    pub(super) async fn noticed(&self) {
        self.noticed.notified().await;
    }
}

/// The restored number of each process that can vote.
///
/// A vote without a greater number proves that the process has lost its counter.
pub(super) struct RestoredCounters {
    pub(super) counters: Vec<(RunId, FencingToken)>,
    pub(super) forgotten: Arc<ForgetfulProcesses>,
}

impl CounterCheck for RestoredCounters {
    fn remembers(&self, run_id: &RunId, number: FencingToken) -> bool {
        let restored = self.counters.iter().find(|(process, _)| process == run_id);
        let remembers = restored.is_none_or(|(_, counter)| number > *counter);
        if !remembers {
            self.forgotten.put(run_id);
        }
        remembers
    }
}

/// The counter of a member, and its process.
pub(super) fn counter(answers: Answers) -> Result<(RunId, FencingToken), MemberError> {
    let number = match answers.replies.first() {
        Some(Reply::State(KeyState::Missing)) => Some(FencingToken::ZERO),
        Some(Reply::State(KeyState::String { value, .. })) => value.expose().parse().ok().and_then(FencingToken::new),
        Some(Reply::Failed(error)) => return Err(error.clone()),
        _ => None,
    };
    Ok((answers.run_id, number.ok_or(MemberError::NoCounter)?))
}
