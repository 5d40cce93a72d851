use super::Redlock;
use super::ballot::{Ballot, admitted};
use super::round::{Answer, Round};
use crate::redlock::{
    Acquire, AcquireRequest, Command, Electorate, FencingToken, Grant, LockKey, LockValue, Loss, MemberError, Progress,
    Reply, Seen, Votes, granted_until,
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

/// How an attempt ended.
enum Decided {
    /// The lock is held; the first round may bring more votes.
    Won(Grant, Round),
    /// The first round says why not.
    LostAtOnce,
    /// Lost after a majority had said yes.
    Lost(Acquire),
}

/// The votes of a grant that had not arrived when it was decided. They say on how many members the key is, and change neither
/// token nor validity.
pub struct LateVotes<'a>(Option<(SetRound<'a>, Round)>);

impl LateVotes<'_> {
    /// All votes that have arrived by now or arrive within this time; none without a grant. It ends early when all members have
    /// answered.
    pub async fn within(&mut self, time: Duration) -> Option<Votes> {
        let (set, round) = self.0.as_mut()?;
        round.wait_at_most(time);
        while let Some(answer) = round.next().await {
            set.on_answer(answer);
        }
        Some(set.ballot.votes())
    }
}

impl<C: Clock + ?Sized> Redlock<C> {
    /// One attempt to acquire a lock: one round trip in the usual case, two if the majority's counters differ. Decided
    /// at a majority of yes, or when none can be reached any more; at most two node timeouts. Also a dropped attempt
    /// releases.
    pub async fn acquire(&self, electorate: &Electorate, request: AcquireRequest) -> Acquire {
        self.attempt(electorate, request).await.0
    }

    /// As [`Self::acquire`], with what is still to be heard of a grant after it was decided.
    pub async fn attempt<'a>(&self, electorate: &'a Electorate, request: AcquireRequest) -> (Acquire, LateVotes<'a>) {
        let mut set = SetRound { ballot: Ballot::new(electorate), tokens: BTreeMap::new(), seen: Vec::new() };
        match self.decide_attempt(electorate, &mut set, request).await {
            Decided::Won(grant, round) => (Acquire::Granted(grant), LateVotes(Some((set, round)))),
            Decided::Lost(outcome) => (outcome, LateVotes(None)),
            Decided::LostAtOnce => (set.into_loss(), LateVotes(None)),
        }
    }

    async fn decide_attempt(
        &self,
        electorate: &Electorate,
        set: &mut SetRound<'_>,
        request: AcquireRequest,
    ) -> Decided {
        let AcquireRequest { key, value, ttl, hint } = request;
        let mut guard = ReleaseUnlessGranted { electorate, key: &key, value: &value, armed: true };
        let started = self.clock.boottime();
        // Without a majority of admitted members no key is set anywhere.
        if set.ballot.progress() != Progress::Pending {
            return Decided::LostAtOnce;
        }
        let round = self.set_round(set, &mut guard, ttl, hint).await;
        if set.ballot.progress() != Progress::Won {
            return Decided::LostAtOnce;
        }
        let token = set.tokens.values().copied().max().unwrap_or_default();
        let stored = |index: usize| set.tokens.get(&index).is_some_and(|stored| *stored >= token);
        if !set.ballot.tally().is_majority(stored)
            && let Err(lost) = self.raise_round(electorate, &key, &value, token).await
        {
            return Decided::Lost(lost);
        }
        // The decision is now, after the second round if there was one: its time counts.
        match granted_until(started, self.clock.boottime(), ttl, self.settings.drift) {
            Some(valid_until) => {
                guard.armed = false;
                Decided::Won(Grant { token, started, valid_until, votes: set.ballot.votes() }, round)
            }
            None => Decided::Lost(Acquire::Expired),
        }
    }

    async fn set_round(
        &self,
        set: &mut SetRound<'_>,
        guard: &mut ReleaseUnlessGranted<'_>,
        ttl: Duration,
        hint: FencingToken,
    ) -> Round {
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
        round
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
