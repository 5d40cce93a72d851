use super::Redlock;
use super::ballot::{Ballot, admitted};
use super::round::Round;
use crate::redlock::{Command, Electorate, LockKey, LockValue, Loss, MemberError, Progress, Reply, Seal};
use crate::time::{Boottime, Clock};
use std::time::Duration;

impl<C: Clock + ?Sized> Redlock<C> {
    /// Ends a hold without its holder's word: replaces the value by `sealed` until a majority holds that, so that no
    /// replica can extend any more. Idempotent. A member that has lost the key does not confirm a seal: a repair may be
    /// under way to it. The keys live on for what they had left plus `lock_delay`, which so binds foreign clients too, and
    /// for longer than answers are counted together.
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
        let mut longest = Duration::ZERO;
        let mut until = Boottime::default();
        let mut round = Round::send(electorate, admitted(electorate), self.settings.node_timeout, [command]);
        while !ballot.is_settled() {
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
                        longest = longest.max(*remaining);
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
            // Every majority that ever extended this hold shares a member with this one, and no extension shortens: the
            // longest of these times covers every validity that any replica knows of.
            Progress::Won => Seal::Sealed { longest, until },
            Progress::Lost(Loss::Refused) => Seal::Gone,
            _ => Seal::NoQuorum { failures: ballot.into_failures() },
        }
    }
}
