//! Pure: which of the members' token counters are behind (`docs/dev/algorithm.md`, "Tokens").

use crate::redlock::FencingToken;

/// The maximum difference of counters that stay unchanged, because the next vote raises them.
pub const MOST_LAG: u32 = 1_000;

/// The number to which counters are raised, and the members whose counters are behind.
///
/// The number is the highest plausible one, and at least `at_least`. A number from [`FencingToken::OUTLIER`] on is never copied.
/// A counter can lag by `lag`.
pub fn behind<M>(counters: Vec<(M, FencingToken)>, at_least: FencingToken, lag: u32) -> (FencingToken, Vec<M>) {
    let read = counters.iter().map(|(_, counter)| *counter).chain([at_least]);
    let highest = read.filter(|number| *number < FencingToken::OUTLIER).max().unwrap_or_default();
    let is_behind = |counter: &FencingToken| counter.saturating_add(lag) < highest;
    let members = counters.into_iter().filter(|(_, counter)| is_behind(counter)).map(|(member, _)| member);
    (highest, members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::token;

    const OUTLIER: i64 = FencingToken::OUTLIER.get();

    fn behind_by(lag: u32, counters: &[i64], at_least: i64) -> (i64, Vec<usize>) {
        let counters = counters.iter().enumerate().map(|(member, number)| (member, token(*number))).collect();
        let (highest, members) = behind(counters, token(at_least), lag);
        (highest.get(), members)
    }

    fn behind_of(counters: &[i64], at_least: i64) -> (i64, Vec<usize>) {
        behind_by(MOST_LAG, counters, at_least)
    }

    #[test]
    fn a_counter_that_is_behind_is_raised_to_the_highest_number() {
        assert_eq!(behind_of(&[5_000, 9_000, 5_040], 0), (9_000, vec![0, 2]));
        assert_eq!(behind_of(&[5_000, 5_900, 6_000], 0), (6_000, vec![]), "a vote that was missed");
        // The member with the highest number is away, and its token is known.
        assert_eq!(behind_of(&[5_000, 5_900], 9_000), (9_000, vec![0, 1]));
        assert_eq!(behind_of(&[], 9_000), (9_000, vec![]));
    }

    /// Another operator with another list granted the last tokens.
    ///
    /// It used only the first two members.
    #[test]
    fn without_a_vote_of_its_own_a_quorum_levels_every_counter() {
        assert_eq!(behind_by(0, &[5_040, 5_040, 5_000], 0), (5_040, vec![2]));
        assert_eq!(behind_by(0, &[5_040, 5_040], 0), (5_040, vec![]));
    }

    #[test]
    fn an_outlier_of_the_counters_is_not_copied() {
        assert_eq!(behind_of(&[5_000, OUTLIER, (1 << 53) - 1], 0), (5_000, vec![]));
        assert_eq!(behind_of(&[5_000, 5_500], OUTLIER), (5_500, vec![]));
    }
}
