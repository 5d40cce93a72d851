//! Counts the votes on one request, and keeps the reasons of missing votes.

use std::collections::BTreeMap;

use super::round::Round;
use crate::redlock::{
    Answers, ClockSample, Elector, Electorate, FencingToken, Loss, MemberError, MemberFailure, MemberName, Progress,
    Reply, Tally, Vote, Votes,
};
use crate::time::{Boottime, UnixMicros};

/// The electors with an admitted process. Only these can vote.
pub(super) fn admitted(electorate: &Electorate) -> impl Iterator<Item = (usize, &Elector)> + Clone {
    electorate.electors().iter().enumerate().filter(|(_, elector)| elector.admitted.is_some())
}

/// The votes on one request, and the reasons of missing votes.
#[derive(Clone)]
pub(super) struct Ballot<'a> {
    electorate: &'a Electorate,
    tally: Tally,
    failures: BTreeMap<usize, MemberFailure>,
}

impl<'a> Ballot<'a> {
    pub(super) fn new(electorate: &'a Electorate) -> Self {
        let without_vote = electorate.electors().iter().enumerate().filter(|(_, elector)| elector.admitted.is_none());
        let failures = without_vote.map(|(index, _)| (index, MemberFailure::NotAdmitted)).collect();
        Self { electorate, tally: Tally::new(electorate), failures }
    }

    pub(super) fn name(&self, index: usize) -> &'a MemberName {
        self.electorate.electors()[index].member.name()
    }

    /// Returns true if the process that answered still has its counter.
    pub(super) fn remembers(&self, answers: &Answers, number: FencingToken) -> bool {
        self.electorate.remembers(&answers.run_id, number)
    }

    /// Counts a vote that must carry the member's clock, if clocks are checked.
    ///
    /// Returns true if the vote is valid.
    pub(super) fn timed_vote(&mut self, index: usize, answers: &Answers, time: Option<UnixMicros>, yes: bool) -> bool {
        if time.is_none() && self.electorate.checks_clocks() {
            self.fail(index, MemberFailure::ClockStepped);
            return false;
        }
        self.vote(index, answers, time, yes)
    }

    /// Excludes an elector that gets no request.
    pub(super) fn leave_out(&mut self, index: usize) {
        self.tally.on_vote(index, Vote::Missing);
    }

    /// Counts a vote, and returns true if it is valid.
    ///
    /// `time` is the member's clock, if the answer carries it.
    pub(super) fn vote(&mut self, index: usize, answers: &Answers, time: Option<UnixMicros>, yes: bool) -> bool {
        if self.electorate.electors()[index].admitted.as_ref() != Some(&answers.run_id) {
            self.fail(index, MemberFailure::NotAdmitted);
            return false;
        }
        let sample = time.map(|time| ClockSample { time, sent: answers.sent, received: answers.received });
        if sample.is_some_and(|sample| !self.electorate.clock_is_steady(&answers.run_id, &sample)) {
            self.fail(index, MemberFailure::ClockStepped);
            return false;
        }
        let run_id = &answers.run_id;
        self.tally.on_vote(index, if yes { Vote::Yes(run_id) } else { Vote::No(run_id) });
        true
    }

    pub(super) fn fail(&mut self, index: usize, failure: impl Into<MemberFailure>) {
        self.tally.on_vote(index, Vote::Missing);
        self.failures.entry(index).or_insert(failure.into());
    }

    /// Counts answers until the result is certain, and ends the vote.
    ///
    /// `yes` reads a yes vote, and [`Reply::NotOurs`] is a no vote. Returns valid yes votes, each with the time of its
    /// answer.
    pub(super) async fn count<T>(&mut self, round: &mut Round, yes: fn(&Reply) -> Option<T>) -> Vec<(Boottime, T)> {
        let mut counted = Vec::new();
        while !self.is_decided() {
            let Some((index, answer)) = round.next().await else { break };
            match answer.as_ref().map(|answers| (answers, answers.replies.first())) {
                Ok((answers, Some(Reply::NotOurs))) => {
                    self.vote(index, answers, None, false);
                }
                Ok((_, Some(Reply::Failed(error)))) => self.fail(index, error.clone()),
                Ok((answers, reply)) => match reply.and_then(yes) {
                    Some(vote) => {
                        if self.vote(index, answers, None, true) {
                            counted.push((answers.received, vote));
                        }
                    }
                    None => self.fail(index, MemberError::unexpected()),
                },
                Err(error) => self.fail(index, error.clone()),
            }
        }
        self.close();
        counted
    }

    pub(super) fn progress(&self) -> Progress {
        self.tally.progress()
    }

    /// Returns true if more answers cannot change the result.
    pub(super) fn is_decided(&self) -> bool {
        !matches!(self.progress(), Progress::Pending | Progress::Lost(Loss::Open))
    }

    /// Ends the vote.
    ///
    /// If the result is open, electors without a vote have timed out.
    pub(super) fn close(&mut self) {
        if self.is_decided() {
            return;
        }
        for index in 0..self.electorate.electors().len() {
            if !self.tally.has_voted(index) {
                self.failures.entry(index).or_insert(MemberFailure::Member(MemberError::TimedOut));
            }
        }
        self.tally.close();
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn votes(&self) -> Votes {
        Votes { yes: self.tally.yes(), of: self.tally.members() }
    }

    pub(super) fn into_failures(self) -> Vec<(MemberName, MemberFailure)> {
        let electors = self.electorate.electors();
        self.failures.into_iter().map(|(index, failure)| (electors[index].member.name().clone(), failure)).collect()
    }
}
