//! Acquires a lock: a round of votes, and a second round if the token counters differ.

use std::sync::Arc;
use std::time::Duration;

use super::Redlock;
use super::ballot::{Ballot, admitted};
use super::release::release_everywhere;
use super::round::Round;
use crate::redlock::{
    Acquire, AcquireRequest, Answers, Command, Elector, Electorate, FencingToken, Grant, LockKey, LockValue, Loss,
    MemberError, MemberFailure, Occupant, Progress, Reply, Votes, granted_until, held_at_once,
};
use crate::time::{Boottime, Clock};

/// Minimum wait for more votes when the numbers of the first majority differ.
const MIN_GRACE: Duration = Duration::from_millis(1);

/// Releases the key on every member when it is dropped, unless the lock was granted.
///
/// The release also goes to members that did not answer. They execute it after the attempt's `SET`.
struct ReleaseUnlessGranted<'a> {
    electorate: &'a Electorate,
    key: &'a LockKey,
    value: &'a LockValue,
    armed: bool,
}

impl ReleaseUnlessGranted<'_> {
    fn release(&mut self) {
        if std::mem::take(&mut self.armed) {
            release_everywhere(self.electorate, self.key, self.value);
        }
    }
}

impl Drop for ReleaseUnlessGranted<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The first round: its votes, their numbers, and the content of keys on members that refused.
struct SetRound<'a> {
    ballot: Ballot<'a>,
    /// Numbers of yes votes, in the order of their arrival.
    numbers: Vec<(usize, FencingToken)>,
    occupants: Vec<Occupant>,
}

impl SetRound<'_> {
    fn on_answer(&mut self, (index, answer): (usize, Result<Answers, MemberError>)) {
        let answers = match answer {
            Ok(answers) => answers,
            Err(error) => return self.ballot.fail(index, error),
        };
        match answers.replies.first() {
            Some(Reply::Acquired { token, .. }) if *token >= FencingToken::OUTLIER => {
                self.ballot.fail(index, MemberError::CounterSpent);
            }
            Some(Reply::Acquired { token, .. }) if !self.ballot.remembers(&answers, *token) => {
                self.ballot.fail(index, MemberFailure::Forgotten);
            }
            Some(Reply::Acquired { token, time }) => {
                let counts = self.ballot.timed_vote(index, &answers, *time, true);
                if counts && self.ballot.tally().is_listed(index) {
                    self.numbers.push((index, *token));
                }
            }
            Some(Reply::Refused { holder, time }) => {
                if self.ballot.timed_vote(index, &answers, *time, false) {
                    self.occupants.push(Occupant { member: self.ballot.name(index).clone(), holder: holder.clone() });
                }
            }
            Some(Reply::Failed(error)) => self.ballot.fail(index, error.clone()),
            _ => self.ballot.fail(index, MemberError::unexpected()),
        }
    }

    /// The token, if a majority has stored it.
    ///
    /// While two lists are joint it is the largest number of all.
    fn token(&self) -> Option<FencingToken> {
        let tally = self.ballot.tally();
        let numbers = || self.numbers.iter().map(|(_, number)| *number);
        match tally.single_list() {
            Some((members, quorum)) if tally.listed_yes() == self.numbers.len() => {
                held_at_once(numbers().collect(), members, quorum)
            }
            _ => {
                let token = numbers().max()?;
                let stored = |index| self.numbers.iter().any(|(voter, number)| *voter == index && *number >= token);
                tally.is_majority(stored).then_some(token)
            }
        }
    }

    /// The voters whose counters the second round raises to one token.
    ///
    /// `None` if there are no such voters.
    ///
    /// They are the first majority that answered. If a client can raise counters only by `reach`, they are the highest
    /// majority within that distance.
    fn to_raise(&self, reach: Option<u32>) -> Option<Vec<(usize, FencingToken)>> {
        let quorum = self.ballot.tally().single_list().map_or(self.numbers.len(), |(_, quorum)| quorum);
        let mut numbers = self.numbers.clone();
        let Some(reach) = reach else { return numbers.get(..quorum).map(<[_]>::to_vec) };
        numbers.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
        let is_near = |group: &&[(usize, FencingToken)]| match group {
            [(_, highest), .., (_, lowest)] => highest.get() - lowest.get() <= i64::from(reach),
            _ => true,
        };
        numbers.windows(quorum).find(is_near).map(<[_]>::to_vec)
    }

    /// The result of a lost round: the key is taken, or too few members voted.
    fn into_loss(self) -> Acquire {
        if self.ballot.progress() == Progress::Lost(Loss::Refused) {
            let refusals = self.ballot.tally().no();
            let longest = self.occupants.iter().filter_map(|occupant| occupant.holder.remaining()).max();
            Acquire::HeldByOther { refusals, longest, occupants: self.occupants }
        } else {
            Acquire::NoQuorum { failures: self.ballot.into_failures() }
        }
    }
}

/// The end of an attempt.
enum Decided {
    /// The lock is held.
    ///
    /// The first round can still bring more votes.
    Won(Grant, Round),
    /// The first round is lost.
    ///
    /// Its votes have the reason.
    LostAtOnce,
    /// The attempt is lost after a majority of yes votes.
    Lost(Acquire),
}

/// The votes of a grant that arrive after its decision.
///
/// They complete the number of members that have the key, and change neither token nor validity.
pub struct LateVotes<'a>(Option<(SetRound<'a>, Round)>);

impl LateVotes<'_> {
    /// Counts all votes that arrive within this time.
    ///
    /// `None` without a grant. It returns early when all members have answered.
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
    /// Attempts to acquire a lock.
    ///
    /// It takes one round trip in the usual case, and two if counters differ and votes are missing. It ends at a
    /// majority of yes votes, or when none is possible, after at most two node timeouts. A dropped attempt also
    /// releases the key.
    pub async fn acquire(&self, electorate: &Electorate, request: AcquireRequest) -> Acquire {
        self.attempt(electorate, request).await.0
    }

    /// Attempts to acquire a lock, and also returns votes that arrive after the decision.
    pub async fn attempt<'a>(&self, electorate: &'a Electorate, request: AcquireRequest) -> (Acquire, LateVotes<'a>) {
        let mut set = SetRound {
            ballot: Ballot::new(electorate),
            numbers: Vec::with_capacity(electorate.electors().len()),
            occupants: Vec::new(),
        };
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
        let AcquireRequest { key, value, ttl, token } = request;
        let mut guard = ReleaseUnlessGranted { electorate, key: &key, value: &value, armed: true };
        let started = self.clock.boottime();
        // Without a majority of admitted members the attempt sets no key.
        if set.ballot.progress() != Progress::Pending {
            return Decided::LostAtOnce;
        }
        let mut round = self.set_round(set, &mut guard, (ttl, token), started).await;
        if set.ballot.progress() != Progress::Won {
            return Decided::LostAtOnce;
        }
        let token = if token {
            match self.agree_on_token(set, &mut round, &guard, started).await {
                Ok(token) => token,
                Err(lost) => return Decided::Lost(lost),
            }
        } else {
            FencingToken::ZERO
        };
        // The elapsed time includes the second round, if there was one, so the validity is shorter by it.
        match granted_until(started, self.clock.boottime(), ttl, self.settings.drift) {
            Some(valid_until) => {
                guard.armed = false;
                Decided::Won(Grant { token, started, valid_until, votes: set.ballot.votes() }, round)
            }
            None => Decided::Lost(Acquire::Expired),
        }
    }

    /// Runs the first round.
    ///
    /// If the members' clocks are checked, a member can set the key within one node timeout only.
    async fn set_round(
        &self,
        set: &mut SetRound<'_>,
        guard: &mut ReleaseUnlessGranted<'_>,
        (ttl, token): (Duration, bool),
        started: Boottime,
    ) -> Round {
        let (electorate, timeout) = (guard.electorate, self.settings.node_timeout);
        let (key, value) = (guard.key.clone(), guard.value.clone());
        let command = |not_after| Command::Acquire { key: key.clone(), value: value.clone(), ttl, token, not_after };
        let mut round = if electorate.checks_clocks() {
            let last = |elector: &Elector| electorate.earliest(elector, started + timeout);
            let last: Vec<_> = electorate.electors().iter().map(last).collect();
            admitted(electorate)
                .filter(|(index, _)| last[*index].is_none())
                .for_each(|(index, _)| set.ballot.fail(index, MemberFailure::ClockUnread));
            let asked = admitted(electorate).filter(|(index, _)| last[*index].is_some());
            Round::send_each(electorate, asked, timeout, |index| Arc::from([command(last[index])]))
        } else {
            Round::send(electorate, admitted(electorate), timeout, [command(None)])
        };
        while !set.ballot.is_decided() {
            let Some(answer) = round.next().await else { break };
            set.on_answer(answer);
            if set.ballot.progress() == Progress::Lost(Loss::Open) {
                // The round is lost. The remaining answers only give the reason.
                guard.release();
            }
        }
        set.ballot.close();
        round
    }

    /// Makes the token of a majority from the numbers of its votes.
    ///
    /// If the numbers of the first majority differ, this waits for the other votes as long as the first majority took.
    /// With all votes there is always a token. Otherwise a second round raises counters.
    async fn agree_on_token(
        &self,
        set: &mut SetRound<'_>,
        round: &mut Round,
        guard: &ReleaseUnlessGranted<'_>,
        started: Boottime,
    ) -> Result<FencingToken, Acquire> {
        if let Some(token) = set.token() {
            // Votes that have arrived are counted in the result. The token is that of the majority that decided.
            let decided = set.numbers.len();
            while let Some(answer) = round.ready() {
                set.on_answer(answer);
            }
            set.numbers.truncate(decided);
            return Ok(token);
        }
        round.wait_at_most(self.clock.boottime().since(started).max(MIN_GRACE));
        while let Some(answer) = round.next().await {
            set.on_answer(answer);
            if let Some(token) = set.token() {
                return Ok(token);
            }
        }
        let voters = set.to_raise(self.token_reach).ok_or(Acquire::CountersApart)?;
        self.raise_round(guard, &voters).await
    }

    /// Raises the counters of these voters to the largest of their numbers.
    ///
    /// The key must still have our value.
    ///
    /// Each of them has to confirm, because otherwise a later holder could get a smaller token (docs/dev/algorithm.md).
    async fn raise_round(
        &self,
        guard: &ReleaseUnlessGranted<'_>,
        voters: &[(usize, FencingToken)],
    ) -> Result<FencingToken, Acquire> {
        let electorate = guard.electorate;
        let token = voters.iter().map(|(_, number)| *number).max().unwrap_or_default();
        let number = |index: usize| voters.iter().find(|(voter, _)| *voter == index).map(|(_, number)| *number);
        let mut ballot = Ballot::new(electorate);
        (0..electorate.electors().len())
            .filter(|index| number(*index).is_none())
            .for_each(|index| ballot.leave_out(index));
        let asked = admitted(electorate).filter(|(index, _)| number(*index).is_some());
        let mut round = Round::send_each(electorate, asked, self.settings.node_timeout, |index| {
            let (key, value) = (guard.key.clone(), guard.value.clone());
            let behind = number(index).map_or(0, |number| token.get() - number.get());
            let behind = u32::try_from(behind).unwrap_or(u32::MAX);
            Arc::from([Command::RaiseCounter { key, value, token, behind }])
        });
        ballot.count(&mut round, |reply| (*reply == Reply::Raised).then_some(())).await;
        match ballot.progress() {
            Progress::Won => Ok(token),
            Progress::Lost(Loss::Refused) => Err(Acquire::Expired),
            _ => Err(Acquire::NoQuorum { failures: ballot.into_failures() }),
        }
    }
}
