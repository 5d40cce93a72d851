//! Pure: counts votes, and decides whether a majority of every list is reached or impossible.

use std::sync::Arc;

use super::electorate::{Layout, List, Processes};
use super::{Electorate, RunId};

/// The vote of one member in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote<'a> {
    /// Yes, from this process.
    Yes(&'a RunId),
    /// No, from this process.
    No(&'a RunId),
    /// No vote: the member failed, or its vote is invalid.
    Missing,
}

/// The decided part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Both outcomes are possible.
    Pending,
    /// A majority of every list voted yes.
    Won,
    /// No majority can be reached any more.
    Lost(Loss),
}

/// The reason why a round is lost.
///
/// It distinguishes a taken key from unreachable members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The refusals alone prevent a majority.
    Refused,
    /// Missing votes prevent a majority. The refusals alone do not.
    NoQuorum,
    /// One of the two reasons, depending on votes that have not arrived.
    Open,
}

/// Counts the votes on one request.
///
/// It counts processes, not names, because two names can lead to one process.
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
    /// A tally without votes.
    ///
    /// Electors without an admitted process cannot vote.
    #[must_use]
    pub fn new(electorate: &Electorate) -> Self {
        let layout = Arc::clone(electorate.layout());
        let votes = layout.seats.iter().map(|seat| (seat.process == 0).then_some(Ballot::Missing)).collect();
        Self { layout, votes, closed: false }
    }

    /// Counts the vote of the elector at `index`.
    ///
    /// Only the first vote is valid, only before [`Tally::close`], and only from the admitted process.
    pub fn on_vote(&mut self, index: usize, vote: Vote<'_>) {
        let open = self.votes.get_mut(index).filter(|vote| vote.is_none() && !self.closed);
        if let (Some(open), Some(seat)) = (open, self.layout.seats.get(index)) {
            *open = Some(match vote {
                Vote::Yes(run_id) if seat.admitted.as_ref() == Some(run_id) => Ballot::Yes,
                Vote::No(run_id) if seat.admitted.as_ref() == Some(run_id) => Ballot::No,
                _ => Ballot::Missing,
            });
        }
    }

    /// Ends the vote after the deadline: missing votes stay missing.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// The decided part of the round.
    #[must_use]
    pub fn progress(&self) -> Progress {
        match self.layout.lists.as_slice() {
            [list] => progress(&[self.count(list)]),
            lists => progress(&lists.iter().map(|list| self.count(list)).collect::<Vec<_>>()),
        }
    }

    /// Returns true if the elector at `index` has voted, or cannot vote.
    #[must_use]
    pub fn has_voted(&self, index: usize) -> bool {
        self.votes.get(index).is_none_or(Option::is_some)
    }

    /// Members and majority of a single list.
    ///
    /// `None` while two lists are joint.
    #[must_use]
    pub fn single_list(&self) -> Option<(usize, usize)> {
        match self.layout.lists.as_slice() {
            [list] => Some((list.members, list.quorum())),
            _ => None,
        }
    }

    /// Returns true if the elector at `index` is in a list.
    #[must_use]
    pub fn is_listed(&self, index: usize) -> bool {
        self.layout.lists.iter().any(|list| list.seats.contains(&index))
    }

    /// Distinct processes in a list that voted yes.
    #[must_use]
    pub fn listed_yes(&self) -> usize {
        size(self.voters((0..self.votes.len()).filter(|index| self.is_listed(*index)), Ballot::Yes))
    }

    /// Distinct processes that voted yes.
    #[must_use]
    pub fn yes(&self) -> usize {
        size(self.voters(0..self.votes.len(), Ballot::Yes))
    }

    /// Distinct processes that voted no, and did not vote yes under another name.
    #[must_use]
    pub fn no(&self) -> usize {
        let all = || 0..self.votes.len();
        size(self.voters(all(), Ballot::No) & !self.voters(all(), Ballot::Yes))
    }

    /// The number of members: the electors, and listed members without an elector.
    #[must_use]
    pub fn members(&self) -> usize {
        self.layout.members
    }

    /// Returns true if the processes that voted yes at these seats are a majority of every list.
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

/// The decided part of a round from the counts of all lists.
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
    /// Processes that have not voted, but can still vote no.
    pending: usize,
    /// The number of yes votes if all missing votes were yes.
    at_most_yes: usize,
}

#[cfg(test)]
mod tests;
