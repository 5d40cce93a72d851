//! The waiters for one key, as a client records them.
//!
//! Pure: time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::channel_message::Message;

/// The hold, or the time without announcements, after which a release is announced.
///
/// One more command has no noticeable cost then. Announcing each release of a short hold without waiters would cost the members
/// a tenth more.
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which a subscription outlives its last waiter.
///
/// A waiter's announcement is valid for the same time.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// Interval of a waiter's announcements, because some clients have subscribed since the last one.
pub(in crate::client) const ANNOUNCE_AGAIN: Duration = Duration::from_millis(500);
/// Maximum number of recorded waiters.
const MAX_QUEUE: usize = 256;
/// Maximum number of recorded tickets of departed waiters.
///
/// A slow member can deliver their announcements later.
const MAX_DEPARTED: usize = 64;

/// The instruction for a waiting caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Hint {
    /// A majority of the members has released the key: try now.
    Retry,
    /// A member has released the key, and the other members follow: try a moment later.
    RetrySoon,
    /// The key was released, and another client goes first.
    OtherFirst,
}

pub(super) struct Waiters {
    /// True while a caller of this client has a subscription.
    pub(super) has_subscriber: bool,
    /// The ticket of the current or last caller.
    ticket: i64,
    announced_wait: Option<Instant>,
    /// True if a release named this ticket, so other clients have removed it.
    was_next: bool,
    /// The pending hint of the caller.
    hint: Option<Hint>,
    /// Other waiters in the order of their first announcement, with the time of the last one.
    queue: VecDeque<(i64, Instant)>,
    /// Tickets of departed waiters.
    departed: VecDeque<i64>,
    /// The number of the last release.
    last: i64,
    /// The number of members that delivered the last release.
    confirmations: usize,
    /// The time of the last announcement.
    announced: Instant,
    /// True if other clients wanted the key at the last check.
    is_contended: bool,
    /// True if this client was the last holder.
    is_ours: bool,
    /// The end of the last subscription.
    last_used: Instant,
}

impl Waiters {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            has_subscriber: false,
            ticket: 0,
            announced_wait: None,
            was_next: false,
            hint: None,
            queue: VecDeque::new(),
            departed: VecDeque::new(),
            last: 0,
            confirmations: 0,
            announced: now,
            is_contended: false,
            is_ours: false,
            last_used: now,
        }
    }

    /// A caller subscribes, because another client has the key.
    pub(super) fn subscribe(&mut self, fresh: i64) {
        (self.has_subscriber, self.hint, self.is_contended) = (true, None, true);
        self.draw_ticket(fresh);
    }

    fn draw_ticket(&mut self, fresh: i64) {
        (self.ticket, self.announced_wait, self.was_next) = (Message::ticket(fresh), None, false);
    }

    /// The caller unsubscribes.
    ///
    /// Returns the message for other clients, if they still have its ticket.
    pub(super) fn unsubscribe(&mut self, now: Instant) -> Option<Message> {
        (self.has_subscriber, self.last_used) = (false, now);
        let is_done = self.announced_wait.is_none() || self.was_next;
        (!is_done).then_some(Message::Departed(self.ticket))
    }

    /// The announcement of the waiting caller, once per interval.
    pub(super) fn announce_wait(&mut self, fresh: i64, now: Instant) -> Option<Message> {
        if self.was_next {
            // The caller was next, and its attempt failed.
            self.draw_ticket(fresh);
        }
        self.is_contended = true;
        let is_due = self.announced_wait.is_none_or(|at| now >= at + ANNOUNCE_AGAIN);
        is_due.then(|| {
            self.announced_wait = Some(now);
            Message::Waiting(self.ticket)
        })
    }

    pub(super) const fn take_hint(&mut self) -> Option<Hint> {
        self.hint.take()
    }

    /// Handles a message.
    ///
    /// Each member delivers it, and `quorum` of them are a majority. Returns true if the caller must wake.
    pub(super) fn on_message(&mut self, message: Message, quorum: usize, now: Instant) -> bool {
        let (number, is_others) = match message {
            Message::Waiting(ticket) => {
                self.on_waiter(ticket, now);
                return false;
            }
            Message::Departed(ticket) => {
                self.remove_ticket(ticket);
                return false;
            }
            Message::Next(ticket) => (ticket, ticket != self.ticket),
            Message::Released(number) => (number, false),
        };
        if number != self.last {
            (self.last, self.confirmations, self.is_ours) = (number, 0, false);
            self.remove_ticket(number);
        }
        self.was_next |= number == self.ticket;
        self.confirmations += 1;
        let hint = match self.confirmations {
            1 if is_others => Hint::OtherFirst,
            count if count == quorum && !is_others => Hint::Retry,
            1 => Hint::RetrySoon,
            _ => return false,
        };
        if self.confirmations >= quorum && number <= 1 {
            // Releases of Redisson have no number of their own.
            self.confirmations = 0;
        }
        self.hint = self.has_subscriber.then_some(hint);
        self.has_subscriber
    }

    fn on_waiter(&mut self, ticket: i64, now: Instant) {
        if ticket == self.ticket || self.departed.contains(&ticket) {
            return;
        }
        self.is_contended = true;
        if let Some((_, announced_at)) = self.queue.iter_mut().find(|(other, _)| *other == ticket) {
            *announced_at = now;
        } else if self.queue.len() < MAX_QUEUE {
            self.queue.push_back((ticket, now));
        }
    }

    fn remove_ticket(&mut self, ticket: i64) {
        self.queue.retain(|(other, _)| *other != ticket);
        if !self.departed.contains(&ticket) {
            if self.departed.len() == MAX_DEPARTED {
                self.departed.pop_front();
            }
            self.departed.push_back(ticket);
        }
    }

    /// The announcement of a release by this client.
    ///
    /// `None` if it is unlikely that another client waits. A waiting caller of this client gets a hint in each case.
    pub(super) fn release(&mut self, held_for: Duration, fresh: i64, now: Instant) -> Option<Message> {
        self.is_ours = true;
        let is_due = self.is_contended || held_for >= ANNOUNCE_INTERVAL || now >= self.announced + ANNOUNCE_INTERVAL;
        let message = is_due.then(|| {
            self.queue.retain(|(_, announced_at)| now < *announced_at + LINGER);
            let message = self.queue.pop_front().map_or(Message::released(fresh), |(ticket, _)| Message::Next(ticket));
            (self.last, self.announced) = (message.number(), now);
            self.remove_ticket(self.last);
            // Deliveries of this client's own announcement are ignored.
            self.confirmations = usize::MAX / 2;
            message
        });
        let hint = if matches!(message, Some(Message::Next(_))) { Hint::OtherFirst } else { Hint::Retry };
        self.hint = self.has_subscriber.then_some(hint);
        message
    }

    /// Records the number of other clients that got an announcement.
    pub(super) fn set_listeners(&mut self, others: u64) {
        self.is_contended = others > 0 || !self.queue.is_empty();
    }

    /// Returns true once after each release of a contended key: other clients go first.
    pub(super) const fn yields(&mut self) -> bool {
        let was_ours = std::mem::replace(&mut self.is_ours, false);
        was_ours && self.is_contended
    }

    /// Records that no other client took the key, so subscribers without an announcement do not wait.
    pub(super) fn on_unused_yield(&mut self) {
        self.is_contended = !self.queue.is_empty();
    }

    /// Returns true if the key needs a subscription.
    ///
    /// Otherwise the other waiters are forgotten.
    pub(super) fn is_used(&mut self, now: Instant) -> bool {
        let is_used = self.has_subscriber || now < self.last_used + LINGER;
        self.is_contended &= is_used;
        is_used
    }
}

#[cfg(test)]
mod tests;
