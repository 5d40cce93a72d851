//! The member lists of a status and of the specification: they decide whose votes count. Pure.

use std::collections::BTreeSet;

use kube::ResourceExt;

use crate::api::{RedisQuorum, RedisQuorumStatus};
use crate::quorum::model::record::withdraw;
use crate::redis_member::acl::UserRule;

/// The maximum number of members of a quorum.
pub const MOST: usize = 9;

/// The member lists of a quorum at one moment, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// The membership epoch. The first is 1.
    pub epoch: i64,
    /// A grant needs a majority of these.
    pub voters: Vec<String>,
    /// While a change is joint, a grant also needs a majority of these.
    pub former: Option<Vec<String>>,
    /// The list of the specification.
    pub wanted: Vec<String>,
}

impl Lists {
    /// The lists of this state of a quorum.
    pub fn of(quorum: &RedisQuorum) -> Self {
        Self::of_status(quorum.status.as_ref(), wanted(quorum))
    }

    /// The lists in a status. Before the first list is published, the wanted members vote.
    pub fn of_status(status: Option<&RedisQuorumStatus>, wanted: Vec<String>) -> Self {
        let named = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        Self {
            epoch: status.and_then(highest_epoch).unwrap_or(1),
            voters: status.and_then(|status| named(&status.voters)).unwrap_or_else(|| wanted.clone()),
            former: status.and_then(|status| named(&status.former_voters)),
            wanted,
        }
    }

    /// The lists that need a majority. There is one, or two while a change is joint.
    pub fn in_force(&self) -> impl Iterator<Item = &[String]> + Clone {
        std::iter::once(self.voters.as_slice()).chain(self.former.as_deref())
    }

    /// Number of members of the largest list in force.
    ///
    /// A member that joins or leaves is not included, because it can be silent for any time.
    pub fn most_voters(&self) -> usize {
        self.in_force().map(<[_]>::len).max().unwrap_or_default()
    }

    /// Whether two lists are in force.
    pub fn is_joint(&self) -> bool {
        self.former.is_some()
    }

    /// The epoch in records on shared masters.
    ///
    /// It rises at the beginning and at the end of the joint part. Votes use the number of the end.
    pub const fn record_epoch(&self) -> i64 {
        2 * self.epoch - if self.former.is_some() { 1 } else { 0 }
    }

    /// Whether no change is in progress.
    pub fn is_settled(&self) -> bool {
        !self.is_joint() && BTreeSet::from_iter(&self.voters) == BTreeSet::from_iter(&self.wanted)
    }

    /// Whether the votes of this member count.
    pub fn counts(&self, name: &str) -> bool {
        self.in_force().any(|list| list.iter().any(|member| member == name))
    }

    /// Whether such members are a majority of each list in force.
    pub fn is_majority(&self, is_such: impl Fn(&str) -> bool) -> bool {
        self.in_force().all(|list| list.iter().filter(|name| is_such(name)).count() >= majority(list))
    }

    /// Whether these members include one of every majority of each list.
    ///
    /// If so, no grant is possible without them.
    pub fn meet_every_majority(&self, members: &[String]) -> bool {
        self.in_force()
            .all(|list| list.iter().filter(|member| members.contains(member)).count() >= meets_every_majority(list))
    }

    /// Whether every majority of the voters and of the wanted list includes one of these members.
    ///
    /// If both lists have these members, operators with either list find each other's claims there.
    pub fn meet_both_lists(&self, kept: usize) -> bool {
        [&self.voters, &self.wanted].into_iter().all(|list| kept >= meets_every_majority(list))
    }

    /// Whether the member learns: the specification has it, but it does not vote yet.
    pub fn is_learner(&self, name: &str) -> bool {
        !self.counts(name) && self.wanted.iter().any(|member| member == name)
    }

    /// Whether clients outside can use this member.
    ///
    /// Their Secrets have one list only, so they wait while two are in force.
    pub fn admits_clients(&self, name: &str) -> bool {
        !self.is_joint() && self.voters.iter().any(|member| member == name)
    }

    /// Every member that votes now or will vote, without duplicates. Any other member leaves.
    pub fn members(&self) -> Vec<String> {
        let mut known = BTreeSet::new();
        self.wanted.iter().chain(self.in_force().flatten()).filter(|name| known.insert(*name)).cloned().collect()
    }

    /// The list of which a majority has stored every token so far.
    ///
    /// While a change is joint it is the old list, because only that list has the tokens from before the switch.
    pub fn token_list(&self) -> &[String] {
        self.former.as_ref().unwrap_or(&self.voters)
    }

    /// The size of a majority of the newest list.
    pub fn majority(&self) -> usize {
        majority(&self.voters)
    }

    /// Writes the beginning of the joint part.
    pub fn switch(&self, status: &mut RedisQuorumStatus) {
        status.membership_epoch = Some(self.epoch + 1);
        status.former_voters.clone_from(&self.voters);
        status.voters.clone_from(&self.wanted);
    }

    /// Continues with a higher epoch, because the open users of members belong to unknown lists.
    ///
    /// Nothing opens users of another epoch on an admitted process. So each own member is fenced, and its next admission opens them.
    pub fn continue_with(&self, epoch: i64, status: &mut RedisQuorumStatus) {
        status.membership_epoch = Some(epoch);
        let own = status.members.iter_mut().filter(|member| member.external.is_none());
        own.for_each(|member| withdraw(member, self.epoch));
    }
}

/// The highest epoch in the status, because a user can have lowered or removed the membership epoch.
///
/// Users of earlier epochs must never be used again. A replica that still has their passwords uses an earlier list.
fn highest_epoch(status: &RedisQuorumStatus) -> Option<i64> {
    status.members.iter().map(|member| member.epoch).chain([status.membership_epoch]).max().flatten()
}

/// The epoch to continue with, if the status has lost one.
///
/// `found` is the highest epoch of users on members. `members` has the open users of each member, as a probe listed them, and whether the
/// status admits its process.
///
/// The operator opens its user of the next epoch before a change, in addition to that of the current epoch. Possibly only the next one, or
/// that of a later epoch, is open on a member. Then the member followed another status, whose lists are unknown. The same is true of an admitted
/// member that has only users of other epochs. The user of the current epoch is open on all members before the status names it.
pub fn lost_epoch<'a>(
    lists: &Lists,
    found: Option<i64>,
    members: impl IntoIterator<Item = (&'a [String], bool)>,
) -> Option<i64> {
    let next = lists.epoch + 1;
    let (own_user, next_user) = (UserRule::locker_name(lists.epoch), UserRule::locker_name(next));
    let is_other = |(users, is_admitted): (&[String], bool)| {
        let is_suspect = |user: &String| *user == next_user || is_admitted && UserRule::is_locker(user);
        !users.contains(&own_user) && users.iter().any(is_suspect)
    };
    let is_lost = members.into_iter().any(is_other);
    let found = found.max(is_lost.then_some(next))?;
    (found > next || is_lost).then_some(found + 1)
}

/// The size of a majority of a list.
pub fn majority<T>(list: &[T]) -> usize {
    list.len() / 2 + 1
}

/// The smallest number of members that always includes a member of every majority.
pub fn meets_every_majority(list: &[String]) -> usize {
    list.len() - majority(list) + 1
}

/// The names of the members in the specification.
pub fn wanted(quorum: &RedisQuorum) -> Vec<String> {
    let count = usize::try_from(quorum.spec.members).unwrap_or(0).min(MOST);
    let own = (0..count).map(|index| format!("{}-{index}", quorum.name_any()));
    own.chain(quorum.spec.external.iter().map(|member| member.name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_join_or_leave_are_no_voters() {
        let list = |members: usize| (0..members).map(|index| format!("q-{index}")).collect::<Vec<_>>();
        let of = |voters, former, wanted| Lists { epoch: 2, voters, former, wanted }.most_voters();
        assert_eq!(of(list(1), None, list(3)), 1);
        assert_eq!(of(list(3), Some(list(1)), list(3)), 3);
        assert_eq!(of(list(1), Some(list(3)), list(1)), 3);
    }

    #[test]
    fn members_that_join_are_no_part_of_a_majority() {
        let list = |from: usize, to: usize| (from..to).map(|index| format!("q-{index}")).collect::<Vec<_>>();
        let is_majority = |former: Option<Vec<String>>, members: Vec<String>| {
            let lists = Lists { epoch: 2, voters: list(0, 3), former, wanted: list(0, 5) };
            lists.is_majority(|name| members.iter().any(|member| member == name))
        };
        assert!(!is_majority(None, list(2, 5)), "one voter and two members that join");
        assert!(is_majority(None, list(1, 3)) && !is_majority(Some(list(0, 5)), list(1, 3)));
        assert!(is_majority(Some(list(0, 5)), list(1, 4)));
    }

    #[test]
    fn members_that_every_grant_needs_are_counted_in_each_list() {
        let list = |from: usize, to: usize| (from..to).map(|index| format!("q-{index}")).collect::<Vec<_>>();
        let of = |voters, former| Lists { epoch: 2, voters, former, wanted: list(0, 5) };
        for (members, alone, joint) in [(0, false, false), (1, false, false), (2, true, false), (3, true, true)] {
            let some = list(0, members);
            assert_eq!(of(list(0, 3), None).meet_every_majority(&some), alone, "{members} of three");
            let both = of(list(0, 3), Some(list(0, 5)));
            assert_eq!(both.meet_every_majority(&some), joint, "{members} of three and of five");
        }
    }
}
