use super::{Electorate, MemberName, RunId};
use std::collections::BTreeSet;

/// One member's say in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Yes, from this process.
    Yes(RunId),
    /// No, from this process.
    No(RunId),
    /// None: it failed, or its vote must not count.
    Missing,
}

/// What is certain about a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Both outcomes are possible.
    Pending,
    /// A majority of every list said yes.
    Won,
    /// No majority can be reached any more.
    Lost(Loss),
}

/// Why a round is lost: "taken" and "unreachable" are never mixed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The refusals alone leave no majority.
    Refused,
    /// The refusals alone do not: members are missing.
    NoQuorum,
    /// One of these, which it is depends on votes to come.
    Open,
}

/// Counts the votes of one question. Votes are counted by process, not by name: two names may lead to one process.
#[derive(Clone, Debug)]
pub struct Tally {
    seats: Vec<Seat>,
    lists: Vec<Vec<usize>>,
    /// Members of a list that have no elector: never to be heard of.
    absent: Vec<usize>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Seat {
    admitted: Option<RunId>,
    vote: Option<Vote>,
}

impl Tally {
    /// No votes yet. Electors without an admitted process have lost their vote already.
    #[must_use]
    pub fn new(electorate: &Electorate) -> Self {
        let seats = electorate
            .electors()
            .iter()
            .map(|elector| Seat {
                admitted: elector.admitted.clone(),
                vote: if elector.admitted.is_none() { Some(Vote::Missing) } else { None },
            })
            .collect();
        let position = |name: &MemberName| electorate.electors().iter().position(|e| e.member.name() == name);
        let lists: Vec<Vec<usize>> =
            electorate.lists().iter().map(|list| list.iter().filter_map(position).collect()).collect();
        let absent = electorate.lists().iter().zip(&lists).map(|(list, found)| list.len() - found.len()).collect();
        Self { seats, lists, absent, closed: false }
    }

    /// Takes the vote of the elector at `index`. Only the first counts, only before [`Tally::close`], and only from the
    /// admitted process.
    pub fn on_vote(&mut self, index: usize, vote: Vote) -> Progress {
        if let Some(seat) = self.seats.get_mut(index).filter(|seat| seat.vote.is_none() && !self.closed) {
            let counts = match &vote {
                Vote::Yes(run_id) | Vote::No(run_id) => seat.admitted.as_ref() == Some(run_id),
                Vote::Missing => false,
            };
            seat.vote = Some(if counts { vote } else { Vote::Missing });
        }
        self.progress()
    }

    /// The deadline has passed: who has not voted will not.
    pub fn close(&mut self) -> Progress {
        self.closed = true;
        self.progress()
    }

    /// What is certain by now.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let counts: Vec<Count> = (0..self.lists.len()).map(|list| self.count(list)).collect();
        if counts.iter().all(|count| count.yes >= count.quorum) {
            return Progress::Won;
        }
        if counts.iter().any(|count| count.no > count.members - count.quorum) {
            return Progress::Lost(Loss::Refused);
        }
        if counts.iter().all(|count| count.at_most_yes >= count.quorum) {
            return Progress::Pending;
        }
        let refusal_possible = counts.iter().any(|count| count.no + count.pending > count.members - count.quorum);
        Progress::Lost(if refusal_possible { Loss::Open } else { Loss::NoQuorum })
    }

    /// Whether the elector at `index` has voted, or cannot.
    #[must_use]
    pub fn has_voted(&self, index: usize) -> bool {
        self.seats.get(index).is_none_or(|seat| seat.vote.is_some())
    }

    /// Distinct processes that said yes.
    #[must_use]
    pub fn yes(&self) -> usize {
        self.voters(0..self.seats.len(), |vote| matches!(vote, Vote::Yes(_))).len()
    }

    /// Distinct processes that said no, and did not say yes under another name.
    #[must_use]
    pub fn no(&self) -> usize {
        let yes = self.voters(0..self.seats.len(), |vote| matches!(vote, Vote::Yes(_)));
        self.voters(0..self.seats.len(), |vote| matches!(vote, Vote::No(_))).difference(&yes).count()
    }

    /// Electors that a vote counts of, or counted.
    #[must_use]
    pub fn members(&self) -> usize {
        self.seats.len()
    }

    /// Whether the processes that said yes at these seats are a majority of every list.
    #[must_use]
    pub fn is_majority(&self, among: impl Fn(usize) -> bool) -> bool {
        self.lists.iter().enumerate().all(|(list, seats)| {
            let chosen = seats.iter().copied().filter(|seat| among(*seat));
            self.voters(chosen, |vote| matches!(vote, Vote::Yes(_))).len() >= self.quorum(list)
        })
    }

    fn quorum(&self, list: usize) -> usize {
        (self.lists[list].len() + self.absent[list]) / 2 + 1
    }

    fn voters(&self, seats: impl IntoIterator<Item = usize>, which: impl Fn(&Vote) -> bool) -> BTreeSet<&RunId> {
        let votes = seats.into_iter().filter_map(|seat| self.seats[seat].vote.as_ref()).filter(|vote| which(vote));
        votes.filter_map(|vote| if let Vote::Yes(id) | Vote::No(id) = vote { Some(id) } else { None }).collect()
    }

    fn count(&self, list: usize) -> Count {
        let seats = &self.lists[list];
        let yes = self.voters(seats.iter().copied(), |vote| matches!(vote, Vote::Yes(_)));
        let no = self.voters(seats.iter().copied(), |vote| matches!(vote, Vote::No(_)));
        let pending: BTreeSet<&RunId> = if self.closed {
            BTreeSet::new()
        } else {
            seats
                .iter()
                .map(|seat| &self.seats[*seat])
                .filter(|s| s.vote.is_none())
                .filter_map(|s| s.admitted.as_ref())
                .collect()
        };
        Count {
            members: seats.len() + self.absent[list],
            quorum: self.quorum(list),
            no: no.difference(&yes).count(),
            pending: pending.difference(&no).filter(|id| !yes.contains(*id)).count(),
            at_most_yes: yes.union(&pending).count(),
            yes: yes.len(),
        }
    }
}

/// The votes within one list, by process.
struct Count {
    members: usize,
    quorum: usize,
    yes: usize,
    no: usize,
    /// Processes that may still say no and have not.
    pending: usize,
    /// If all that may still vote said yes.
    at_most_yes: usize,
}
