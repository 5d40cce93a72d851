use super::{Elector, Electorate, MemberName, RunId};

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
    lists: Vec<List>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Seat {
    admitted: Option<RunId>,
    /// The admitted process as a set of one; empty without one.
    process: Processes,
    vote: Option<Ballot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ballot {
    Yes,
    No,
    Missing,
}

/// A member list: how many it names, and the seats of those that have an elector. The others are never heard of.
#[derive(Clone, Debug)]
struct List {
    members: usize,
    seats: Vec<usize>,
}

impl List {
    fn quorum(&self) -> usize {
        self.members / 2 + 1
    }
}

/// A set of admitted processes, one bit each.
type Processes = u64;

fn size(processes: Processes) -> usize {
    processes.count_ones() as usize
}

impl Tally {
    /// No votes yet. Electors without an admitted process have lost their vote already.
    #[must_use]
    pub fn new(electorate: &Electorate) -> Self {
        let electors = electorate.electors();
        let seat = |elector: &Elector| {
            // The first seat with this process lends its number; beyond the bits of a set there are no votes.
            let first = electors.iter().position(|other| other.admitted == elector.admitted).map(u32::try_from);
            let process = match (&elector.admitted, first) {
                (Some(_), Some(Ok(first))) => Processes::checked_shl(1, first).unwrap_or(0),
                _ => 0,
            };
            Seat { admitted: elector.admitted.clone(), process, vote: (process == 0).then_some(Ballot::Missing) }
        };
        let position = |name: &MemberName| electors.iter().position(|elector| elector.member.name() == name);
        let list =
            |names: &Vec<MemberName>| List { members: names.len(), seats: names.iter().filter_map(position).collect() };
        Self {
            seats: electors.iter().map(seat).collect(),
            lists: electorate.lists().iter().map(list).collect(),
            closed: false,
        }
    }

    /// Takes the vote of the elector at `index`. Only the first counts, only before [`Tally::close`], and only from the
    /// admitted process.
    pub fn on_vote(&mut self, index: usize, vote: Vote) -> Progress {
        if let Some(seat) = self.seats.get_mut(index).filter(|seat| seat.vote.is_none() && !self.closed) {
            seat.vote = Some(match vote {
                Vote::Yes(run_id) if seat.admitted.as_ref() == Some(&run_id) => Ballot::Yes,
                Vote::No(run_id) if seat.admitted.as_ref() == Some(&run_id) => Ballot::No,
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
        let counts = || self.lists.iter().map(|list| self.count(list));
        if counts().all(|count| count.yes >= count.quorum) {
            return Progress::Won;
        }
        if counts().any(|count| count.no > count.members - count.quorum) {
            return Progress::Lost(Loss::Refused);
        }
        if counts().all(|count| count.at_most_yes >= count.quorum) {
            return Progress::Pending;
        }
        let refusal_possible = counts().any(|count| count.no + count.pending > count.members - count.quorum);
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
        size(self.voters(0..self.seats.len(), Ballot::Yes))
    }

    /// Distinct processes that said no, and did not say yes under another name.
    #[must_use]
    pub fn no(&self) -> usize {
        let all = || 0..self.seats.len();
        size(self.voters(all(), Ballot::No) & !self.voters(all(), Ballot::Yes))
    }

    /// All electors.
    #[must_use]
    pub fn members(&self) -> usize {
        self.seats.len()
    }

    /// Whether the processes that said yes at these seats are a majority of every list.
    #[must_use]
    pub fn is_majority(&self, among: impl Fn(usize) -> bool) -> bool {
        self.lists.iter().all(|list| {
            let chosen = list.seats.iter().copied().filter(|seat| among(*seat));
            size(self.voters(chosen, Ballot::Yes)) >= list.quorum()
        })
    }

    fn voters(&self, seats: impl IntoIterator<Item = usize>, vote: Ballot) -> Processes {
        let seats = seats.into_iter().map(|seat| &self.seats[seat]);
        seats.filter(|seat| seat.vote == Some(vote)).fold(0, |processes, seat| processes | seat.process)
    }

    fn count(&self, list: &List) -> Count {
        let voters = |vote| self.voters(list.seats.iter().copied(), vote);
        let (yes, no) = (voters(Ballot::Yes), voters(Ballot::No));
        let silent =
            list.seats.iter().map(|seat| &self.seats[*seat]).filter(|seat| seat.vote.is_none() && !self.closed);
        let pending = silent.fold(0, |processes, seat| processes | seat.process);
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
