//! Pure: when a member that serves no client is restarted (rule 11). Members are restarted one at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Monotonic;

/// How much longer than a busy member a full one waits for the members that do not vote.
const FULL_WAITS: Duration = Duration::from_secs(600);

/// A member that does not vote.
#[derive(Clone, Copy)]
pub(super) struct Away<'a> {
    pub(super) name: &'a str,
    /// Whether its process answers.
    pub(super) answers: bool,
}

/// Whether every other member that went away a short time ago is back. `since` has the times, as this leader observed them.
///
/// A busy member serves no connection, so it waits for the members that do not answer. A full member still serves its connections, and
/// a restart costs its vote, so it waits for all members that do not vote. A member that is away for longer perhaps never comes back.
pub(super) fn are_back_except(
    name: &str,
    since: &mut BTreeMap<String, Monotonic>,
    away: &[Away<'_>],
    now: Monotonic,
    (is_full, delay): (bool, Duration),
) -> bool {
    since.retain(|member, _| away.iter().any(|away| away.name == member));
    for member in away {
        since.entry(member.name.to_owned()).or_insert(now);
    }
    let patience = if is_full { delay + FULL_WAITS } else { delay };
    let mut awaited = away.iter().filter(|member| member.name != name && (is_full || !member.answers));
    awaited.all(|member| since.get(member.name).is_some_and(|gone| now.since(*gone) >= patience))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::monotonic as at;

    const DELAY: Duration = Duration::from_secs(30);

    fn silent(name: &str) -> Away<'_> {
        Away { name, answers: false }
    }

    #[test]
    fn members_are_restarted_one_at_a_time() {
        let mut since = BTreeMap::new();
        let mut are_back =
            |away: &[Away<'_>], seconds| are_back_except("m2", &mut since, away, at(seconds), (false, DELAY));
        assert!(are_back(&[], 0));
        assert!(!are_back(&[silent("m0")], 10), "it was sent away a moment ago");
        assert!(!are_back(&[silent("m0")], 39));
        assert!(are_back(&[silent("m0")], 40), "it possibly never comes back");
        assert!(!are_back(&[silent("m0"), silent("m1")], 41));
        assert!(are_back(&[], 42), "all answer");
        assert!(!are_back(&[silent("m0")], 43), "it is away for a second time");
        assert!(are_back(&[Away { name: "m0", answers: true }], 44), "its successor answers");
    }

    #[test]
    fn a_full_member_keeps_its_vote_until_the_others_vote() {
        let (mut since, fenced) = (BTreeMap::new(), [Away { name: "m0", answers: true }]);
        let mut are_back =
            |away: &[Away<'_>], seconds| are_back_except("m1", &mut since, away, at(seconds), (true, DELAY));
        assert!(!are_back(&fenced, 0) && !are_back(&fenced, 60));
        assert!(are_back(&[], 61));
        assert!(!are_back(&fenced, 62));
        assert!(are_back(&fenced, 62 + 630), "it possibly never votes again");
    }

    #[test]
    fn two_stuck_members_do_not_block_each_other_permanently() {
        let (mut since, away) = (BTreeMap::new(), [silent("m0"), silent("m1")]);
        let mut can_restart = |name, seconds| are_back_except(name, &mut since, &away, at(seconds), (false, DELAY));
        for second in 0..30 {
            assert!(!can_restart("m0", second) && !can_restart("m1", second), "second {second}");
        }
        assert!(can_restart("m0", 30) && can_restart("m1", 30));
    }
}
