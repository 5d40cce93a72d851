use crate::redlock::{Command, MemberError};
use std::collections::VecDeque;

/// More than this many are not worth their memory: the keys run out by themselves.
const MOST: usize = 4096;

/// Releases that a member could not be given, or whose delivery is unknown. They are delivered with the next
/// connection, so that a member which was cut off for a moment does not refuse the next holder for a whole TTL.
/// Harmless however late: a value is used for one attempt only, so it deletes that attempt's key or nothing.
#[derive(Default)]
pub(super) struct Owed(VecDeque<Command>);

impl Owed {
    pub(super) fn keep(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.0.extend(commands.into_iter().filter(|command| matches!(command, Command::Release { .. })));
        let excess = self.0.len().saturating_sub(MOST);
        self.0.drain(..excess);
    }

    /// A busy member gets its releases again; a fenced one has no votes, and will have forgotten its keys when it votes
    /// again.
    pub(super) fn refused(&mut self, command: Command, error: &MemberError) {
        if *error != MemberError::Fenced {
            self.keep([command]);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Command> {
        self.0.drain(..).collect()
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
