//! Extends many holds in pipelines of at most a hundred.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use super::Redlock;
use super::ballot::{Ballot, admitted};
use super::round::Round;
use crate::redlock::{
    Answers, ClockSample, Command, Electorate, Extend, ExtendRequest, KeyState, Loss, MemberError, Missing, Occupant,
    Progress, Reply, granted_until, renewed_until,
};
use crate::time::{Boottime, Clock};

/// Maximum number of holds per pipeline.
///
/// A round trip for many holds costs little for each, and the first hold must not wait long for the last.
const PIPELINE: usize = 100;

/// Polls all futures until all are ready.
async fn join_all(futures: impl Iterator<Item = impl Future<Output = ()> + Send>) {
    let mut futures: Vec<Pin<Box<_>>> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// One hold of the batch.
struct Hold<'a> {
    request: ExtendRequest,
    ballot: Ballot<'a>,
    missing: Vec<Missing>,
    others: Vec<Occupant>,
    /// The validity that a majority of yes votes earned.
    ///
    /// The inner `None`: the majority came too late.
    won: Option<Option<Boottime>>,
    /// The time at which refusals made a majority impossible.
    refused: Option<Boottime>,
}

impl<'a> Hold<'a> {
    fn new(ballot: &Ballot<'a>, request: ExtendRequest) -> Self {
        Self { request, ballot: ballot.clone(), missing: Vec::new(), others: Vec::new(), won: None, refused: None }
    }

    fn command(&self) -> Command {
        let ExtendRequest { key, value, ttl, .. } = &self.request;
        Command::Extend { key: key.clone(), value: value.clone(), ttl: *ttl }
    }

    fn on_reply(&mut self, index: usize, answers: &Answers, reply: Option<&Reply>) {
        match reply {
            Some(Reply::Extended { time }) => {
                self.ballot.timed_vote(index, answers, *time, true);
            }
            Some(Reply::Refused { holder, time }) => {
                if !self.ballot.timed_vote(index, answers, *time, false) {
                    return;
                }
                let member = self.ballot.name(index).clone();
                if *holder == KeyState::Missing {
                    // A repair needs a reading of the member's clock, because the key's end is a time on that clock.
                    let clock = |time| ClockSample { time, sent: answers.sent, received: answers.received };
                    self.missing.extend(time.map(clock).map(|clock| Missing { member, clock }));
                } else {
                    self.others.push(Occupant { member, holder: holder.clone() });
                }
            }
            Some(Reply::Failed(error)) => self.ballot.fail(index, error.clone()),
            _ => self.ballot.fail(index, MemberError::unexpected()),
        }
    }

    /// The outcome.
    ///
    /// A refusal after `latest` is not decisive, because the key can have been set again since an older refusal.
    fn outcome(self, started: Boottime, latest: Boottime) -> Extend {
        let refused_in_time = self.refused.is_some_and(|at| at <= latest);
        match (self.won, self.ballot.progress()) {
            (Some(Some(valid_until)), _) => {
                let (votes, missing, others) = (self.ballot.votes(), self.missing, self.others);
                Extend::Renewed { started, valid_until, votes, missing, others }
            }
            (Some(None), _) => Extend::TooLate,
            (None, Progress::Lost(Loss::Refused)) if refused_in_time => {
                Extend::Refused { refusals: self.ballot.tally().no() }
            }
            (None, _) => Extend::NoQuorum { failures: self.ballot.into_failures() },
        }
    }
}

impl<C: Clock + ?Sized> Redlock<C> {
    /// Extends many holds, and returns outcomes in the order of the requests.
    ///
    /// A pipeline to a member has at most a hundred holds.
    ///
    /// Each hold is decided when a majority has answered. Later answers change neither its outcome nor its validity.
    /// When all holds of a pipeline are decided, the remaining answers get half a node timeout, so that `votes` and
    /// `missing` describe a healthy quorum completely. The call takes at most one node timeout per hundred holds.
    ///
    /// If the caller names a validity, a round is valid only if it began and was decided before the end of that
    /// validity. Refusals are counted together within one node timeout, and the caller repeats the request for older
    /// ones (docs/dev/algorithm.md, "Continuity").
    pub async fn extend(&self, electorate: &Electorate, requests: Vec<ExtendRequest>) -> Vec<Extend> {
        let started = self.clock.boottime();
        let ballot = Ballot::new(electorate);
        let mut holds: Vec<Result<Hold<'_>, Extend>> = requests
            .into_iter()
            .map(|request| {
                let is_late = request.valid_until.is_some_and(|previous| started >= previous);
                if is_late { Err(Extend::TooLate) } else { Ok(Hold::new(&ballot, request)) }
            })
            .collect();
        let mut live: Vec<&mut Hold<'_>> = holds.iter_mut().filter_map(|hold| hold.as_mut().ok()).collect();
        if !live.is_empty() {
            // All are enqueued at once. Each pipeline gets one node timeout more than the one before it.
            let rounds = live.chunks_mut(PIPELINE).zip(1..);
            join_all(rounds.map(|(live, ahead)| {
                self.extend_round(electorate, live, started, self.settings.node_timeout.saturating_mul(ahead))
            }))
            .await;
        }
        let latest = started + self.settings.node_timeout;
        holds
            .into_iter()
            .map(|hold| hold.map_or_else(|decided| decided, |hold| hold.outcome(started, latest)))
            .collect()
    }

    async fn extend_round(
        &self,
        electorate: &Electorate,
        live: &mut [&mut Hold<'_>],
        started: Boottime,
        timeout: Duration,
    ) {
        let commands: Vec<Command> = live.iter().map(|hold| hold.command()).collect();
        let mut round = Round::send(electorate, admitted(electorate), timeout, commands);
        while let Some((index, answer)) = round.next().await {
            for (position, hold) in live.iter_mut().enumerate() {
                match &answer {
                    Ok(answers) => hold.on_reply(index, answers, answers.replies.get(position)),
                    Err(error) => hold.ballot.fail(index, error.clone()),
                }
                if hold.won.is_none() && hold.ballot.progress() == Progress::Won {
                    hold.won = Some(self.decide(&hold.request, started));
                }
                if hold.refused.is_none() && hold.ballot.progress() == Progress::Lost(Loss::Refused) {
                    hold.refused = Some(self.clock.boottime());
                }
            }
            if live.iter().all(|hold| hold.ballot.is_decided()) {
                round.wait_at_most(self.settings.node_timeout / 2);
            }
        }
        live.iter_mut().for_each(|hold| hold.ballot.close());
    }

    /// The new end of the validity, for a majority of yes votes at this moment.
    fn decide(&self, request: &ExtendRequest, started: Boottime) -> Option<Boottime> {
        let (now, drift) = (self.clock.boottime(), self.settings.drift);
        match request.valid_until {
            Some(previous) => renewed_until(started, now, previous, request.ttl, drift),
            None => granted_until(started, now, request.ttl, drift),
        }
    }
}
