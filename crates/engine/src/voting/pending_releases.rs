//! Releases that a member has not confirmed, for its next connection.

use std::collections::{HashSet, VecDeque};

use crate::redlock::{Command, LockValue, MemberError};

/// Maximum number of outstanding replies on a connection.
///
/// Beyond it requests fail at once, so the memory for a frozen member is bounded.
pub(super) const MAX_IN_FLIGHT: usize = 1 << 15;
/// Maximum number of kept releases: twice the outstanding replies of a connection.
///
/// A member that froze under full load has confirmed none of them. Beyond this number releases are not worth their
/// memory, and the keys expire.
const MAX_KEPT: usize = 2 * MAX_IN_FLIGHT;

/// Releases that a member did not receive, or did not confirm.
///
/// The next connection delivers them, so that a member that was unreachable for a moment does not refuse the next
/// holder for a whole TTL. A late release is harmless: a value is used for one attempt only, so it deletes the key of
/// that attempt or nothing.
#[derive(Default)]
pub(super) struct PendingReleases {
    releases: VecDeque<Command>,
    /// Values of attempts that were not sent to the member.
    ///
    /// Without them, a member that is unreachable under full load would get a release for each lock of that time,
    /// instead of the releases of keys that it has.
    never_sent: HashSet<LockValue>,
}

impl PendingReleases {
    pub(super) fn keep(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.releases.extend(commands.into_iter().filter(|command| matches!(command, Command::Release { .. })));
        let excess = self.releases.len().saturating_sub(MAX_KEPT);
        self.releases.drain(..excess);
    }

    /// Records commands that are sent.
    ///
    /// A repair can set a key of an attempt that the member never received.
    pub(super) fn on_sent(&mut self, commands: &[Command]) {
        if !self.never_sent.is_empty() {
            for command in commands {
                if let Command::Repair { value, .. } = command {
                    self.never_sent.remove(value);
                }
            }
        }
    }

    /// Keeps the releases of commands that are not sent, because there is no connection or it is full.
    pub(super) fn keep_unsent(&mut self, commands: &[Command]) {
        for command in commands {
            match command {
                Command::Acquire { value, .. } if self.never_sent.len() < MAX_KEPT => {
                    self.never_sent.insert(value.clone());
                }
                Command::Release { value, .. } if self.never_sent.remove(value) => {}
                other => self.keep([other.clone()]),
            }
        }
    }

    /// Keeps a refused release.
    ///
    /// A busy member gets it again. A fenced member has no votes, and loses its keys before it votes again.
    pub(super) fn keep_refused(&mut self, command: Command, error: &MemberError) {
        if *error != MemberError::Fenced {
            self.keep([command]);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.releases.is_empty()
    }

    /// Takes the releases for the next connection, each of them once.
    ///
    /// A repair can set the keys of all attempts there, so no value is excluded any longer.
    pub(super) fn take(&mut self) -> Vec<Command> {
        self.never_sent.clear();
        let mut taken = HashSet::new();
        let is_first = |command: &Command| match command {
            Command::Release { key, value } => taken.insert((key.clone(), value.clone())),
            _ => true,
        };
        self.releases.drain(..).filter(is_first).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn release(key: usize) -> Command {
        Command::Release { key: key.to_string().into(), value: LockValue::from_text("v") }
    }

    #[test]
    fn only_releases_are_owed_and_the_newest_are_kept() {
        let (value, ttl) = (LockValue::from_text("v"), Duration::from_secs(1));
        let mut pending = PendingReleases::default();
        pending.keep([Command::Extend { key: "k".into(), value, ttl }]);
        assert_eq!(pending.take(), []);
        pending.keep((0..MAX_KEPT + 3).map(release));
        let kept = pending.take();
        assert_eq!((kept.len(), kept.first()), (MAX_KEPT, Some(&release(3))));
        assert_eq!(pending.take(), []);
    }

    /// A member answers the login, and freezes before it answers the release. Then both copies come back.
    #[test]
    fn a_release_that_came_back_twice_is_sent_once() {
        let mut pending = PendingReleases::default();
        pending.keep([release(1), release(1)]);
        assert_eq!(pending.take(), [release(1)]);
    }

    #[test]
    fn an_attempt_that_was_never_sent_needs_no_release() {
        let value = |text: &str| LockValue::from_text(text);
        let ttl = Duration::from_secs(1);
        let acquire =
            |v: &str| Command::Acquire { key: "k".into(), value: value(v), ttl, token: true, not_after: None };
        let release = |v: &str| Command::Release { key: "k".into(), value: value(v) };
        let mut pending = PendingReleases::default();
        pending.keep_unsent(&[acquire("a")]);
        pending.keep_unsent(&[release("before"), release("a")]);
        assert_eq!(pending.take(), [release("before")]);
        // There was a connection, and a repair can have set the key on it.
        pending.keep_unsent(&[acquire("b")]);
        assert_eq!(pending.take(), []);
        pending.keep_unsent(&[release("b")]);
        assert_eq!(pending.take(), [release("b")]);
        // The outage can be of any length.
        pending.keep([release("before")]);
        for n in 0..2 * MAX_KEPT {
            pending.keep_unsent(&[acquire(&n.to_string())]);
            pending.keep_unsent(&[release(&n.to_string())]);
        }
        assert_eq!(pending.take(), [release("before")]);
    }

    /// A script that has written cannot be killed.
    ///
    /// A member can refuse for hours, while locks are taken and released on the other members.
    #[test]
    fn a_member_that_stays_busy_is_owed_the_newest_releases_only() {
        let mut pending = PendingReleases::default();
        for n in 0..MAX_KEPT + 5 {
            pending.keep_refused(release(n), &MemberError::Busy);
        }
        pending.keep_refused(release(9), &MemberError::Fenced);
        let kept = pending.take();
        assert_eq!((kept.len(), kept.first()), (MAX_KEPT, Some(&release(5))));
        assert!(pending.is_empty());
    }
}
