//! The members whose votes count at this moment, and whether there are enough.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{MemberLink, QuorumSession};
use crate::api::RedisQuorum;
use crate::quorum::model::lists::Lists;
use crate::quorum::model::record::admitted_run_id;
use crate::redis_member::Link;
use crate::redlock::{Elector, Electorate, MemberError, MemberName, RunId};

impl QuorumSession {
    /// Whether the operators that share masters with the quorum let its votes count.
    pub fn allows_votes(&self) -> bool {
        self.shared.agreement.lock().allows_votes(self.context.clock.boottime())
    }

    /// The process of a member whose votes count now.
    fn voting_run_id(&self, quorum: &RedisQuorum, link: &MemberLink) -> Option<RunId> {
        let run_id = admitted_run_id(quorum, link.name.as_str())?;
        let (agreement, now) = (self.shared.agreement.lock(), self.context.clock.boottime());
        (agreement.allows_votes(now) && agreement.counts(&link.name, &run_id, now)).then_some(run_id)
    }

    /// The members that can vote at this moment.
    ///
    /// These are the admitted processes (rule 5) with steady clocks (rule 9), if no operator that shares them disagrees (rule 8).
    /// A member without a connection counts as one that never answers. Members that join get requests as well, so that they get
    /// the keys, but they are in no list.
    pub fn electorate(&self) -> Electorate {
        let quorum = self.quorum();
        let lists = Lists::of(&quorum);
        let links = self.links();
        let members = lists.members();
        let electors = links.iter().filter(|link| members.iter().any(|name| name == link.name.as_str()));
        let electors = electors.filter_map(|link| {
            let admitted = self.voting_run_id(&quorum, link);
            // It uses the users of this epoch, because users of another epoch belong to other lists.
            let member = self.timed(link.voter(lists.epoch)?);
            Some(Elector { member, admitted })
        });
        let names = |list: &[String]| list.iter().map(|name| MemberName::from(name.as_str())).collect::<Vec<_>>();
        let former = lists.former.as_ref().unwrap_or(&lists.voters);
        Electorate::joint(electors.collect(), names(former), names(&lists.voters))
            .with_clock_check(self.shared.clocks.clone())
    }

    /// The processes that vote now and answer this replica.
    pub fn voters(&self) -> BTreeSet<RunId> {
        let quorum = self.quorum();
        let epoch = Lists::of(&quorum).epoch;
        let voter = |link: &Arc<MemberLink>| {
            let admitted = self.voting_run_id(&quorum, link)?;
            let is_open = *link.voter(epoch)?.link().borrow() == Link::Open(admitted.clone());
            is_open.then_some(admitted)
        };
        self.links().iter().filter_map(voter).collect()
    }

    /// Whether a majority of the members answers this replica.
    ///
    /// A fenced member counts as answering, because it is fenced for every replica. So does a member without a user of the membership epoch in
    /// the status, if it accepts the operator's own user.
    pub fn is_reached(&self) -> bool {
        let lists = Lists::of(&self.quorum());
        let links = self.links();
        let answers = |name: &str| {
            let link = links.iter().find(|link| link.name.as_str() == name);
            let voter = link.and_then(|link| link.voter(lists.epoch));
            let accepts_operator = link.is_some_and(|link| link.answers());
            voter.is_some_and(|voter| is_answered(&voter.link().borrow(), accepts_operator))
        };
        lists.is_majority(answers)
    }
}

/// Whether a member answers its voting connection.
fn is_answered(link: &Link, accepts_operator: bool) -> bool {
    match link {
        Link::Open(_) => true,
        Link::Unidentified(error) => !matches!(error, MemberError::Unreachable(_)),
        Link::Down(error) => matches!(error, MemberError::Refused) && accepts_operator,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_without_the_users_of_the_epoch_answers() {
        let cut = || MemberError::Unreachable("timeout".to_owned());
        assert!(is_answered(&Link::Unidentified(MemberError::Fenced), true));
        assert!(is_answered(&Link::Down(MemberError::Refused), true));
        assert!(!is_answered(&Link::Down(MemberError::Refused), false), "this replica has earlier passwords");
        assert!(!is_answered(&Link::Down(cut()), true) && !is_answered(&Link::Unidentified(cut()), true));
    }
}
