use crate::redlock::{Command, LockValue, MemberError};
use std::collections::{HashSet, VecDeque};

/// Replies that may be outstanding on a connection. Beyond that jobs fail at once, so that what has to be remembered of a frozen
/// member has an end.
pub(super) const MOST_IN_FLIGHT: usize = 1 << 15;
/// Twice what may be outstanding on a connection: what a member that froze under full load has not confirmed is all owed to it.
/// Beyond that they are not worth their memory, and the keys run out by themselves.
const MOST: usize = 2 * MOST_IN_FLIGHT;

/// Releases that a member could not be given, or whose delivery is unknown. They are delivered with the next
/// connection, so that a member which was cut off for a moment does not refuse the next holder for a whole TTL.
/// Harmless however late: a value is used for one attempt only, so it deletes that attempt's key or nothing.
#[derive(Default)]
pub(super) struct Owed {
    releases: VecDeque<Command>,
    /// Values of attempts that the member never heard of. Without them a member that is away under
    /// full load would be owed a release for each lock that was taken meanwhile, in place of those whose keys it has.
    unheard: HashSet<LockValue>,
}

impl Owed {
    pub(super) fn keep(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.releases.extend(commands.into_iter().filter(|command| matches!(command, Command::Release { .. })));
        let excess = self.releases.len().saturating_sub(MOST);
        self.releases.drain(..excess);
    }

    /// Commands go to the member. A key may be set again by a repair, whatever the member has heard before.
    pub(super) fn on_sent(&mut self, commands: &[Command]) {
        if !self.unheard.is_empty() {
            for command in commands {
                if let Command::Repair { value, .. } = command {
                    self.unheard.remove(value);
                }
            }
        }
    }

    /// Keeps what is owed of commands that are not sent, since there is no connection or it takes no more.
    pub(super) fn keep_unsent(&mut self, commands: &[Command]) {
        for command in commands {
            match command {
                Command::Acquire { value, .. } if self.unheard.len() < MOST => {
                    self.unheard.insert(value.clone());
                }
                Command::Release { value, .. } if self.unheard.remove(value) => {}
                other => self.keep([other.clone()]),
            }
        }
    }

    /// A busy member gets its releases again; a fenced one has no votes, and will have forgotten its keys when it votes
    /// again.
    pub(super) fn refused(&mut self, command: Command, error: &MemberError) {
        if *error != MemberError::Fenced {
            self.keep([command]);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.releases.is_empty()
    }

    /// What is owed, for the next connection. On that one a key may be set again, whatever the member has heard before.
    pub(super) fn take(&mut self) -> Vec<Command> {
        self.unheard.clear();
        self.releases.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redlock::LockValue;
    use std::time::Duration;

    #[test]
    fn only_releases_are_owed_and_the_newest_are_kept() {
        let value = LockValue::from_text("v");
        let mut owed = Owed::default();
        owed.keep([Command::Extend { key: "k".into(), value: value.clone(), ttl: Duration::from_secs(1) }]);
        assert_eq!(owed.take(), []);
        let release = |n: usize| Command::Release { key: n.to_string().into(), value: value.clone() };
        owed.keep((0..MOST + 3).map(release));
        let kept = owed.take();
        assert_eq!((kept.len(), kept.first()), (MOST, Some(&release(3))));
        assert_eq!(owed.take(), []);
    }

    #[test]
    fn nothing_is_owed_for_an_attempt_that_the_member_never_heard_of() {
        let value = |text: &str| LockValue::from_text(text);
        let acquire = |v: &str| Command::Acquire {
            key: "k".into(),
            value: value(v),
            ttl: Duration::from_secs(1),
            token: true,
            not_after: None,
        };
        let release = |v: &str| Command::Release { key: "k".into(), value: value(v) };
        let mut owed = Owed::default();
        owed.keep_unsent(&[acquire("a")]);
        owed.keep_unsent(&[release("before"), release("a")]);
        assert_eq!(owed.take(), [release("before")]);
        // There was a connection, and on it the key may have been repaired.
        owed.keep_unsent(&[acquire("b")]);
        assert_eq!(owed.take(), []);
        owed.keep_unsent(&[release("b")]);
        assert_eq!(owed.take(), [release("b")]);
        // However long the member is away.
        owed.keep([release("before")]);
        for n in 0..2 * MOST {
            owed.keep_unsent(&[acquire(&n.to_string())]);
            owed.keep_unsent(&[release(&n.to_string())]);
        }
        assert_eq!(owed.take(), [release("before")]);
    }

    /// A script that has written cannot be killed, so a member may refuse for hours, while locks are taken and released on the others.
    #[test]
    fn a_member_that_stays_busy_is_owed_the_newest_releases_only() {
        let release = |n: usize| Command::Release { key: n.to_string().into(), value: LockValue::from_text("v") };
        let mut owed = Owed::default();
        for n in 0..MOST + 5 {
            owed.refused(release(n), &MemberError::Busy);
        }
        owed.refused(release(9), &MemberError::Fenced);
        let kept = owed.take();
        assert_eq!((kept.len(), kept.first()), (MOST, Some(&release(5))));
        assert!(owed.is_empty());
    }
}
