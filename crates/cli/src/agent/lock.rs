//! Pure: when one lock is acquired, how long it is kept, and when it is released.

use std::time::Duration;

use super::leadership::{Hold, Leadership, Status};
use crate::hold::{End, LockArgs};
use redlock_engine::time::Boottime;

/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// The parameters of a lock that the agent takes.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) args: LockArgs,
    /// The ID of the request. Another request with this ID is a repetition.
    pub(super) request: Option<String>,
    /// Whether the agent holds the lock without further requests.
    pub(super) is_unattended: bool,
    /// Minimum time from the beginning of the hold to its release.
    pub(super) least: Duration,
}

/// A step that the task performs.
#[derive(Debug)]
pub(super) enum Action {
    /// Begin an attempt to take the lock.
    Acquire { lock: String, args: Box<LockArgs> },
    /// End the attempt, and release the lock.
    End { lock: String },
    /// Write a line about a lock.
    Log { lock: String, line: String },
    /// Send the signal that the application begins to lead.
    Elected,
    /// Send the signal that the application no longer leads.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no attempt. The next one begins at this time, if the lock is wanted.
    Idle { retry_at: Boottime },
    /// The attempt waits for the lock.
    Acquiring,
    /// The attempt holds the lock.
    Held { token: i64, since: Boottime },
    /// The agent releases the lock after its last promise has expired, and not before this time.
    Ending { not_before: Boottime },
    /// The attempt must end. If it still acquires the lock, it releases the lock, and the agent does not promise it.
    Releasing,
}

/// One lock of the agent.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) leadership: Leadership,
    pub(super) order: Order,
    /// The served instance requests the lock. A release, a lost hold or the end of its requests ends that.
    pub(super) is_requested: bool,
    /// The lock of the agent itself, which every instance requests by its registration.
    pub(super) is_permanent: bool,
    /// Number of requests that wait for the lock.
    waiting: usize,
    /// One of the requests got the answer that the lock is held.
    is_confirmed: bool,
    phase: Phase,
    /// Why the last attempt failed, until the lock is held.
    failure: Option<String>,
}

impl Lock {
    pub(super) fn new(order: Order, is_permanent: bool) -> Self {
        let phase = Phase::Idle { retry_at: Boottime::default() };
        let leadership = Leadership::new();
        let (is_requested, is_confirmed) = (false, false);
        Self { leadership, order, is_requested, is_permanent, waiting: 0, is_confirmed, phase, failure: None }
    }

    /// Adds a request that waits for the lock. Returns whether it is the first one, or a repetition.
    pub(super) fn request(&mut self, order: Order) -> bool {
        if !self.is_requested {
            if !self.is_permanent {
                self.order = order;
            }
            (self.is_requested, self.is_confirmed) = (true, false);
        } else if order.request.is_none() || order.request != self.order.request {
            return false;
        }
        self.waiting += 1;
        true
    }

    /// Removes a request. If the last one ended without the lock, the lock is no longer wanted.
    pub(super) fn request_ended(&mut self, is_held: bool) {
        self.waiting = self.waiting.saturating_sub(1);
        self.is_confirmed |= is_held;
        self.is_requested &= self.waiting > 0 || self.is_confirmed;
    }

    /// Whether the lock is wanted, by a present instance or for an unattended hold.
    pub(super) fn is_wanted(&self, is_present: bool) -> bool {
        self.is_requested && (is_present || self.order.is_unattended)
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle { .. })
    }

    pub(super) fn can_be_removed(&self) -> bool {
        self.is_idle() && !self.is_requested && !self.is_permanent && self.waiting == 0
    }

    /// Handles the report that the attempt acquired or renewed the lock.
    pub(super) fn held(&mut self, hold: Hold, now: Boottime) {
        self.failure = None;
        match self.phase {
            Phase::Acquiring => self.phase = Phase::Held { token: hold.token, since: now },
            Phase::Releasing => return,
            _ => {}
        }
        self.leadership.held(hold, now);
    }

    /// Records why an attempt failed. Returns whether the reason differs from the last one.
    pub(super) fn record_failure(&mut self, why: String) -> bool {
        self.failure.replace(why.clone()) != Some(why)
    }

    /// Handles the report that the attempt failed. The reason is already in the state.
    pub(super) fn failed(&mut self, now: Boottime) {
        self.is_requested &= self.is_permanent;
        self.phase = Phase::Idle { retry_at: now + PAUSE };
    }

    /// Handles the report that the attempt ended and the lock is released.
    pub(super) fn released(&mut self, now: Boottime) {
        self.phase = Phase::Idle { retry_at: now };
    }

    /// The next action, if one is due.
    pub(super) fn step(&mut self, lock: &str, is_wanted: bool, now: Boottime) -> Option<Action> {
        let lock = lock.to_owned();
        match self.phase {
            Phase::Idle { retry_at } if is_wanted && retry_at <= now => {
                self.phase = Phase::Acquiring;
                Some(Action::Acquire { lock, args: Box::new(self.order.args.clone()) })
            }
            Phase::Acquiring if !is_wanted => {
                self.leadership.not_held("the application does not ask for it");
                self.phase = Phase::Releasing;
                Some(Action::End { lock })
            }
            Phase::Held { token, since } => {
                let why = self.end(is_wanted, since, now)?;
                self.is_requested &= self.is_permanent;
                self.phase = Phase::Ending { not_before: since + self.order.least };
                Some(Action::Log { lock, line: format!("token {token} is given back: {why}") })
            }
            Phase::Ending { not_before } if not_before <= now && !self.leadership.is_promised(now) => {
                self.phase = Phase::Releasing;
                Some(Action::End { lock })
            }
            _ => None,
        }
    }

    /// The reason to end the hold, if there is one. From then on no answer promises the hold.
    fn end(&mut self, is_wanted: bool, since: Boottime, now: Boottime) -> Option<String> {
        let until = self.longest(since);
        let why = match self.leadership.status() {
            Status::NotHeld { why } | Status::Unknown { why } => return Some(why.clone()),
            Status::Held(_) if until.is_some_and(|until| until <= now) => End::MaxHold.to_string(),
            Status::Held(_) if !is_wanted => "the application does not want it any more, or does not ask".to_owned(),
            Status::Held(hold) if !self.leadership.is_of_instance(hold.token) => {
                "another instance has registered since".to_owned()
            }
            Status::Held(_) => return None,
        };
        self.leadership.not_held(&why);
        Some(why)
    }

    /// The end of the hold by its maximum time.
    fn longest(&self, since: Boottime) -> Option<Boottime> {
        self.order.args.max_hold.map(|longest| since + longest.get())
    }

    /// The times at which a step can become due without a report.
    pub(super) fn times(&self) -> impl Iterator<Item = Boottime> {
        let phase = match self.phase {
            Phase::Idle { retry_at: at } | Phase::Ending { not_before: at } => Some(at),
            Phase::Held { since, .. } => self.longest(since),
            _ => None,
        };
        self.leadership.times().chain(phase)
    }
}
