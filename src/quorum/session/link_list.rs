//! The links of one session: one for each member that the quorum's specification or status names, whether or not it votes.

use std::sync::Arc;

use super::MemberLink;
use super::link::Shared;
use crate::quorum::model::plan::MemberPlan;

/// Starts the links of new members, and ends those of former ones. Returns the former ones.
///
/// A member with this name at another place counts as new. The other links stay, because fences begin with their
/// observations.
pub(super) fn follow(
    shared: &Shared,
    links: &mut Arc<[Arc<MemberLink>]>,
    members: Vec<MemberPlan>,
) -> Vec<Arc<MemberLink>> {
    let mut former = links.to_vec();
    let next = members.into_iter().map(|member| match former.iter().position(|link| link.plan.is_same(&member)) {
        Some(at) => former.swap_remove(at),
        None => MemberLink::start(shared.clone(), member),
    });
    *links = next.collect();
    for link in &former {
        link.end();
        shared.clocks.end(&link.name);
    }
    links.iter().for_each(|link| shared.clocks.begin(&link.name));
    former
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use kube::runtime::reflector::ObjectRef;
    use tokio::sync::broadcast;

    use super::*;
    use crate::api::ExternalStatus;
    use crate::fence::clock::Rule;
    use crate::quorum::session::ClockGuard;
    use crate::redis_member::{Connect, Endpoint, Guard, Machine, Secret, Stream};
    use crate::redlock::{BoxFuture, Drift};
    use crate::tests::found;
    use crate::time::SystemClock;

    fn members(indexes: &[usize]) -> Vec<MemberPlan> {
        indexes
            .iter()
            .map(|index| MemberPlan { index: *index, name: format!("main-{index}"), external: None })
            .collect()
    }

    fn shared(machine: Machine) -> Shared {
        let rule = Rule { drift: Drift::default(), window: Duration::from_secs(30) };
        Shared {
            machine,
            clocks: Arc::new(ClockGuard::new(0, rule)),
            agreement: Arc::default(),
            quorum: ObjectRef::new("main").within("locks"),
            announcements: broadcast::channel(8).0,
            events: broadcast::channel(8).0,
        }
    }

    /// Whether this is true within 30 seconds.
    async fn becomes(is_true: impl Fn() -> bool) -> bool {
        found(Duration::from_secs(30), || is_true().then_some(())).await.is_some()
    }

    #[tokio::test]
    async fn links_of_members_that_stay_are_kept_and_the_others_end() {
        let shared = shared(Arc::new(SystemClock).into());
        let mut links = Arc::default();
        follow(&shared, &mut links, members(&[0, 1, 2]));
        let before = links.clone();
        follow(&shared, &mut links, members(&[2, 3, 0]));
        let names: Vec<_> = links.iter().map(|link| link.name.to_string()).collect();
        assert_eq!(names, ["main-2", "main-3", "main-0"]);
        // A fence begins with the observations of the link.
        assert!(Arc::ptr_eq(&links[0], &before[2]) && Arc::ptr_eq(&links[2], &before[0]));
        assert!(becomes(|| before[1].is_broken()).await);
        assert!(!links.iter().any(|link| link.is_broken()));
    }

    /// A network whose connections panic.
    struct Poisonous;

    impl Connect for Poisonous {
        fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
            panic!("a poisonous answer")
        }
    }

    #[tokio::test]
    async fn a_panic_in_its_task_breaks_a_link() {
        let shared = shared(Machine { clock: Arc::new(SystemClock), network: Arc::new(Poisonous) });
        let external = ExternalStatus { address: "a:1".to_owned(), secret_ref: None, tls: None };
        let mut links = Arc::default();
        let member = MemberPlan { index: 0, name: "a".to_owned(), external: Some(external) };
        follow(&shared, &mut links, vec![member]);
        assert!(!links[0].is_broken());
        let user =
            Endpoint { address: "a:1".to_owned(), username: String::new(), password: Secret::new(""), tls: None };
        links[0].place_external(Some(user), None, 1, Guard { uid: "uid".to_owned(), epoch: 2, since: None });
        assert!(becomes(|| links[0].task.get().is_some_and(|task| task.is_finished())).await);
        // The voting connection panics too. Without it only the task of the link counts.
        links[0].end();
        assert!(links[0].is_broken());
    }
}
