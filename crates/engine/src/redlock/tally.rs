use super::electorate::{Layout, List, Processes};
use super::{Electorate, RunId};
use std::sync::Arc;

/// One member's say in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote<'a> {
    /// Yes, from this process.
    Yes(&'a RunId),
    /// No, from this process.
    No(&'a RunId),
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
    layout: Arc<Layout>,
    votes: Vec<Option<Ballot>>,
    closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ballot {
    Yes,
    No,
    Missing,
}

fn size(processes: Processes) -> usize {
    processes.count_ones() as usize
}

impl Tally {
    /// No votes yet. Electors without an admitted process have lost their vote already.
    #[must_use]
    pub fn new(electorate: &Electorate) -> Self {
        let layout = Arc::clone(electorate.layout());
        let votes = layout.seats.iter().map(|seat| (seat.process == 0).then_some(Ballot::Missing)).collect();
        Self { layout, votes, closed: false }
    }

    /// Takes the vote of the elector at `index`. Only the first counts, only before [`Tally::close`], and only from the
    /// admitted process.
    pub fn on_vote(&mut self, index: usize, vote: Vote<'_>) -> Progress {
        let open = self.votes.get_mut(index).filter(|vote| vote.is_none() && !self.closed);
        if let (Some(open), Some(seat)) = (open, self.layout.seats.get(index)) {
            *open = Some(match vote {
                Vote::Yes(run_id) if seat.admitted.as_ref() == Some(run_id) => Ballot::Yes,
                Vote::No(run_id) if seat.admitted.as_ref() == Some(run_id) => Ballot::No,
                _ => Ballot::Missing,
            });
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
        match self.layout.lists.as_slice() {
            [list] => progress(&[self.count(list)]),
            lists => progress(&lists.iter().map(|list| self.count(list)).collect::<Vec<_>>()),
        }
    }

    /// Whether the elector at `index` has voted, or cannot.
    #[must_use]
    pub fn has_voted(&self, index: usize) -> bool {
        self.votes.get(index).is_none_or(Option::is_some)
    }

    /// Members and majority of the one list; `None` while two lists are joint.
    #[must_use]
    pub fn single_list(&self) -> Option<(usize, usize)> {
        match self.layout.lists.as_slice() {
            [list] => Some((list.members, list.quorum())),
            _ => None,
        }
    }

    /// Whether the elector at `index` is in a list.
    #[must_use]
    pub fn is_listed(&self, index: usize) -> bool {
        self.layout.lists.iter().any(|list| list.seats.contains(&index))
    }

    /// Distinct processes in a list that said yes.
    #[must_use]
    pub fn listed_yes(&self) -> usize {
        size(self.voters((0..self.votes.len()).filter(|index| self.is_listed(*index)), Ballot::Yes))
    }

    /// Distinct processes that said yes.
    #[must_use]
    pub fn yes(&self) -> usize {
        size(self.voters(0..self.votes.len(), Ballot::Yes))
    }

    /// Distinct processes that said no, and did not say yes under another name.
    #[must_use]
    pub fn no(&self) -> usize {
        let all = || 0..self.votes.len();
        size(self.voters(all(), Ballot::No) & !self.voters(all(), Ballot::Yes))
    }

    /// All electors.
    #[must_use]
    pub fn members(&self) -> usize {
        self.votes.len()
    }

    /// Whether the processes that said yes at these seats are a majority of every list.
    #[must_use]
    pub fn is_majority(&self, among: impl Fn(usize) -> bool) -> bool {
        self.layout.lists.iter().all(|list| {
            let chosen = list.seats.iter().copied().filter(|seat| among(*seat));
            size(self.voters(chosen, Ballot::Yes)) >= list.quorum()
        })
    }

    fn voters(&self, seats: impl IntoIterator<Item = usize>, vote: Ballot) -> Processes {
        let seats = seats.into_iter().filter(|seat| self.votes[*seat] == Some(vote));
        seats.fold(0, |processes, seat| processes | self.layout.seats[seat].process)
    }

    fn count(&self, list: &List) -> Count {
        let (mut yes, mut no, mut pending) = (0, 0, 0);
        for seat in &list.seats {
            let process = self.layout.seats[*seat].process;
            match self.votes[*seat] {
                Some(Ballot::Yes) => yes |= process,
                Some(Ballot::No) => no |= process,
                None if !self.closed => pending |= process,
                Some(Ballot::Missing) | None => {}
            }
        }
        Count {
            members: list.members,
            quorum: list.quorum(),
            yes: size(yes),
            no: size(no & !yes),
            pending: size(pending & !no & !yes),
            at_most_yes: size(yes | pending),
        }
    }
}

/// What the votes in all lists make certain.
fn progress(counts: &[Count]) -> Progress {
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

#[cfg(test)]
mod tests;
