//! The lock as the members have it.

use redlock_operator::time::Boottime;

use crate::{
    processes::{LOCK, now},
    servers::{KeyReading, Majority, Servers},
};

/// Determines the end of one hold from the keys on the members.
pub(super) struct Hold<'a> {
    servers: &'a Servers,
    value: String,
    end: Boottime,
    has_ended: bool,
    /// The key on the first member when it was silenced.
    silenced: Option<KeyReading>,
}

impl<'a> Hold<'a> {
    /// The current hold.
    pub(super) fn of(servers: &'a Servers) -> Self {
        let Majority::Holds { value, until } = servers.majority(LOCK, None) else { panic!("the lock is not held") };
        Self { servers, value, end: until, has_ended: false, silenced: None }
    }

    /// Silences all members, so that the lock ends when a majority no longer has the key.
    pub(super) fn silence(&mut self) {
        let seen = self.servers.silence(self.servers.ports().len(), LOCK);
        let has = |(value, until): (String, Boottime)| (value == self.value).then_some(until);
        let mut ends: Vec<_> = seen.iter().flatten().cloned().filter_map(has).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        (self.end, self.has_ended) = (ends.get(seen.len() / 2).copied().unwrap_or_else(now), true);
    }

    /// Silences the first member.
    pub(super) fn silence_one(&mut self) {
        self.silenced = self.servers.silence(1, LOCK).pop();
    }

    /// Reads the key on the members again.
    pub(super) fn observe(&mut self) {
        if self.has_ended {
            return;
        }
        match self.servers.majority(LOCK, self.silenced.as_ref()) {
            Majority::Holds { value, until } if value == self.value => self.end = until,
            Majority::Holds { .. } | Majority::DoesNot => {
                // The key expired, or was deleted since the last reading.
                (self.end, self.has_ended) = (self.end.min(now()), true);
            }
            Majority::Unknown => {}
        }
    }

    /// The time at which it ended, or will end without a renewal.
    pub(super) const fn end(&self) -> Boottime {
        self.end
    }

    /// Whether its end has passed.
    pub(super) fn is_over(&mut self) -> bool {
        self.observe();
        now() > self.end
    }
}
