//! Pure: fencing tokens, and the numbers to which token counters are restored.

use std::fmt;

/// A fencing token: a later holder's is greater (docs/dev/algorithm.md).
///
/// It is an integer from 0 to 2^53 - 1, so that it is exact in JSON and in Lua's doubles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(i64);

impl FencingToken {
    /// The state before the first token.
    pub const ZERO: Self = Self(0);
    /// The greatest token.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// `None` outside `0 ..= 2^53 - 1`.
    #[must_use]
    pub const fn new(token: i64) -> Option<Self> {
        if token < 0 || token > Self::MAX.0 { None } else { Some(Self(token)) }
    }

    /// The first number that no counter can legitimately have: too few numbers would remain above it.
    pub const OUTLIER: Self = Self((1 << 53) - (1 << 50));

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The token `step` above, at most [`FencingToken::MAX`].
    #[must_use]
    pub const fn saturating_add(self, step: u32) -> Self {
        let sum = self.0 + step as i64;
        if sum > Self::MAX.0 { Self::MAX } else { Self(sum) }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number to which a process without its counter is restored.
///
/// It is above every token that a majority can have issued.
///
/// It is the highest of the `counters` of other admitted members, the floor in the status, and the time in Unix
/// microseconds. The counters are used only if there are `needed` of them, which share a member with every majority.
///
/// A number from [`FencingToken::OUTLIER`] on is ignored. Read the counters only after the rejoin delay, because an acquisition can be in
/// flight before its end.
#[must_use]
pub fn restored(counters: &[FencingToken], needed: usize, floor: FencingToken, clock: FencingToken) -> FencingToken {
    let usable = |number: &FencingToken| *number < FencingToken::OUTLIER;
    let counters = counters.iter().copied().filter(usable);
    let highest = counters.clone().max().filter(|_| counters.count() >= needed).unwrap_or_default();
    highest.max(Some(floor).filter(usable).unwrap_or_default()).max(clock)
}

/// The year 2020 in microseconds since 1970.
///
/// A clock with an earlier time was never set, and proves nothing.
const MIN_CLOCK: FencingToken = FencingToken(1_577_836_800_000_000);
/// An hour in microseconds: the distance above the clock at which a lost counter begins again.
///
/// Processes that restored a counter before can have had clocks ahead of this one.
const RESERVE: u32 = 3_600_000_000;

/// Returns true if a wall clock was set.
#[must_use]
pub fn is_set(clock: FencingToken) -> bool {
    clock >= MIN_CLOCK
}

/// The number to which a client without an operator raises the counter of a process.
///
/// The client does so before it counts the votes of the process.
///
/// `members` is the number of members, and `quorum` their majority. The result is `None` while there is no answer, or if
/// the clock was not set.
///
/// The counter of a process that was not restored yet, and `own`, can come from an old snapshot: they are lower bounds.
/// If enough other counters were `restored`, one of them stored the last token. Otherwise all members have to answer,
/// or a majority while the rest `is_silent`. Then the counter begins an hour above the clock.
#[must_use]
pub fn recovered(
    (own, restored_others): (FencingToken, &[FencingToken]),
    others: &[FencingToken],
    (members, quorum): (usize, usize),
    clock: FencingToken,
    is_silent: bool,
) -> Option<FencingToken> {
    if !is_set(clock) {
        return None;
    }
    let answered = 1 + restored_others.len() + others.len();
    let remember = restored_others.iter().filter(|number| **number < FencingToken::OUTLIER).count();
    let floor = restored(others, 0, own, FencingToken::ZERO);
    if remember + quorum > members {
        Some(restored(restored_others, 0, floor, clock))
    } else if answered >= members || (is_silent && answered >= quorum) {
        Some(restored(restored_others, 0, floor, clock.saturating_add(RESERVE)))
    } else {
        None
    }
}

/// The token of a round with these numbers, if a quorum of `members` has stored it.
///
/// With v votes it is the (quorum + v - members)-th largest number, or the largest if v is the quorum. At least a quorum of the numbers must
/// be as large.
///
/// Any later round with v votes includes at least quorum + v - members voters that stored the token. Each of them has counted from there,
/// so the later token is larger.
#[must_use]
pub fn held_at_once(mut numbers: Vec<FencingToken>, members: usize, quorum: usize) -> Option<FencingToken> {
    let votes = numbers.len();
    if votes < quorum || votes > members {
        return None;
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let place = if votes == quorum { 1 } else { quorum + votes - members };
    let token = *numbers.get(place.checked_sub(1)?)?;
    (*numbers.get(quorum - 1)? >= token).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_votes_make_a_token_in_one_round_in_any_order() {
        for (numbers, members, expected) in [
            (&[7, 7, 7][..], 5, Some(7)),
            (&[7, 8, 7], 5, None),
            // The second largest of four, because three are as large.
            (&[7, 8, 8, 8], 5, Some(8)),
            (&[7, 8, 8, 9], 5, Some(8)),
            (&[6, 7, 8, 9], 5, None),
            (&[1, 9, 5, 7, 3], 5, Some(5)),
            (&[4, 9], 3, None),
            (&[9, 9], 3, Some(9)),
            (&[4, 9, 5], 3, Some(5)),
            (&[3, 3, 4], 4, None),
            (&[3, 3, 4, 4], 4, Some(3)),
            (&[5], 1, Some(5)),
            (&[5], 3, None),
        ] {
            let tokens = numbers.iter().map(|number| token(*number)).collect();
            assert_eq!(held_at_once(tokens, members, members / 2 + 1), expected.map(token), "{numbers:?} of {members}");
        }
    }

    fn token(number: i64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    const OUTLIER: i64 = FencingToken::OUTLIER.get();

    #[test]
    fn without_an_operator_restored_counters_are_the_source() {
        let (now, old) = (1_795_284_168_033_000, 1_795_284_100_000_000);
        let reserved = now + i64::from(RESERVE);
        for (own, restored, others, is_silent, expected) in [
            // Three other members of five: one of them stored the last token.
            (4, &[old, old + 7, old + 3][..], &[][..], false, Some(now)),
            (4, &[now + 9, old, old], &[], false, Some(now + 9)),
            // Its own counter, and counters of processes that were not restored, can come from an old snapshot.
            (old, &[], &[], false, None),
            (old, &[old, old], &[old], false, None),
            (now + 5, &[old; 3], &[now + 7], false, Some(now + 7)),
            (now + 8, &[old; 3], &[now + 7], false, Some(now + 8)),
            // Two are not enough while the other members can have more.
            (4, &[old, old], &[], false, None),
            (4, &[old, old, OUTLIER], &[], false, None),
            // All have answered, or the rest is silent: a lost number is below the clock and the reserve.
            (4, &[old], &[0, 0, 0], false, Some(reserved)),
            (old, &[], &[old; 4], false, Some(reserved)),
            (4, &[], &[0, reserved + 5, 0, 0], false, Some(reserved + 5)),
            (4, &[old], &[0], true, Some(reserved)),
            (4, &[old], &[], true, None),
        ] {
            let tokens = |numbers: &[i64]| numbers.iter().map(|number| token(*number)).collect::<Vec<_>>();
            let (restored_others, rest) = (tokens(restored), tokens(others));
            let recovered = |clock| recovered((token(own), &restored_others), &rest, (5, 3), token(clock), is_silent);
            assert_eq!(recovered(now), expected.map(token), "{own} {restored:?} {others:?}");
            assert_eq!(recovered(1_000_000), None, "a clock that was never set");
        }
    }

    #[test]
    fn the_counter_is_restored_above_every_possible_token() {
        for (counters, needed, floor, clock, expected) in [
            (&[50, 90][..], 2, 10, 20, 90),
            // Too few counters: together they perhaps did not store the last token, so they prove nothing.
            (&[90][..], 2, 10, 20, 20),
            (&[50, 60][..], 2, 70, 20, 70),
            (&[][..], 1, 0, 20, 20),
            (&[][..], 1, 30, 20, 30),
            // Outliers are not copied, and make no majority.
            (&[50, OUTLIER][..], 2, 10, 20, 20),
            (&[50, 60, OUTLIER][..], 2, 10, 20, 60),
            (&[50, 60][..], 2, OUTLIER, 20, 60),
        ] {
            let counters: Vec<_> = counters.iter().map(|number| token(*number)).collect();
            assert_eq!(restored(&counters, needed, token(floor), token(clock)), token(expected));
        }
    }

    #[test]
    fn tokens_stay_exact_in_a_double() {
        for (number, valid) in
            [(0, true), (1, true), ((1 << 53) - 1, true), (1 << 53, false), (-1, false), (i64::MIN, false)]
        {
            assert_eq!(FencingToken::new(number).is_some(), valid, "{number}");
        }
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        let through_lua = FencingToken::MAX.get() as f64 as i64;
        assert_eq!(through_lua, FencingToken::MAX.get());
        assert_eq!(FencingToken::MAX.saturating_add(7), FencingToken::MAX);
    }
}
