//! Pure: what is known of one lock, what the application is told of it, and when nobody relies on a hold any more.
//!
//! Time is an argument: a reading of the boot-time clock.

use std::time::Duration;

use crate::time::Boottime;

/// A hold, of this application or of another holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) token: i64,
    pub(super) holder: String,
    /// Whether it is held for the application that this agent serves.
    pub(super) is_own: bool,
    /// Nothing is promised beyond it: the end of the validity, less what is kept back.
    pub(super) deadline: Boottime,
    /// Its deadline has passed once. A later one does not take that back, since the application has stopped.
    lapsed: bool,
}

/// What is known of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Known {
    Unknown { why: String },
    NotHeld { why: String },
    Held(Hold),
}

/// Which tokens are those of the instance that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    /// Those above this one.
    Above(i64),
    /// None yet. Some of those above this one may be from before the registration, which is still to be read.
    Unread(i64),
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The instance that is served.
    Served,
    /// One that gave no instance id.
    Unnamed,
    /// An earlier instance, or one of an agent before this one.
    Other,
}

/// Why the answer is no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum No {
    NotRegistered,
    NotServed,
    NotHeld,
    HeldByOther,
    HeldBefore,
}

/// What the one who asks is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Leads { token: i64, holder: String, deadline: Boottime },
    DoesNot { no: No, why: String },
    Unknown { why: String },
}

/// What the agent knows of one lock and has said of it.
#[derive(Clone, Debug)]
pub(super) struct Book {
    known: Known,
    /// The largest token that this agent has known.
    largest: i64,
    floor: Floor,
    /// No answer has promised more than this.
    told: Boottime,
    /// The application has given this one back, and the operator has not been told yet.
    given_back: Option<i64>,
    /// Counts what was learnt.
    sequence: u64,
}

impl Book {
    pub(super) fn new() -> Self {
        let known = Known::Unknown { why: "the agent has not had an answer yet".to_owned() };
        Self { known, largest: 0, floor: Floor::Above(0), told: Boottime::default(), given_back: None, sequence: 0 }
    }

    pub(super) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Answers before this agent, by one that was killed, may have promised so much.
    pub(super) fn assume_told(&mut self, until: Boottime) {
        self.told = self.told.max(until);
    }

    /// An instance registers: no token that is known by now is ever its own.
    pub(super) fn register(&mut self, reads_first: bool) {
        self.floor = if reads_first { Floor::Unread(self.largest) } else { Floor::Above(self.largest) };
        self.sequence += 1;
    }

    /// Everything that was granted before the registration is known now.
    pub(super) fn has_read(&mut self) {
        if self.reads_first() {
            self.floor = Floor::Above(self.largest);
            self.sequence += 1;
        }
    }

    pub(super) fn reads_first(&self) -> bool {
        matches!(self.floor, Floor::Unread(_))
    }

    /// The lock is held: a new hold, or a renewal.
    pub(super) fn learns_hold(&mut self, new: &Hold, now: Boottime) {
        match &mut self.known {
            Known::Held(hold) if hold.token == new.token => {
                hold.lapsed |= hold.is_own && hold.deadline <= now;
                if hold.lapsed || new.deadline <= hold.deadline {
                    return;
                }
                hold.deadline = new.deadline;
            }
            // A late word about an earlier hold.
            _ if new.token <= self.largest => return,
            _ => {
                self.largest = new.token;
                self.known = Known::Held(new.clone());
            }
        }
        self.sequence += 1;
    }

    /// The lock is certainly not held any more, or not yet.
    pub(super) fn learns_not_held(&mut self, why: &str) {
        self.becomes(Known::NotHeld { why: why.to_owned() });
    }

    /// It cannot be said whether the lock is held.
    pub(super) fn learns_nothing(&mut self, why: &str) {
        self.becomes(Known::Unknown { why: why.to_owned() });
    }

    fn becomes(&mut self, known: Known) {
        if self.known != known {
            self.known = known;
            self.sequence += 1;
        }
    }

    /// The hold, unless its deadline has passed.
    fn live(&mut self, now: Boottime) -> Option<&Hold> {
        let Known::Held(hold) = &mut self.known else { return None };
        hold.lapsed |= hold.is_own && hold.deadline <= now;
        (!hold.lapsed && hold.deadline > now).then_some(hold)
    }

    /// Whether it was not renewed in time.
    pub(super) const fn has_lapsed(&self) -> bool {
        matches!(&self.known, Known::Held(hold) if hold.lapsed)
    }

    fn is_of_instance(&self, token: i64) -> bool {
        matches!(self.floor, Floor::Above(floor) if token > floor)
    }

    /// The answer now. It is written down how much it promises.
    pub(super) fn word(&mut self, who: Who, now: Boottime) -> Word {
        let does_not = |no, why: &str| Word::DoesNot { no, why: why.to_owned() };
        match who {
            Who::Unnamed => return does_not(No::NotRegistered, "the request names no instance"),
            Who::Other => {
                return does_not(
                    No::NotServed,
                    "another instance has registered since, or the agent was started since",
                );
            }
            Who::Served => {}
        }
        let unread = match self.floor {
            Floor::Unread(known) => Some(known),
            Floor::Above(_) => None,
        };
        let Some(hold) = self.live(now).cloned() else {
            return if unread.is_some() { Word::unread() } else { self.word_without_hold() };
        };
        if !hold.is_own {
            return does_not(No::HeldByOther, &format!("{} holds the lock", hold.holder));
        }
        if unread.is_some_and(|known| hold.token > known) {
            return Word::unread();
        }
        if !self.is_of_instance(hold.token) {
            let why = format!("token {} was known before this instance registered", hold.token);
            return does_not(No::HeldBefore, &why);
        }
        self.told = self.told.max(hold.deadline);
        Word::Leads { token: hold.token, holder: hold.holder, deadline: hold.deadline }
    }

    fn word_without_hold(&self) -> Word {
        match &self.known {
            Known::Unknown { why } => Word::Unknown { why: why.clone() },
            Known::NotHeld { why } => Word::DoesNot { no: No::NotHeld, why: why.clone() },
            Known::Held(hold) => Word::Unknown {
                why: format!("the validity of token {} has passed, and no renewal is known", hold.token),
            },
        }
    }

    /// The leader's name, as leader-elector says it: nothing unless a holder certainly leads.
    pub(super) fn name(&mut self, now: Boottime) -> Option<String> {
        let hold = self.live(now)?.clone();
        if hold.is_own {
            if !self.is_of_instance(hold.token) {
                return None;
            }
            self.told = self.told.max(hold.deadline);
        }
        Some(hold.holder)
    }

    /// Whether the hold is that of the instance that is served, and goes on.
    pub(super) fn serves(&mut self, now: Boottime) -> bool {
        let own = self.live(now).filter(|hold| hold.is_own).map(|hold| hold.token);
        own.is_some_and(|token| self.is_of_instance(token))
    }

    /// The token of a hold for this application that is not that of the instance which is served.
    fn left_over(&mut self, now: Boottime) -> Option<i64> {
        let own = self.live(now).filter(|hold| hold.is_own).map(|hold| hold.token)?;
        (!self.reads_first() && !self.is_of_instance(own)).then_some(own)
    }

    /// Whether nothing that was promised is valid any more.
    pub(super) fn is_out_of_use(&self, now: Boottime) -> bool {
        self.told <= now
    }

    /// The application has stopped, and gives the hold back. Whether it is the one that it has.
    pub(super) fn gives_back(&mut self, token: i64, now: Boottime) -> bool {
        let is_held = self.serves(now) && matches!(&self.known, Known::Held(hold) if hold.token == token);
        if is_held {
            self.told = now;
            self.given_back = Some(token);
            self.learns_not_held("the application has released it");
        }
        is_held
    }

    /// The application has ended: it gives back what it has.
    pub(super) fn leaves(&mut self, now: Boottime) {
        if let Known::Held(Hold { token, .. }) = self.known {
            self.gives_back(token, now);
        }
    }

    /// The token of a hold that the operator has to be told to end.
    ///
    /// The application has given it back, or it is that of an earlier instance. No promise of it is valid any more.
    pub(super) fn releasable(&mut self, now: Boottime) -> Option<i64> {
        let token = self.given_back.or_else(|| self.left_over(now))?;
        self.is_out_of_use(now).then_some(token)
    }

    /// The word has been said.
    pub(super) fn is_released(&mut self, token: i64) {
        self.given_back = None;
        if matches!(&self.known, Known::Held(hold) if hold.token == token) {
            self.learns_not_held("it was released after an instance of before");
        }
    }

    /// How long until what was promised has passed, or the hold's deadline.
    pub(super) fn next_change(&self, now: Boottime) -> Option<Duration> {
        let of_hold = match &self.known {
            Known::Held(hold) if !hold.lapsed => Some(hold.deadline),
            _ => None,
        };
        of_hold.into_iter().chain([self.told]).filter(|at| *at > now).min().map(|at| at.since(now))
    }
}

impl Word {
    fn unread() -> Self {
        Self::Unknown { why: "what was granted before this instance registered is still to be read".to_owned() }
    }
}

impl Hold {
    /// `until`: the end of the validity.
    pub(super) fn new(token: i64, holder: String, is_own: bool, until: Boottime, reserve: Duration) -> Self {
        Self { token, holder, is_own, deadline: until.saturating_sub(reserve), lapsed: false }
    }
}

#[cfg(test)]
mod tests;
