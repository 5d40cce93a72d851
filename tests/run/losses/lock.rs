//! The lock as the members have it.

use redlock_operator::time::Boottime;

use crate::{
    processes::{LOCK, now},
    servers::{Majority, Servers},
};

/// Looks at one hold until it has ended.
pub(super) struct Hold<'a> {
    servers: &'a Servers,
    value: String,
    end: Boottime,
    has_ended: bool,
}

impl<'a> Hold<'a> {
    /// The one of now.
    pub(super) fn of(servers: &'a Servers) -> Self {
        let Majority::Holds { value, until } = servers.majority(LOCK) else { panic!("the lock is not held") };
        Self { servers, value, end: until, has_ended: false }
    }

    /// Nothing renews it any more, and it ends then.
    pub(super) fn ends_at(&mut self, end: Boottime) {
        (self.end, self.has_ended) = (end, true);
    }

    /// The members are asked again.
    pub(super) fn look(&mut self) {
        if self.has_ended {
            return;
        }
        match self.servers.majority(LOCK) {
            Majority::Holds { value, until } if value == self.value => self.end = until,
            Majority::Holds { .. } | Majority::DoesNot => {
                // It ended by itself, or was deleted since the last look.
                (self.end, self.has_ended) = (self.end.min(now()), true);
            }
            Majority::Unknown => {}
        }
    }

    /// When it ended, or will end if it is not renewed.
    pub(super) const fn end(&self) -> Boottime {
        self.end
    }

    /// Whether its time has passed.
    pub(super) fn is_over(&mut self) -> bool {
        self.look();
        now() > self.end
    }
}
