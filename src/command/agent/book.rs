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
    /// None yet: of those above this one some may have been granted before the instance registered, which is still to be read.
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

    /// The lock is held until a time that is less what is kept back of the validity: a new hold, or a renewal.
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

    /// The leader's name, as leader-elector says it: nothing unless somebody certainly leads.
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
    pub(super) fn relied_on_by_nobody(&self, now: Boottime) -> bool {
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

    /// The token of a hold that the holder's word has to be said for, since nobody relies on it: the application has given it back, or it
    /// is that of an earlier instance.
    pub(super) fn to_be_released(&mut self, now: Boottime) -> Option<i64> {
        let token = self.given_back.or_else(|| self.left_over(now))?;
        self.relied_on_by_nobody(now).then_some(token)
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
mod tests {
    use super::*;

    fn at(millis: u64) -> Boottime {
        Boottime::new(Duration::from_millis(millis))
    }

    fn hold(token: i64, until: u64) -> Hold {
        Hold::new(token, "pod-a".into(), true, at(until), Duration::from_millis(200))
    }

    fn leads(book: &mut Book, now: u64) -> Option<(i64, Boottime)> {
        match book.word(Who::Served, at(now)) {
            Word::Leads { token, deadline, .. } => Some((token, deadline)),
            _ => None,
        }
    }

    fn no(book: &mut Book, who: Who, now: u64) -> No {
        match book.word(who, at(now)) {
            Word::DoesNot { no, .. } => no,
            word => panic!("{word:?}"),
        }
    }

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        assert!(matches!(Book::new().word(Who::Served, at(0)), Word::Unknown { .. }));
        assert_eq!(Book::new().name(at(0)), None);
    }

    #[test]
    fn the_instance_leads_until_the_deadline_and_not_beyond_it() {
        let mut book = Book::new();
        book.learns_hold(&hold(7, 3_000), at(0));
        assert_eq!(leads(&mut book, 2_799), Some((7, at(2_800))));
        assert!(matches!(book.word(Who::Served, at(2_800)), Word::Unknown { .. }));
        assert_eq!(book.name(at(2_800)), None, "nobody is named whose validity has passed");
    }

    #[test]
    fn a_hold_whose_deadline_has_passed_once_does_not_come_back() {
        let mut asked = Book::new();
        asked.learns_hold(&hold(7, 3_000), at(0));
        assert_eq!(leads(&mut asked, 2_900), None);
        // This one was not asked in between, and the renewal is late.
        let mut silent = Book::new();
        silent.learns_hold(&hold(7, 3_000), at(0));
        for mut book in [asked, silent] {
            book.learns_hold(&hold(7, 6_000), at(2_950));
            assert_eq!(leads(&mut book, 2_960), None);
            book.learns_hold(&hold(8, 6_000), at(2_970));
            assert_eq!(leads(&mut book, 2_980), Some((8, at(5_800))));
        }
    }

    #[test]
    fn a_renewal_extends_the_deadline_and_an_earlier_one_does_not_shorten_it() {
        let mut book = Book::new();
        book.learns_hold(&hold(7, 3_000), at(0));
        book.learns_hold(&hold(7, 5_000), at(1_000));
        book.learns_hold(&hold(7, 4_000), at(1_100));
        assert_eq!(leads(&mut book, 1_200), Some((7, at(4_800))));
    }

    #[test]
    fn an_instance_is_not_told_of_a_token_from_before_its_registration() {
        let mut book = Book::new();
        book.learns_hold(&hold(7, 3_000), at(0));
        assert!(leads(&mut book, 1).is_some());
        book.register(false);
        assert_eq!(no(&mut book, Who::Served, 2), No::HeldBefore);
        assert_eq!(book.name(at(2)), None, "nor by the name");
        book.learns_hold(&hold(7, 9_000), at(3));
        assert_eq!(no(&mut book, Who::Served, 4), No::HeldBefore, "a renewal changes nothing");
        book.learns_hold(&hold(8, 9_000), at(5));
        assert_eq!(leads(&mut book, 6), Some((8, at(8_800))));
        assert_eq!(no(&mut book, Who::Other, 6), No::NotServed);
        assert_eq!(no(&mut book, Who::Unnamed, 6), No::NotRegistered);
    }

    #[test]
    fn what_was_granted_before_the_registration_and_is_heard_of_later_does_not_count() {
        let mut book = Book::new();
        book.register(true);
        assert!(matches!(book.word(Who::Served, at(0)), Word::Unknown { .. }));
        book.learns_hold(&hold(7, 3_000), at(0));
        assert!(matches!(book.word(Who::Served, at(1)), Word::Unknown { .. }), "it may be either's");
        assert_eq!(book.to_be_released(at(1)), None, "it may yet be this instance's");
        book.has_read();
        assert_eq!(no(&mut book, Who::Served, 1), No::HeldBefore);
        assert_eq!(book.to_be_released(at(1)), Some(7));
        // A late event about a hold that is older still.
        book.learns_hold(&hold(6, 9_000), at(1));
        assert_eq!(no(&mut book, Who::Served, 2), No::HeldBefore);
        book.learns_hold(&hold(8, 9_000), at(3));
        assert!(leads(&mut book, 4).is_some());
        // What was known is certainly not the next one's, read or not.
        book.register(true);
        assert_eq!(no(&mut book, Who::Served, 5), No::HeldBefore);
    }

    #[test]
    fn a_hold_is_relied_on_until_the_last_promise_has_passed() {
        let mut book = Book::new();
        book.learns_hold(&hold(7, 3_000), at(0));
        assert!(book.relied_on_by_nobody(at(0)), "nobody was told yet");
        assert!(leads(&mut book, 10).is_some());
        book.register(false);
        book.learns_hold(&hold(7, 5_000), at(20));
        assert_eq!(leads(&mut book, 30), None);
        assert!(!book.serves(at(30)) && !book.relied_on_by_nobody(at(2_799)));
        assert!(book.relied_on_by_nobody(at(2_800)), "the renewal was not told");
        assert_eq!((book.to_be_released(at(2_799)), book.to_be_released(at(2_800))), (None, Some(7)));
    }

    #[test]
    fn a_hold_that_is_given_back_is_not_told_again() {
        let mut book = Book::new();
        book.learns_hold(&hold(7, 3_000), at(0));
        assert!(leads(&mut book, 10).is_some());
        assert!(!book.gives_back(6, at(20)), "another token");
        assert!(book.gives_back(7, at(20)));
        book.learns_hold(&hold(7, 6_000), at(30));
        assert_eq!(no(&mut book, Who::Served, 40), No::NotHeld);
        assert_eq!(book.to_be_released(at(40)), Some(7), "the application said that it has stopped");
        book.is_released(7);
        assert_eq!(book.to_be_released(at(50)), None);
    }

    #[test]
    fn a_name_is_a_promise_too() {
        let mut book = Book::new();
        book.learns_hold(&hold(7, 3_000), at(0));
        assert_eq!(book.name(at(1)).as_deref(), Some("pod-a"));
        assert!(!book.relied_on_by_nobody(at(2_799)));
    }

    #[test]
    fn another_leader_is_named_and_the_instance_does_not_lead() {
        let mut book = Book::new();
        let other = Hold::new(7, "pod-b".into(), false, at(3_000), Duration::ZERO);
        book.learns_hold(&other, at(0));
        assert_eq!(no(&mut book, Who::Served, 1), No::HeldByOther);
        assert_eq!(book.name(at(1)).as_deref(), Some("pod-b"));
        book.register(false);
        assert_eq!(book.name(at(1)).as_deref(), Some("pod-b"), "this is no instance's of this pod");
        assert!(book.relied_on_by_nobody(at(1)), "who leads elsewhere hears it elsewhere");
        assert_eq!(book.name(at(3_000)), None);
        let renewed = Hold::new(7, "pod-b".into(), false, at(5_000), Duration::ZERO);
        book.learns_hold(&renewed, at(3_500));
        assert_eq!(book.name(at(3_600)).as_deref(), Some("pod-b"), "a late word about another pod is true again");
    }

    #[test]
    fn a_lost_hold_is_lost_at_once() {
        let mut book = Book::new();
        book.learns_hold(&hold(7, 3_000), at(0));
        assert!(leads(&mut book, 1).is_some());
        let before = book.sequence();
        book.learns_not_held("by alice (Broken)");
        assert!(book.sequence() > before);
        assert_eq!(no(&mut book, Who::Served, 2), No::NotHeld);
        assert!(!book.relied_on_by_nobody(at(2)), "the promise stands");
        book.learns_hold(&hold(7, 9_000), at(3));
        assert_eq!(no(&mut book, Who::Served, 4), No::NotHeld, "a late word does not bring it back");
    }
}
