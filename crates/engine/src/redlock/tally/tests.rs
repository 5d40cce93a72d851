use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::redlock::{Answers, BoxFuture, Command, Elector, LockMember, MemberError, MemberName};

struct Named(MemberName);

impl LockMember for Named {
    fn name(&self) -> &MemberName {
        &self.0
    }

    fn send(&self, _commands: Vec<Command>) -> BoxFuture<'static, Result<Answers, MemberError>> {
        Box::pin(std::future::pending())
    }
}

fn process(number: u8) -> RunId {
    RunId::new(format!("run {number}"))
}

fn names(list: &[usize]) -> Vec<MemberName> {
    list.iter().map(|seat| MemberName::new(format!("m{seat}"))).collect()
}

/// Makes a tally. `processes` has the admitted process of each seat.
fn tally(processes: &[Option<u8>], lists: &[&[usize]]) -> Tally {
    let elector = |(seat, admitted): (usize, &Option<u8>)| Elector {
        member: Arc::new(Named(MemberName::new(format!("m{seat}")))),
        admitted: admitted.map(process),
    };
    let electors = processes.iter().enumerate().map(elector).collect();
    Tally::new(&match lists {
        [] => Electorate::single(electors),
        [old, new] => Electorate::joint(electors, names(old), names(new)),
        _ => panic!("one list or two"),
    })
}

const PENDING: Progress = Progress::Pending;
const WON: Progress = Progress::Won;
const REFUSED: Progress = Progress::Lost(Loss::Refused);
const NO_QUORUM: Progress = Progress::Lost(Loss::NoQuorum);
const OPEN: Progress = Progress::Lost(Loss::Open);

/// Casts the votes of all seats, in their order.
///
/// `y` and `n` are from the admitted process, `f` is a failure, and `x` is a yes of another process.
fn cast(tally: &mut Tally, processes: &[Option<u8>], votes: &str) -> Progress {
    for (seat, vote) in votes.chars().enumerate() {
        let run_id = process(processes[seat].unwrap_or(99));
        match vote {
            'y' => tally.on_vote(seat, Vote::Yes(&run_id)),
            'n' => tally.on_vote(seat, Vote::No(&run_id)),
            'x' => tally.on_vote(seat, Vote::Yes(&process(77))),
            'f' => tally.on_vote(seat, Vote::Missing),
            '.' => {}
            other => panic!("{other}"),
        }
    }
    tally.progress()
}

#[test]
fn an_outcome_is_reported_when_it_is_certain() {
    for (seats, votes, expected) in [
        (1, "", PENDING),
        (1, "y", WON),
        (1, "n", REFUSED),
        (1, "f", NO_QUORUM),
        (3, "y", PENDING),
        (3, "yy", WON),
        (3, "y.y", WON),
        (3, "nn", REFUSED),
        (3, "yn", PENDING),
        (3, "ynn", REFUSED),
        (3, "ynf", NO_QUORUM),
        (3, "nf", OPEN),
        (3, "nfn", REFUSED),
        (3, "nfy", NO_QUORUM),
        (3, "ff", NO_QUORUM),
        (3, "xx", NO_QUORUM),
        (3, "yxy", WON),
        (5, "yynn", PENDING),
        (5, "yynny", WON),
        (5, "ynn", PENDING),
        (5, "nnf", OPEN),
        (5, "fff", NO_QUORUM),
        (5, "nnn", REFUSED),
    ] {
        let processes: Vec<Option<u8>> = (0..seats).map(Some).collect();
        assert_eq!(cast(&mut tally(&processes, &[]), &processes, votes), expected, "{votes:?} of {seats}");
    }
}

#[test]
fn a_deadline_leaves_nothing_open() {
    for (votes, expected) in [("", NO_QUORUM), ("y", NO_QUORUM), ("n", NO_QUORUM), ("nf", NO_QUORUM), ("yy", WON)] {
        let processes = [Some(0), Some(1), Some(2)];
        let mut tally = tally(&processes, &[]);
        cast(&mut tally, &processes, votes);
        tally.close();
        assert_eq!(tally.progress(), expected, "{votes:?}");
        // A later vote is ignored.
        tally.on_vote(2, Vote::Yes(&process(2)));
        tally.on_vote(1, Vote::Yes(&process(1)));
        assert_eq!(tally.progress(), expected, "{votes:?}");
    }
}

#[test]
fn a_process_has_one_vote_under_all_its_names() {
    let twins = [Some(0), Some(0), Some(2)];
    assert_eq!(cast(&mut tally(&twins, &[]), &twins, "yyf"), NO_QUORUM);
    assert_eq!(cast(&mut tally(&twins, &[]), &twins, "yyy"), WON);
    assert_eq!(cast(&mut tally(&twins, &[]), &twins, "nnf"), NO_QUORUM, "nor do its refusals count twice");
    // The process refuses under its second name because of our own key. It has voted yes.
    let mut counted = tally(&twins, &[]);
    assert_eq!(cast(&mut counted, &twins, "yn"), PENDING);
    assert_eq!((counted.yes(), counted.no()), (1, 0));
    // All names lead to one process: lost before the first request.
    assert_eq!(tally(&[Some(0), Some(0), Some(0)], &[]).progress(), NO_QUORUM);
}

#[test]
fn a_member_that_is_not_admitted_has_no_vote() {
    let processes = [None, Some(1), Some(2)];
    assert_eq!(cast(&mut tally(&processes, &[]), &processes, "yy"), PENDING);
    assert_eq!(cast(&mut tally(&processes, &[]), &processes, "yyy"), WON);
    assert_eq!(tally(&[None, None, Some(2)], &[]).progress(), NO_QUORUM);
}

#[test]
fn a_joint_electorate_needs_both_majorities() {
    let processes = [Some(0), Some(1), Some(2), Some(3), Some(4)];
    for (votes, expected) in [
        ("yyy", PENDING),
        ("yy.y", PENDING),
        ("yyyy", WON),
        (".yyy", WON),
        ("yyyff", NO_QUORUM),
        ("nn", REFUSED),
        ("...nn", REFUSED),
        ("n..n", PENDING),
    ] {
        let mut tally = tally(&processes, &[&[0, 1, 2], &[2, 3, 4]]);
        assert_eq!(cast(&mut tally, &processes, votes), expected, "{votes:?}");
    }
    // A change from one member to three: the new members alone are no majority of the old list.
    let grown = [Some(0), Some(1), Some(2)];
    assert_eq!(cast(&mut tally(&grown, &[&[0], &[0, 1, 2]]), &grown, ".yy"), PENDING);
    assert_eq!(cast(&mut tally(&grown, &[&[0], &[0, 1, 2]]), &grown, "yy"), WON);
    // A listed member without an elector never answers.
    let two = [Some(0), Some(1)];
    assert_eq!(cast(&mut tally(&two, &[&[0, 1, 7], &[0, 1, 7]]), &two, "yf"), NO_QUORUM);
}

#[test]
fn a_listed_name_without_an_elector_is_one_member() {
    let two = [Some(0), Some(1)];
    assert_eq!(tally(&two, &[]).members(), 2);
    assert_eq!(tally(&two, &[&[0, 1, 7], &[0, 7, 8]]).members(), 4);
    // An elector in no list gets the keys.
    assert_eq!(tally(&[Some(0), Some(1), Some(2)], &[&[0, 1], &[0, 1]]).members(), 3);
}

proptest! {
    /// Two contenders never both win, however names, processes and votes are distributed.
    #[test]
    fn two_contenders_never_both_win(
        seats in prop::collection::vec((0_u8..6, any::<bool>()), 1..8), joint in any::<bool>(), split in 0_usize..8,
    ) {
        let processes: Vec<Option<u8>> = seats.iter().map(|(number, _)| Some(*number)).collect();
        // Each process has given its key to one of the two.
        let side_of = |process: &Option<u8>| seats.iter().find(|(number, _)| Some(*number) == *process).unwrap().1;
        let side: Vec<bool> = processes.iter().map(side_of).collect();
        let all: Vec<usize> = (0..seats.len()).collect();
        let (old, new) = (&all[..split.clamp(1, seats.len())], &all[split.min(seats.len() - 1)..]);
        let lists: &[&[usize]] = if joint { &[old, new] } else { &[] };
        let votes = |mine: bool| side.iter().map(|s| if *s == mine { 'y' } else { 'n' }).collect::<String>();
        let one = cast(&mut tally(&processes, lists), &processes, &votes(true));
        let other = cast(&mut tally(&processes, lists), &processes, &votes(false));
        prop_assert!(!(one == WON && other == WON));
    }

    #[test]
    fn a_certain_outcome_stays_and_every_round_ends(
        votes in prop::collection::vec(prop::sample::select(vec!['y', 'n', 'f', 'x']), 1..8),
    ) {
        let processes: Vec<Option<u8>> = (0..u8::try_from(votes.len()).unwrap()).map(Some).collect();
        let mut tally = tally(&processes, &[]);
        let mut last = tally.progress();
        for (seat, vote) in votes.iter().enumerate() {
            let one = format!("{}{vote}", ".".repeat(seat));
            let now = cast(&mut tally, &processes, &one);
            prop_assert!(matches!(last, Progress::Pending | Progress::Lost(Loss::Open)) || now == last);
            prop_assert!(last != OPEN || matches!(now, Progress::Lost(_)));
            last = now;
        }
        let yes = votes.iter().filter(|vote| **vote == 'y').count();
        prop_assert_eq!(last == WON, yes > votes.len() / 2);
        prop_assert!(last != PENDING && last != OPEN);
    }
}
