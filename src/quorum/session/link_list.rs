//! The links of one session: one for each member that the quorum's specification or status names, whether or not it votes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::MemberLink;
use super::link::Shared;
use crate::quorum::model::plan::MemberPlan;

/// The list of the links, which follows the members.
pub(super) struct LinkList {
    shared: Shared,
    /// Ends all links.
    stop: CancellationToken,
    list: Mutex<Arc<[Arc<MemberLink>]>>,
}

impl LinkList {
    /// Creates a list without links.
    pub(super) fn new(shared: Shared, stop: CancellationToken) -> Self {
        Self { shared, stop, list: Mutex::new(Arc::new([])) }
    }

    /// All links, in the order of the members.
    pub(super) fn list(&self) -> Arc<[Arc<MemberLink>]> {
        self.list.lock().clone()
    }

    /// Starts the links of new members, and ends those of former ones.
    ///
    /// A member with this name at another place counts as new. The other links stay, because fences begin with their
    /// observations.
    pub(super) fn follow(&self, members: Vec<MemberPlan>) {
        let mut list = self.list.lock();
        if list.len() == members.len() && list.iter().zip(&members).all(|(link, member)| link.plan().is_same(member)) {
            return;
        }
        let mut former = list.to_vec();
        let next =
            members.into_iter().map(|member| match former.iter().position(|link| link.plan().is_same(&member)) {
                Some(at) => former.swap_remove(at),
                None => MemberLink::start(self.shared.clone(), member, self.stop.child_token()),
            });
        let next: Arc<[Arc<MemberLink>]> = next.collect();
        for link in former {
            link.end();
            self.shared.clocks.forget(link.name());
        }
        *list = next;
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector::ObjectRef;

    use super::*;
    use crate::api::RedisQuorum;
    use crate::fence::clock::Rule;
    use crate::quorum::session::agreement::SharedAgreement;
    use crate::quorum::session::{Alarm, ClockGuard};
    use crate::redlock::Drift;
    use crate::time::SystemClock;

    fn members(indexes: &[usize]) -> Vec<MemberPlan> {
        indexes
            .iter()
            .map(|index| MemberPlan { index: *index, name: format!("main-{index}"), external: None })
            .collect()
    }

    #[tokio::test]
    async fn links_of_members_that_stay_are_kept_and_the_others_end() {
        let rule = Rule { drift: Drift::default(), window: std::time::Duration::from_secs(30) };
        let quorum = RedisQuorum::new("main", Default::default());
        let shared = Shared {
            machine: Arc::new(SystemClock).into(),
            clocks: Arc::new(ClockGuard::new(0, rule)),
            agreement: SharedAgreement::new(&quorum),
            alarm: Alarm::default(),
            quorum: ObjectRef::new("main").within("locks"),
            announcements: tokio::sync::broadcast::channel(8).0,
            events: tokio::sync::broadcast::channel(8).0,
        };
        let links = LinkList::new(shared, CancellationToken::new());
        links.follow(members(&[0, 1, 2]));
        let before = links.list();
        links.follow(members(&[2, 3, 0]));
        let after = links.list();
        let names: Vec<_> = after.iter().map(|link| link.name().to_string()).collect();
        assert_eq!(names, ["main-2", "main-3", "main-0"]);
        // A fence begins with the observations of the link.
        assert!(Arc::ptr_eq(&after[0], &before[2]) && Arc::ptr_eq(&after[2], &before[0]));
        let ended = |link: &MemberLink| link.stop.is_cancelled();
        assert!(ended(&before[1]) && !ended(&before[0]) && !ended(&before[2]));
        links.stop.cancel();
        assert!(after.iter().all(|link| ended(link)), "they end with their session");
    }
}
