//! Pure: a hold as one replica knows it, and what the outcome of a renewal makes of it.

use std::time::Duration;

use kube::runtime::reflector::ObjectRef;

use super::end::End;
use crate::api::{DistributedLock, HeldQuorum};
use crate::redlock::{Extend, LockKey, Missing, Nonce, Votes, is_silence};
use crate::time::Boottime;

/// How soon a renewal without a majority is tried again.
/// Where a third of the interval is shorter than this, that counts.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// The first sights of one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Of the hold.
    pub held: Boottime,
    /// Of its end, if it ends.
    pub ending: Option<Boottime>,
}

/// What identifies a hold and says how to renew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The lock object.
    pub lock: ObjectRef<DistributedLock>,
    /// Its UID, part of the value's signature.
    pub uid: String,
    /// The quorum that granted it.
    pub quorum: HeldQuorum,
    /// The key in Redis.
    pub key: LockKey,
    /// This grant's nonce; with the UID and the quorum's key it gives the value.
    pub nonce: Nonce,
    /// Time to live set by each renewal.
    pub ttl: Duration,
    /// Between the starts of two renewals.
    pub renew_interval: Duration,
}

/// How a hold stands, as far as this replica knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Identity and settings.
    pub terms: Terms,
    /// The end of the validity that the last round earned. Before this replica has won a round it is only the time until which the
    /// leader waits for one.
    pub valid_until: Boottime,
    /// Votes of that round; none for a hold that was adopted and not renewed yet.
    pub votes: Option<Votes>,
    /// Start of the last round by this replica that had a majority.
    pub won: Option<Boottime>,
    /// Members that lacked the key in that round.
    pub missing: Vec<Missing>,
    /// The last round's trouble in words, if it had no majority.
    pub trouble: Option<String>,
    /// The last round had no majority because members were silent. One that answers no has been heard.
    pub silence: bool,
    /// A majority of the members has said that the key is not ours. Nothing revives the hold.
    pub refused: bool,
    /// Why the holder failed its own liveness check or heartbeat, and when this replica judged so.
    pub(in crate::lock) unwell: Option<(Boottime, End)>,
    /// The watch has shown it in the lock's status. A grant that is not may still be unknown to all other replicas.
    pub published: bool,
    pub(in crate::lock) due: Boottime,
    /// A renewal is under way.
    pub(in crate::lock) under_way: bool,
}

impl Hold {
    /// A hold that is valid until `valid_until`, and is renewed next at `due`.
    pub fn new(terms: Terms, valid_until: Boottime, due: Boottime) -> Self {
        Self {
            terms,
            valid_until,
            votes: None,
            won: None,
            missing: Vec::new(),
            trouble: None,
            silence: false,
            refused: false,
            unwell: None,
            published: false,
            due,
            under_way: false,
        }
    }

    /// A hold that a status names. The members have not been asked yet.
    pub fn named(terms: Terms, now: Boottime, due: Boottime) -> Self {
        let asked_until = now + terms.ttl;
        Self::new(terms, asked_until, due)
    }

    /// With the votes of the round that made it, and its start.
    #[must_use]
    pub fn granted(mut self, votes: Votes, started: Boottime) -> Self {
        (self.votes, self.won) = (Some(votes), Some(started));
        self
    }

    /// Why the holder failed its own liveness check or heartbeat, if that was after `moment`.
    ///
    /// A new leader ends no hold for what it missed before it led.
    pub fn unwell_since(&self, moment: Boottime) -> Option<&End> {
        self.unwell.as_ref().filter(|(at, _)| *at >= moment).map(|(_, end)| end)
    }

    /// When the next renewal is to begin.
    pub fn due(&self) -> Boottime {
        self.due
    }

    /// The votes of the last renewal, if that began less than a ttl ago.
    ///
    /// A member that restarted later is not admitted before the ttl has passed. So all of these votes are of processes that vote now, also
    /// when this replica was frozen meanwhile.
    pub fn votes_of(&self, now: Boottime) -> Option<Votes> {
        self.votes.filter(|_| self.won.is_some_and(|won| now < won + self.terms.ttl))
    }

    /// Whether the hold is known to be valid at `now`.
    pub fn is_valid(&self, now: Boottime) -> bool {
        !self.refused && now < self.valid_until
    }

    /// Takes the outcome of a renewal.
    pub(in crate::lock) fn settle(&mut self, outcome: Extend, now: Boottime) {
        self.under_way = false;
        if self.refused {
            return;
        }
        self.trouble = None;
        self.silence = match &outcome {
            Extend::NoQuorum { failures } => is_silence(failures),
            Extend::TooLate => true,
            Extend::Renewed { .. } | Extend::Refused { .. } => false,
        };
        match outcome {
            Extend::Renewed { started, valid_until, votes, missing, .. } => {
                let earned = self.won.map(|_| self.valid_until);
                self.valid_until = earned.map_or(valid_until, |earned| earned.max(valid_until));
                self.votes = Some(votes);
                self.won = Some(started);
                self.missing = missing;
                self.due = started + self.terms.renew_interval;
            }
            Extend::Refused { refusals } => {
                self.trouble = Some(format!("{refusals} members say that the key is not ours"));
                self.refused = true;
            }
            Extend::TooLate => {
                self.trouble = Some("the members answered too late".to_owned());
                self.due = self.retry(now);
            }
            Extend::NoQuorum { failures } => {
                let failures: Vec<_> =
                    failures.iter().map(|(member, failure)| format!("{member}: {failure}")).collect();
                self.trouble = Some(failures.join("; "));
                self.due = self.retry(now);
            }
        }
    }

    /// When a round without a majority is repeated: soon while there is a validity to lose.
    fn retry(&self, now: Boottime) -> Boottime {
        let interval = self.terms.renew_interval;
        now + if self.is_valid(now) { RETRY_AFTER.min(interval / 3) } else { interval }
    }
}
