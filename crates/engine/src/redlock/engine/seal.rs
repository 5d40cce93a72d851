//! Seals a hold: replaces its value, so that no replica can extend it.

use std::time::Duration;

use super::Redlock;
use super::ballot::{Ballot, admitted};
use super::round::Round;
use crate::redlock::{Command, Electorate, LockKey, LockValue, Loss, MemberError, Progress, Reply, Seal};
use crate::time::{Boottime, Clock};

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
        let mut until = Boottime::default();
        let mut round = Round::send(electorate, admitted(electorate), self.settings.node_timeout, [command]);
        while !ballot.is_decided() {
            let Some((index, answer)) = round.next().await else { break };
            let answers = match answer {
                Ok(answers) => answers,
                Err(error) => {
                    ballot.fail(index, error);
                    continue;
                }
            };
            match answers.replies.first() {
                Some(Reply::Sealed { remaining }) => {
                    if ballot.vote(index, &answers, None, true) {
                        until = until.max(answers.received + *remaining + self.settings.drift.allowance(*remaining));
                    }
                }
                Some(Reply::NotOurs) => {
                    ballot.vote(index, &answers, None, false);
                }
                Some(Reply::Failed(error)) => ballot.fail(index, error.clone()),
                _ => ballot.fail(index, MemberError::Other("unexpected answer".to_owned())),
            }
        }
        ballot.close();
        match ballot.progress() {
            // Every majority that ever extended this hold shares a member with this one, and no extension shortens a
            // key. So the longest of these times covers every validity that any replica has recorded.
            Progress::Won => Seal::Sealed { until },
            Progress::Lost(Loss::Refused) => Seal::Gone,
            _ => Seal::NoQuorum { failures: ballot.into_failures() },
        }
    }
}
