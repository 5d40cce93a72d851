//! Pure: which numbers of the members' token counters count, and who is behind (`docs/algorithm.md`, "Tokens").

use super::lists::{Lists, majority};
use crate::redlock::FencingToken;
use crate::time::UnixMicros;

/// Counters that are no further behind stay as they are: the next vote brings them along.
const APART: u32 = 1_000;
/// A counter that is a day ahead of the API server's time was restored by a wrong clock. In microseconds.
const AHEAD: i64 = 86_400 * 1_000_000;

/// Numbers from this one on do not count.
///
/// They are left out of acquisitions and restores, and are copied to no other member.
///
/// `read` are the counters of admitted members, by name, as they were read just now. A counter is an outlier if it is more than a day ahead
/// of `clock`, the API server's time. But only while majorities of all lists have counters that are not: otherwise the last token may be
/// above the clock, too, and then nothing but [`FencingToken::OUTLIER`] is.
#[must_use]
pub fn ceiling(read: &[(&str, FencingToken)], lists: &Lists, clock: Option<UnixMicros>) -> FencingToken {
    let ceiling = clock.and_then(|clock| FencingToken::new(clock.0.saturating_add(AHEAD)));
    let Some(ceiling) = ceiling.filter(|ceiling| *ceiling < FencingToken::OUTLIER) else {
        return FencingToken::OUTLIER;
    };
    let is_normal = |name: &&String| read.iter().any(|(member, number)| member == name && *number < ceiling);
    let has_majority = |list: &[String]| list.iter().filter(is_normal).count() >= majority(list);
    if lists.in_force().all(has_majority) { ceiling } else { FencingToken::OUTLIER }
}

/// Whom to raise to which number.
///
/// That is the highest number below the ceiling, and at least `at_least`.
pub fn behind<M>(
    counters: Vec<(M, FencingToken)>,
    at_least: FencingToken,
    ceiling: FencingToken,
) -> (FencingToken, Vec<M>) {
    let read = counters.iter().map(|(_, counter)| *counter).filter(|number| *number < ceiling);
    let at_least = Some(at_least).filter(|number| *number < FencingToken::OUTLIER);
    let highest = read.chain(at_least).max().unwrap_or_default();
    let is_behind = |counter: &FencingToken| counter.saturating_add(APART) < highest;
    let members = counters.into_iter().filter(|(_, counter)| is_behind(counter)).map(|(member, _)| member);
    (highest, members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_284_168_033_000;
    const LATER: i64 = NOW + AHEAD;
    const OUTLIER: FencingToken = FencingToken::OUTLIER;

    fn token(number: i64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn behind_of(counters: &[i64], at_least: i64, ceiling: FencingToken) -> (i64, Vec<usize>) {
        let counters = counters.iter().enumerate().map(|(member, number)| (member, token(*number))).collect();
        let (highest, members) = behind(counters, token(at_least), ceiling);
        (highest.get(), members)
    }

    fn lists(voters: &[&str], former: Option<&[&str]>) -> Lists {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (voters, former) = (names(voters), former.map(names));
        Lists { epoch: 1, wanted: voters.clone(), voters, former, announced: None }
    }

    fn ceiling_of(lists: &Lists, counters: &[(&str, i64)], clock: Option<i64>) -> FencingToken {
        let read: Vec<_> = counters.iter().map(|(name, number)| (*name, token(*number))).collect();
        ceiling(&read, lists, clock.map(UnixMicros))
    }

    #[test]
    fn whoever_is_behind_is_raised_to_the_highest_number() {
        assert_eq!(behind_of(&[5_000, 9_000, 5_040], 0, OUTLIER), (9_000, vec![0, 2]));
        assert_eq!(behind_of(&[5_000, 5_900, 6_000], 0, OUTLIER), (6_000, vec![]), "a vote that was missed");
        // The member with the highest number is away, and its token is known.
        assert_eq!(behind_of(&[5_000, 5_900], 9_000, OUTLIER), (9_000, vec![0, 1]));
        assert_eq!(behind_of(&[], 9_000, OUTLIER), (9_000, vec![]));
    }

    #[test]
    fn a_number_that_does_not_count_is_not_copied() {
        assert_eq!(behind_of(&[5_000, OUTLIER.get(), (1 << 53) - 1], 0, OUTLIER), (5_000, vec![]));
        assert_eq!(behind_of(&[5_000, 5_500, 9_000], (1 << 53) - 1, token(9_000)), (5_500, vec![]));
        // What was granted is stored by a majority, whatever was read before that.
        assert_eq!(behind_of(&[5_000, 5_500, 9_000], 9_000, token(9_000)), (9_000, vec![0, 1]));
    }

    #[test]
    fn a_counter_a_day_ahead_is_an_outlier_while_a_majority_is_not() {
        let three = lists(&["a", "b", "c"], None);
        let of = |counters: &[(&str, i64)]| ceiling_of(&three, counters, Some(NOW));
        assert_eq!(of(&[("a", NOW), ("b", NOW), ("c", LATER)]), token(LATER));
        assert_eq!(of(&[("a", NOW), ("b", LATER - 1), ("c", LATER)]), token(LATER), "less than a day");
        assert_eq!(of(&[("a", NOW), ("c", LATER)]), OUTLIER, "one cannot tell for a majority");
        assert_eq!(of(&[("a", NOW), ("b", LATER), ("c", LATER)]), OUTLIER, "then the clock was ahead when they were");
        assert_eq!(of(&[("a", NOW), ("x", NOW), ("c", LATER)]), OUTLIER, "it is in no list");
        assert_eq!(of(&[]), OUTLIER);
        assert_eq!(ceiling_of(&three, &[("a", NOW), ("b", NOW)], None), OUTLIER, "the API server's time is not known");
        assert_eq!(ceiling_of(&three, &[("a", NOW), ("b", NOW)], Some(i64::MAX)), OUTLIER);
    }

    #[test]
    fn while_two_lists_count_a_majority_of_each_is_needed() {
        let joint = lists(&["c", "d", "e"], Some(&["a", "b", "c"]));
        let of = |counters: &[(&str, i64)]| ceiling_of(&joint, counters, Some(NOW));
        assert_eq!(of(&[("a", NOW), ("b", NOW), ("d", NOW)]), OUTLIER);
        assert_eq!(of(&[("a", NOW), ("b", NOW), ("d", NOW), ("e", NOW)]), token(LATER));
        assert_eq!(of(&[("a", NOW), ("c", NOW), ("d", NOW)]), token(LATER));
    }
}
