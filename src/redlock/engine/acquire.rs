use super::Redlock;
use super::ballot::{Ballot, admitted};
use super::round::{Answer, Round};
use crate::redlock::{
    Acquire, AcquireRequest, Command, Electorate, FencingToken, Grant, LockKey, LockValue, Loss, MemberError, Progress,
    Reply, Seen, granted_until,
};
use crate::time::Clock;
use std::collections::BTreeMap;
use std::time::Duration;

/// Enqueues the release on every member, also those that did not answer, unless the lock was granted: at the latest
/// when the attempt is dropped. Members execute it after the attempt's `SET`.
struct ReleaseUnlessGranted<'a> {
    electorate: &'a Electorate,
    key: &'a LockKey,
    value: &'a LockValue,
    armed: bool,
}

impl ReleaseUnlessGranted<'_> {
    fn release(&mut self) {
        if std::mem::take(&mut self.armed) {
            for elector in self.electorate.electors() {
                let release = Command::Release { key: self.key.clone(), value: self.value.clone() };
                // Nobody waits for it: `send` has enqueued it.
                drop(elector.member.send(vec![release]));
            }
        }
    }
}

impl Drop for ReleaseUnlessGranted<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The first round: who set the key, with which token, and what the others have on it.
struct SetRound<'a> {
    ballot: Ballot<'a>,
    tokens: BTreeMap<usize, FencingToken>,
    seen: Vec<Seen>,
}

impl SetRound<'_> {
    fn on_answer(&mut self, (index, answer): Answer) {
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => return self.ballot.fail(index, error),
        };
        match answers.replies.first() {
            Some(Reply::Acquired { token, time }) => {
                if self.ballot.vote(index, &answers, Some(*time), true) {
                    self.tokens.insert(index, *token);
                }
            }
            Some(Reply::Refused { holder, time }) => {
                if self.ballot.vote(index, &answers, Some(*time), false) {
                    self.seen.push(Seen { member: self.ballot.name(index).clone(), holder: holder.clone() });
                }
            }
            Some(Reply::Failed(error)) => self.ballot.fail(index, error.clone()),
            _ => self.ballot.fail(index, MemberError::Other("unexpected answer".to_owned())),
        }
    }

    /// Lost: taken, or unreachable.
    fn into_loss(self) -> Acquire {
        let refusals = self.ballot.tally().no();
        if self.ballot.progress() == Progress::Lost(Loss::Refused) {
            let longest = self.seen.iter().filter_map(|seen| seen.holder.remaining()).max();
            Acquire::HeldByOther { refusals, longest, seen: self.seen }
        } else {
            Acquire::NoQuorum { refusals, failures: self.ballot.into_failures() }
        }
    }
}

impl<C: Clock + ?Sized> Redlock<C> {
    /// One attempt to acquire a lock: one round trip in the usual case, two if the majority's counters differ. Decided
    /// at a majority of yes, or when none can be reached any more; at most two node timeouts. Also a dropped attempt
    /// releases.
    pub async fn acquire(&self, electorate: &Electorate, request: AcquireRequest) -> Acquire {
        let AcquireRequest { key, value, ttl, hint } = request;
        let mut guard = ReleaseUnlessGranted { electorate, key: &key, value: &value, armed: true };
        let started = self.clock.boottime();
        let mut set = SetRound { ballot: Ballot::new(electorate), tokens: BTreeMap::new(), seen: Vec::new() };
        // Without a majority of admitted members no key is set anywhere.
        if set.ballot.progress() == Progress::Pending {
            self.set_round(&mut set, &mut guard, ttl, hint).await;
        }
        if set.ballot.progress() != Progress::Won {
            return set.into_loss();
        }
        let token = set.tokens.values().copied().max().unwrap_or_default();
        let stored = |index: usize| set.tokens.get(&index).is_some_and(|stored| *stored >= token);
        if !set.ballot.tally().is_majority(stored)
            && let Err(lost) = self.raise_round(electorate, &key, &value, token).await
        {
            return lost;
        }
        // The decision is now, after the second round if there was one: its time counts.
        match granted_until(started, self.clock.boottime(), ttl, self.settings.drift) {
            Some(valid_until) => {
                guard.armed = false;
                Acquire::Granted(Grant { token, started, valid_until, votes: set.ballot.votes() })
            }
            None => Acquire::Expired,
        }
    }

    async fn set_round(
        &self,
        set: &mut SetRound<'_>,
        guard: &mut ReleaseUnlessGranted<'_>,
        ttl: Duration,
        hint: FencingToken,
    ) {
        let electorate = guard.electorate;
        let command = Command::Acquire { key: guard.key.clone(), value: guard.value.clone(), ttl, hint };
        let mut round = Round::send(admitted(electorate), self.settings.node_timeout, |_| vec![command.clone()]);
        while !set.ballot.is_settled() {
            let Some(answer) = round.next().await else { break };
            set.on_answer(answer);
            if set.ballot.progress() == Progress::Lost(Loss::Open) {
                // Lost already; what is waited for is only the reason.
                guard.release();
            }
        }
        set.ballot.close();
        // Votes that are there already are reported, but the token is that of the majority that decided.
        if set.ballot.progress() == Progress::Won {
            let tokens = set.tokens.clone();
            while let Some(answer) = round.ready() {
                set.on_answer(answer);
            }
            set.tokens = tokens;
        }
    }

    /// Raises the counter to the token where the key still holds our value; a majority of such members is needed, or a
    /// later holder could be given a smaller token (docs/algorithm.md).
    async fn raise_round(
        &self,
        electorate: &Electorate,
        key: &LockKey,
        value: &LockValue,
        token: FencingToken,
    ) -> Result<(), Acquire> {
        let mut ballot = Ballot::new(electorate);
        let command = Command::RaiseCounter { key: key.clone(), value: value.clone(), token };
        let mut round = Round::send(admitted(electorate), self.settings.node_timeout, |_| vec![command.clone()]);
        while !ballot.is_settled() {
            let Some((index, answer)) = round.next().await else { break };
            match answer {
                Ok(answers) => match answers.replies.first() {
                    Some(Reply::Raised) => {
                        ballot.vote(index, &answers, None, true);
                    }
                    Some(Reply::NotOurs) => {
                        ballot.vote(index, &answers, None, false);
                    }
                    Some(Reply::Failed(error)) => ballot.fail(index, error.clone()),
                    _ => ballot.fail(index, MemberError::Other("unexpected answer".to_owned())),
                },
                Err(error) => ballot.fail(index, error),
            }
        }
        ballot.close();
        match ballot.progress() {
            Progress::Won => Ok(()),
            Progress::Lost(Loss::Refused) => Err(Acquire::Expired),
            _ => Err(Acquire::NoQuorum { refusals: ballot.tally().no(), failures: ballot.into_failures() }),
        }
    }
}
