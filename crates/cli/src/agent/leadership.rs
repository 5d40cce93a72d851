//! Pure: who holds one lock, until when and with which token, and the promises to the application.
//!
//! Time is an argument: a reading of the boot-time clock.

use std::time::Duration;

use redlock_engine::time::Boottime;

/// A hold of this application, or of another holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) token: i64,
    pub(super) holder: String,
    /// Whether it is held for the application that this agent serves.
    pub(super) is_own: bool,
    /// The latest time that an answer promises: the end of the validity, less a reserve.
    pub(super) deadline: Boottime,
}

/// The state of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Unknown { why: String },
    NotHeld { why: String },
    Held(Hold),
}

/// The answer to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Leads { token: i64, holder: String, deadline: Boottime },
    No(Refusal),
    Unknown { why: String },
}

/// The reason of an answer that is no. The comment of a variant is the text that the application gets.
#[derive(Clone, Debug, PartialEq, Eq, displaydoc::Display)]
pub(super) enum Refusal {
    /// The request names no instance. POST /register when the application starts, and give the instance with each request.
    NotRegistered,
    /// Another instance has registered since, or the agent was started since. An application that lives on registers again.
    NotServed,
    /// The lock is not held: {why}. Ask again, or listen to /watch.
    NotHeld { why: String },
    /// {holder} holds the lock. Ask again, or listen to /watch.
    HeldByOther { holder: String },
    /// The agent knew token {token} before this instance registered. It gives this hold back. Ask again.
    HeldBefore { token: i64 },
    /// This instance does not hold the lock with token {token}. It was released or lost.
    OtherToken { token: i64 },
    /// The agent does not take this lock. A POST to its path with /acquire takes it.
    NotAcquired,
    /// This instance has acquired the lock by another request, or waits for it. Release it first.
    Taken,
    /// The agent has as many locks as it can have. Release some of them.
    TooManyLocks,
    /// Another instance is served. It ends by POST /unregister, or when it does not ask any more.
    Served,
    /// The operator elects the leader. GET /leader answers whether it is this instance.
    Election,
    /// The agent is being stopped and takes no locks.
    Stopping,
}

/// The state of one lock, and the promises of the agent.
#[derive(Debug)]
pub(super) struct Leadership {
    status: Status,
    /// The largest token that was reported to this agent.
    largest_token: i64,
    /// Tokens up to this one do not belong to the served instance.
    floor: i64,
    /// An earlier agent possibly promised tokens up to this one.
    assumed: i64,
    /// The latest time that an answer has promised.
    promised: Boottime,
    is_changed: bool,
}

impl Leadership {
    pub(super) fn new() -> Self {
        let status = Status::Unknown { why: "the agent has not had an answer yet".to_owned() };
        let promised = Boottime::default();
        Self { status, largest_token: 0, floor: 0, assumed: 0, promised, is_changed: true }
    }

    pub(super) const fn status(&self) -> &Status {
        &self.status
    }

    /// Whether the state has changed since the last call.
    pub(super) const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    /// Begins to serve a new instance. No known token belongs to it.
    pub(super) fn register(&mut self) {
        (self.floor, self.is_changed) = (self.largest_token.max(self.assumed), true);
    }

    /// Assumes that an earlier agent promised this token until then.
    ///
    /// The token belongs to no instance that registers later. If `is_registered`, it does not belong to the served one either.
    pub(super) fn assume_promise(&mut self, token: i64, until: Boottime, is_registered: bool) {
        self.promised = self.promised.max(until);
        self.assumed = self.assumed.max(token);
        if is_registered {
            self.floor = self.floor.max(token);
        }
    }

    /// Handles the report of a new hold or of a renewal.
    pub(super) fn held(&mut self, hold: Hold, now: Boottime) {
        self.expire(now);
        match &mut self.status {
            Status::Held(current) if current.token == hold.token => {
                if hold.deadline <= current.deadline {
                    return;
                }
                current.deadline = hold.deadline;
            }
            // This is a late report about an earlier hold or an expired one.
            _ if hold.token <= self.largest_token => return,
            _ => {
                self.largest_token = hold.token;
                self.status = Status::Held(hold);
            }
        }
        self.is_changed = true;
    }

    /// Records that the lock is certainly not held.
    pub(super) fn not_held(&mut self, why: &str) {
        self.set(Status::NotHeld { why: why.trim_end_matches('.').to_owned() });
    }

    /// Records that it is not known whether the lock is held.
    pub(super) fn unknown(&mut self, why: &str) {
        self.set(Status::Unknown { why: why.to_owned() });
    }

    fn set(&mut self, status: Status) {
        self.is_changed |= self.status != status;
        self.status = status;
    }

    /// Ends an own hold whose deadline has passed.
    ///
    /// A later renewal does not restore it, because the application stops at the deadline.
    pub(super) fn expire(&mut self, now: Boottime) {
        if let Status::Held(hold) = &self.status
            && hold.is_own
            && hold.deadline <= now
        {
            self.unknown(&passed(hold.token));
        }
    }

    /// The hold, until its deadline.
    fn hold(&mut self, now: Boottime) -> Option<&Hold> {
        self.expire(now);
        match &self.status {
            Status::Held(hold) if now < hold.deadline => Some(hold),
            _ => None,
        }
    }

    /// Whether a token was granted after the served instance registered.
    pub(super) const fn is_of_instance(&self, token: i64) -> bool {
        token > self.floor
    }

    /// The answer to the served instance. The state records its promise.
    pub(super) fn answer(&mut self, now: Boottime) -> Answer {
        self.expire(now);
        match self.status.clone() {
            Status::NotHeld { why } => Answer::No(Refusal::NotHeld { why }),
            Status::Unknown { why } => Answer::Unknown { why },
            Status::Held(hold) if hold.deadline <= now => Answer::Unknown { why: passed(hold.token) },
            Status::Held(hold) if !hold.is_own => Answer::No(Refusal::HeldByOther { holder: hold.holder }),
            Status::Held(Hold { token, .. }) if token <= self.floor => Answer::No(Refusal::HeldBefore { token }),
            Status::Held(Hold { token, holder, deadline, .. }) => {
                self.promised = self.promised.max(deadline);
                Answer::Leads { token, holder, deadline }
            }
        }
    }

    /// The leader's name for the interface of leader-elector. `None` unless a holder certainly leads.
    pub(super) fn leader(&mut self, now: Boottime) -> Option<String> {
        match self.answer(now) {
            Answer::Leads { holder, .. } | Answer::No(Refusal::HeldByOther { holder }) => Some(holder),
            Answer::No(_) | Answer::Unknown { .. } => None,
        }
    }

    /// Whether a promise is still valid.
    pub(super) fn is_promised(&self, now: Boottime) -> bool {
        now < self.promised
    }

    /// The token with which the served instance leads.
    fn own_token(&mut self, now: Boottime) -> Option<i64> {
        let token = self.hold(now).filter(|hold| hold.is_own)?.token;
        self.is_of_instance(token).then_some(token)
    }

    /// Releases the lock for the application. Returns whether it held the lock with this token.
    pub(super) fn release(&mut self, token: i64, now: Boottime) -> bool {
        let is_held = self.own_token(now) == Some(token);
        if is_held {
            self.promised = now;
            self.not_held("the application has released it");
        }
        is_held
    }

    /// Releases the lock, because the application has ended.
    pub(super) fn leave(&mut self, now: Boottime) {
        if let Some(token) = self.own_token(now) {
            self.release(token, now);
        }
    }

    /// Whether a token that was held is not promised by any answer, now or later.
    pub(super) fn is_unused(&mut self, token: i64, now: Boottime) -> bool {
        token <= self.largest_token && self.own_token(now) != Some(token) && !self.is_promised(now)
    }

    /// The times at which the state changes without a report.
    pub(super) fn times(&self) -> impl Iterator<Item = Boottime> {
        let deadline = match &self.status {
            Status::Held(hold) => Some(hold.deadline),
            _ => None,
        };
        deadline.into_iter().chain([self.promised])
    }
}

fn passed(token: i64) -> String {
    format!("the validity of token {token} has passed, and no renewal is known")
}

impl Hold {
    /// A hold whose validity ends at `until`. Its deadline is earlier by the reserve.
    pub(super) fn new(token: i64, holder: String, is_own: bool, until: Boottime, reserve: Duration) -> Self {
        Self { token, holder, is_own, deadline: until.saturating_sub(reserve) }
    }
}

#[cfg(test)]
mod tests;
