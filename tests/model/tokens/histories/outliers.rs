//! Counters that wrong clocks have left: what the leader makes of them, from every start.

use super::*;

const HOUR: i64 = 3_600 * SECOND;
const GREATEST: i64 = FencingToken::MAX.get();
const STARTS: [i64; 8] =
    [0, NOW / 1_000, NOW - 3 * HOUR, NOW, NOW + 2 * HOUR, NOW + 3 * DAY, NOW + 3_650 * DAY, GREATEST];

/// What the leader does about outliers.
#[derive(Clone, Copy)]
struct Leader {
    /// A counter a day ahead is one, while a majority is not.
    judges: bool,
    /// Even where a majority is ahead.
    always: bool,
    restarts: bool,
}

const RULE: Leader = Leader { judges: true, always: false, restarts: true };

impl Leader {
    fn ceiling(self, counters: &[i64; MEMBERS], out: Option<usize>) -> FencingToken {
        let names: Vec<String> = (0..MEMBERS).map(|member| member.to_string()).collect();
        let read: Vec<_> = (0..MEMBERS)
            .filter(|member| Some(*member) != out)
            .map(|member| (names[member].as_str(), token(counters[member])))
            .collect();
        match () {
            () if self.always => token(NOW + DAY),
            () if self.judges => ceiling(&read, &lists(), Some(UnixMicros(NOW))),
            () => FencingToken::OUTLIER,
        }
    }

    /// Levels, and restarts one outlier if all members are there. Whether that was all there is to do.
    fn acts(self, counters: &mut [i64; MEMBERS], out: Option<usize>) -> bool {
        let ceiling = self.ceiling(counters, out);
        let there = (0..MEMBERS).filter(|member| Some(*member) != out);
        let read: Vec<_> = there.map(|member| (member, token(counters[member]))).collect();
        let (highest, members) = behind(read, token(0), ceiling);
        members.into_iter().for_each(|member| counters[member] = counters[member].max(highest.get()));
        let outlier = counters.iter().position(|counter| token(*counter) >= ceiling);
        let Some(member) = outlier.filter(|_| self.restarts && out.is_none()) else { return true };
        // It is out then, and the ceiling is judged by the others.
        let ceiling = self.ceiling(counters, Some(member));
        let others =
            counters.iter().enumerate().filter(|(other, counter)| *other != member && token(**counter) < ceiling);
        let others: Vec<_> = others.map(|(_, counter)| token(*counter)).collect();
        counters[member] = restored(&others, NEEDED, token(0), token(NOW)).get();
        false
    }

    /// Whether a lock can be taken with any two that are there.
    fn serves(self, counters: &[i64; MEMBERS], out: Option<usize>) -> bool {
        let ceiling = self.ceiling(counters, out);
        (0..MEMBERS).filter(|left_out| out.is_none_or(|out| out == *left_out)).all(|left_out| {
            let mut voters = (0..MEMBERS).filter(|member| *member != left_out);
            voters.all(|member| token(counters[member] + 1) < ceiling)
        })
    }

    /// From how many starts no lock can be taken, however long it is waited.
    fn stuck(self, out: Option<usize>) -> Vec<[i64; MEMBERS]> {
        let mut stuck = Vec::new();
        for a in STARTS {
            for b in STARTS {
                for c in STARTS {
                    let mut counters = [a, b, c];
                    let last = (0..10).find(|_| self.acts(&mut counters, out));
                    assert!(last.is_some(), "the leader restarts members for ever, from {:?}", [a, b, c]);
                    // A majority of greatest numbers was never there: nobody is given one.
                    let spent = [a, b, c].iter().filter(|counter| **counter == GREATEST).count();
                    if spent < QUORUM && !self.serves(&counters.map(|counter| counter.min(GREATEST - 1)), out) {
                        stuck.push([a, b, c]);
                    }
                }
            }
        }
        stuck
    }
}

#[test]
fn from_every_start_of_counters_locks_can_be_taken_again() {
    assert_eq!(RULE.stuck(None), Vec::<[i64; MEMBERS]>::new());
}

#[test]
fn with_a_member_away_locks_wait_for_an_outlier_alone() {
    for start in RULE.stuck(Some(2)) {
        // It counts for nothing, so with the other one away no majority is left until that comes back.
        assert!(start[..2].contains(&GREATEST), "{start:?}");
    }
}

#[test]
fn without_a_restart_of_outliers_a_spent_counter_stays() {
    assert!(!Leader { restarts: false, ..RULE }.stuck(None).is_empty());
}

#[test]
fn with_outliers_left_out_though_a_majority_is_ahead() {
    // After a clock that was wrong for a while.
    let stuck = Leader { always: true, restarts: false, ..RULE }.stuck(None);
    assert!(stuck.contains(&[NOW + 3 * DAY; MEMBERS]), "{stuck:?}");
}

#[test]
fn what_a_single_wrong_clock_has_left_is_copied_to_nobody() {
    for ahead in [NOW + 3 * DAY, NOW + 3_650 * DAY, GREATEST] {
        let mut counters = [NOW, ahead, NOW - 3 * HOUR];
        let done = (0..10).find(|_| RULE.acts(&mut counters, None));
        assert!(done.is_some() && counters.iter().all(|counter| *counter <= NOW + DAY), "{counters:?}");
        let mut copied = [NOW, ahead, NOW - 3 * HOUR];
        Leader { judges: false, restarts: false, ..RULE }.acts(&mut copied, None);
        assert_eq!(copied[0] == ahead, ahead != GREATEST, "without the rule it would be");
    }
}
