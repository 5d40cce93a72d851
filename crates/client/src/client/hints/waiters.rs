//! What a client knows of those who want one key. Pure: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// A release is announced if the key was held for so long, or if no release of it was announced for so long: one command more is nothing
/// then. Each release of a lock that is held for a moment, and that nobody waits for, would cost the members a tenth more.
const SELDOM: Duration = Duration::from_millis(100);
/// A key is listened for so long after the last of those who waited for it, and who waits is believed for so long.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// Who waits says so again after so long: some may have begun to listen only now.
pub(in crate::client) const ANNOUNCE_AGAIN: Duration = Duration::from_millis(500);
/// So many of those who wait are remembered.
const LONGEST_QUEUE: usize = 256;
/// So many of those who wait no more are remembered: a slow member may pass on later that they wait.
const REMEMBERED: usize = 64;

/// What those who listen are told: one number, so that listeners of Redisson, whose channel it is, can read it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The one with this ticket waits.
    Waits(i64),
    /// The one with this ticket waits no more.
    Gone(i64),
    /// Released; the one with this ticket is to go first.
    Next(i64),
    /// Released. Each release has a number of its own, except those of Redisson.
    Released(i64),
}

impl Message {
    pub(super) const fn number(self) -> i64 {
        match self {
            Self::Waits(ticket) => -ticket,
            Self::Gone(ticket) => -ticket - 1,
            Self::Next(number) | Self::Released(number) => number,
        }
    }

    pub(super) fn of(number: i64) -> Self {
        match number {
            ..0 if number % 2 == 0 => Self::Waits(number.saturating_neg()),
            ..0 => Self::Gone(-(number + 1)),
            2.. if number % 2 == 0 => Self::Next(number),
            _ => Self::Released(number),
        }
    }

    /// A number that no other release and nobody who waits has.
    pub(super) fn fresh() -> i64 {
        rand::random_range(1..i64::MAX / 4)
    }

    const fn ticket(fresh: i64) -> i64 {
        fresh * 2
    }

    const fn released(fresh: i64) -> Self {
        Self::Released(fresh * 2 + 1)
    }
}

/// What one who waits is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Cue {
    /// A majority of the members has released the key: try.
    Go,
    /// A member has released the key, and the others will have done so a moment later.
    Soon,
    /// The key was released, and another was before this one.
    Others,
}

pub(super) struct Waiters {
    /// A caller of this client listens.
    listens: bool,
    /// That of the caller that listens, or did last, and when others were told of it.
    ticket: i64,
    announced_wait: Option<Instant>,
    /// It was next, and is so no more for the others.
    was_next: bool,
    /// For the caller that listens.
    cue: Option<Cue>,
    /// Others that wait, in the order in which they were heard first, and when they were heard last.
    queue: VecDeque<(i64, Instant)>,
    /// Those that wait no more.
    gone: VecDeque<i64>,
    /// The number of the release that was heard of, or announced, last.
    last: i64,
    /// So many members have told of it.
    confirmations: usize,
    /// When a release was announced, or could have been.
    announced: Instant,
    /// Others wanted the key when that was seen last.
    is_contended: bool,
    /// This client was the last to release it.
    is_ours: bool,
    /// Since then no caller listens.
    unused: Instant,
}

impl Waiters {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            listens: false,
            ticket: 0,
            announced_wait: None,
            was_next: false,
            cue: None,
            queue: VecDeque::new(),
            gone: VecDeque::new(),
            last: 0,
            confirmations: 0,
            announced: now,
            is_contended: false,
            is_ours: false,
            unused: now,
        }
    }

    /// Whether it has to be remembered.
    pub(super) const fn is_needed(&self) -> bool {
        self.listens || self.is_contended
    }

    /// A caller begins to listen, as others have the key.
    pub(super) fn listen(&mut self, fresh: i64) {
        (self.listens, self.cue, self.is_contended) = (true, None, true);
        self.draw(fresh);
    }

    fn draw(&mut self, fresh: i64) {
        (self.ticket, self.announced_wait, self.was_next) = (Message::ticket(fresh), None, false);
    }

    /// The caller has ended to listen. What the others are to be told, if they do not know.
    pub(super) fn unlisten(&mut self, now: Instant) -> Option<Message> {
        (self.listens, self.unused) = (false, now);
        let is_known = self.announced_wait.is_none() || self.was_next;
        (!is_known).then_some(Message::Gone(self.ticket))
    }

    /// What the others are to be told of the caller that listens: now and then, or they take it for gone.
    pub(super) fn waits(&mut self, fresh: i64, now: Instant) -> Option<Message> {
        if self.was_next {
            // It has tried in vain.
            self.draw(fresh);
        }
        self.is_contended = true;
        let is_due = self.announced_wait.is_none_or(|at| now >= at + ANNOUNCE_AGAIN);
        is_due.then(|| {
            self.announced_wait = Some(now);
            Message::Waits(self.ticket)
        })
    }

    pub(super) const fn take_cue(&mut self) -> Option<Cue> {
        self.cue.take()
    }

    /// Takes what a member passes on; the same is heard of each of them, and `quorum` of them are a majority. `true`: who listens is to
    /// be woken.
    pub(super) fn hear(&mut self, message: Message, quorum: usize, now: Instant) -> bool {
        let (number, is_others) = match message {
            Message::Waits(ticket) => {
                self.hear_of(ticket, now);
                return false;
            }
            Message::Gone(ticket) => {
                self.forget(ticket);
                return false;
            }
            Message::Next(ticket) => (ticket, ticket != self.ticket),
            Message::Released(number) => (number, false),
        };
        if number != self.last {
            (self.last, self.confirmations, self.is_ours) = (number, 0, false);
            self.forget(number);
        }
        self.was_next |= number == self.ticket;
        self.confirmations += 1;
        let word = match self.confirmations {
            1 if is_others => Cue::Others,
            told if told == quorum && !is_others => Cue::Go,
            1 => Cue::Soon,
            _ => return false,
        };
        if self.confirmations >= quorum && number <= 1 {
            // All releases of Redisson have this number.
            self.confirmations = 0;
        }
        self.cue = self.listens.then_some(word);
        self.listens
    }

    fn hear_of(&mut self, ticket: i64, now: Instant) {
        if ticket == self.ticket || self.gone.contains(&ticket) {
            return;
        }
        self.is_contended = true;
        if let Some((_, heard)) = self.queue.iter_mut().find(|(known, _)| *known == ticket) {
            *heard = now;
        } else if self.queue.len() < LONGEST_QUEUE {
            self.queue.push_back((ticket, now));
        }
    }

    fn forget(&mut self, ticket: i64) {
        self.queue.retain(|(known, _)| *known != ticket);
        if !self.gone.contains(&ticket) {
            if self.gone.len() == REMEMBERED {
                self.gone.pop_front();
            }
            self.gone.push_back(ticket);
        }
    }

    /// What is to be announced of a release by this client; `None` if nobody is likely to wait.
    pub(super) fn release(&mut self, held_for: Duration, fresh: i64, now: Instant) -> Option<Message> {
        self.is_ours = true;
        let is_due = self.is_contended || held_for >= SELDOM || now >= self.announced + SELDOM;
        is_due.then(|| {
            self.queue.retain(|(_, heard)| now < *heard + LINGER);
            let message = self.queue.pop_front().map_or(Message::released(fresh), |(ticket, _)| Message::Next(ticket));
            (self.last, self.announced) = (message.number(), now);
            self.forget(self.last);
            // What members tell of it is no news here.
            self.confirmations = usize::MAX / 2;
            message
        })
    }

    /// So many others listened when a release was announced.
    pub(super) fn count(&mut self, others: u64) {
        self.is_contended = others > 0 || !self.queue.is_empty();
    }

    /// Whether others wait for the key that this client was the last to hold: asked once after each release.
    pub(super) const fn yields(&mut self) -> bool {
        let was_ours = std::mem::replace(&mut self.is_ours, false);
        was_ours && self.is_contended
    }

    /// None of the others has taken the key: those that listened do not wait any more.
    pub(super) fn yielded_in_vain(&mut self) {
        self.is_contended = !self.queue.is_empty();
    }

    /// Whether the key is to be listened for. If not, what was known of others is forgotten.
    pub(super) fn is_used(&mut self, now: Instant) -> bool {
        let is_used = self.listens || now < self.unused + LINGER;
        self.is_contended &= is_used;
        is_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timers_now;

    const MOMENT: Duration = Duration::from_millis(1);
    /// The first that nobody else uses, and one of another's.
    const OWN: i64 = 2;
    const OTHER: i64 = 14;

    #[test]
    fn a_message_is_one_number() {
        let own = [Message::Waits(OWN), Message::Gone(OWN), Message::Next(OWN), Message::released(7)];
        for message in own.into_iter().chain([Message::Released(0)]) {
            assert_eq!(Message::of(message.number()), message);
        }
        assert_eq!((Message::of(0), Message::of(1)), (Message::Released(0), Message::Released(1)), "Redisson's");
        assert_eq!((Message::of(i64::MIN), Message::of(-1)), (Message::Waits(i64::MAX), Message::Gone(0)));
    }

    #[test]
    fn a_release_is_heard_when_a_majority_has_told_of_it_and_not_by_who_announced_it() {
        let now = timers_now();
        let mut known = Waiters::new(now);
        let hear =
            |known: &mut Waiters, number| known.hear(Message::Released(number), 2, now).then(|| known.take_cue());
        assert_eq!(hear(&mut known, 7), None, "nobody listens");
        known.listen(1);
        for number in [15, 17, 0, 0, 19] {
            assert_eq!(hear(&mut known, number), Some(Some(Cue::Soon)), "{number}");
            assert_eq!(hear(&mut known, number), Some(Some(Cue::Go)), "{number}");
            if number > 1 {
                assert_eq!(hear(&mut known, number), None, "a third member tells of the same");
            }
        }
        let own = known.release(SELDOM, 9, now).unwrap();
        assert!((0..5).all(|_| !known.hear(own, 2, now)));
        assert!((0..5).any(|_| known.hear(Message::Released(21), 1, now)), "with one member");
        assert_eq!(known.take_cue(), Some(Cue::Go));
    }

    #[test]
    fn a_release_is_announced_where_others_may_wait() {
        let now = timers_now();
        let mut known = Waiters::new(now);
        let is_announced = |known: &mut Waiters, held_for, at| known.release(held_for, 1, at).is_some();
        assert!(!is_announced(&mut known, MOMENT, now), "it may be the only one");
        assert!(is_announced(&mut known, SELDOM, now), "others may have begun to wait meanwhile");
        assert!(!is_announced(&mut known, MOMENT, now));
        assert!(is_announced(&mut known, MOMENT, now + SELDOM), "so a client that is never refused hears of others");
        known.count(1);
        assert!(is_announced(&mut known, MOMENT, now + SELDOM));
        known.count(0);
        assert!(!is_announced(&mut known, MOMENT, now + SELDOM));
    }

    #[test]
    fn those_who_wait_go_in_the_order_in_which_they_were_heard() {
        let now = timers_now();
        let mut holder = Waiters::new(now);
        for ticket in [OTHER, 20, OTHER, 16] {
            assert!(!holder.hear(Message::Waits(ticket), 1, now));
        }
        let mut next = |at| holder.release(MOMENT, 1, at).unwrap();
        assert_eq!((next(now), next(now)), (Message::Next(OTHER), Message::Next(20)));
        assert_eq!(next(now + LINGER), Message::released(1), "who is not heard any more has given up");
        // Those who listen see it the same way.
        let mut one = Waiters::new(now);
        one.listen(1);
        let mut waits = |at| one.waits(7, at);
        assert_eq!((waits(now), waits(now)), (Some(Message::Waits(OWN)), None), "once in a while");
        assert!(waits(now + ANNOUNCE_AGAIN).is_some());
        one.hear(Message::Waits(OWN), 1, now);
        one.hear(Message::Waits(OTHER), 1, now);
        assert!(one.hear(Message::Next(OTHER), 1, now));
        assert_eq!(one.take_cue(), Some(Cue::Others));
        one.hear(Message::Waits(OTHER), 1, now);
        assert!(one.hear(Message::Next(OWN), 1, now));
        assert_eq!(one.take_cue(), Some(Cue::Go));
        assert_eq!(one.waits(7, now), Some(Message::Waits(OTHER)), "it has tried in vain, and waits once more");
        assert!(one.hear(Message::Next(OTHER), 1, now));
        assert_eq!(one.unlisten(now), None, "all have heard that it is next");
        assert_eq!(one.release(MOMENT, 1, now), Some(Message::released(1)), "a late message puts nobody back");
    }

    #[test]
    fn who_waits_no_more_is_not_next() {
        let now = timers_now();
        let mut gone = Waiters::new(now);
        gone.listen(1);
        assert_eq!(gone.unlisten(now), None, "nobody has heard of it");
        gone.listen(1);
        let waits = gone.waits(7, now).unwrap();
        let (mut holder, says) = (Waiters::new(now), gone.unlisten(now).unwrap());
        for message in [Message::Waits(OTHER), waits, says, waits] {
            holder.hear(message, 1, now);
        }
        let next = [(); 2].map(|()| holder.release(SELDOM, 9, now).unwrap());
        assert_eq!(next, [Message::Next(OTHER), Message::released(9)]);
        for number in 0..1_000 {
            holder.hear(Message::Gone(number), 1, now);
        }
        assert_eq!(holder.gone.len(), REMEMBERED);
    }

    #[test]
    fn who_has_released_lets_those_who_wait_go_first() {
        let now = timers_now();
        let mut known = Waiters::new(now);
        known.release(MOMENT, 1, now);
        assert!(!known.yields(), "nobody waits");
        known.hear(Message::Waits(OTHER), 1, now);
        known.release(MOMENT, 1, now);
        assert!(known.yields() && !known.yields(), "once for each release");
        known.release(MOMENT, 1, now);
        known.hear(Message::Released(9), 1, now);
        assert!(!known.yields(), "another has had it since");
    }

    #[test]
    fn who_listens_and_does_not_wait_is_let_first_once_in_a_while() {
        let now = timers_now();
        let mut known = Waiters::new(now);
        known.count(1);
        assert!(known.release(MOMENT, 1, now).is_some() && known.yields());
        known.yielded_in_vain();
        assert!(known.release(MOMENT, 1, now).is_none() && !known.yields());
        assert!(known.release(MOMENT, 1, now + SELDOM).is_some(), "it is asked again");
        known.hear(Message::Waits(OTHER), 1, now);
        known.yielded_in_vain();
        assert!(known.release(MOMENT, 1, now).is_some() && !known.queue.iter().any(|(ticket, _)| *ticket == OTHER));
        known.listen(1);
        known.yielded_in_vain();
        known.waits(1, now);
        known.release(MOMENT, 1, now);
        assert!(known.yields(), "it was refused, so another has it");
    }

    #[test]
    fn a_queue_has_an_end() {
        let now = timers_now();
        let mut known = Waiters::new(now);
        for ticket in 1..2_000 {
            known.hear(Message::Waits(2 * ticket), 1, now);
        }
        assert_eq!(known.queue.len(), LONGEST_QUEUE);
        assert!(!known.is_used(now + LINGER) && !known.is_needed());
    }
}
