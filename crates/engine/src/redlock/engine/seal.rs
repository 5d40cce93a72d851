//! Seals a hold: replaces its value, so that no replica can extend it.

use std::time::Duration;

use super::Redlock;
use super::ballot::{Ballot, admitted};
use super::round::Round;
use crate::redlock::{Command, Electorate, LockKey, LockValue, Loss, Progress, Reply, Seal};
use crate::time::Clock;

impl<C: Clock + ?Sized> Redlock<C> {
    /// Ends a hold without the consent of its holder, by replacing its value.
    ///
    /// When a majority holds `sealed`, no replica can extend the hold. The call is idempotent. A member that has lost
    /// the key does not confirm a seal, because a repair for it can be in flight.
    ///
    /// Each key lives for its remaining time plus `lock_delay`, which also delays foreign clients. It lives longer than
    /// the interval in which answers are counted together.
    pub async fn seal(
        &self,
        electorate: &Electorate,
        key: &LockKey,
        value: &LockValue,
        sealed: &LockValue,
        lock_delay: Duration,
    ) -> Seal {
        let (key, value, sealed) = (key.clone(), value.clone(), sealed.clone());
        let least = self.settings.node_timeout.saturating_mul(2);
        let command = Command::Seal { key, value, sealed, lock_delay, least };
        let mut ballot = Ballot::new(electorate);
        let mut round = Round::send(electorate, admitted(electorate), self.settings.node_timeout, [command]);
        let remaining = |reply: &Reply| match reply {
            Reply::Sealed { remaining } => Some(*remaining),
            _ => None,
        };
        let votes = ballot.count(&mut round, remaining).await;
        let ends = votes.into_iter().map(|(received, left)| received + left + self.settings.drift.allowance(left));
        match ballot.progress() {
            // Every majority that ever extended this hold shares a member with this one, and no extension shortens a
            // key. So the longest of these times covers every validity that any replica has recorded.
            Progress::Won => Seal::Sealed { until: ends.max().unwrap_or_default() },
            Progress::Lost(Loss::Refused) => Seal::Gone,
            _ => Seal::NoQuorum { failures: ballot.into_failures() },
        }
    }
}
