//! Admission, joint lists and clock checks.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_vote_of_a_process_that_is_not_admitted_is_dropped() {
    let quorum = Quorum::of(3);
    quorum.members[0].restart();
    quorum.members[1].restart();
    let outcome = acquire(&quorum, "a").await;
    let not_admitted = |name: &str| (name.into(), MemberFailure::NotAdmitted);
    assert_eq!(outcome, Acquire::NoQuorum { failures: vec![not_admitted("m0"), not_admitted("m1")] });
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_of_admitted_members_no_key_is_set() {
    let quorum = Quorum::of(3);
    let mut electors = electors(&quorum.members);
    electors[0].admitted = None;
    electors[1].admitted = None;
    let outcome = engine(&quorum).acquire(&Electorate::single(electors), request("a")).await;
    assert!(matches!(outcome, Acquire::NoQuorum { ref failures } if failures.len() == 2), "{outcome:?}");
    let sets = |fake: &Fake| fake.state().log.iter().filter(|c| matches!(c, Command::Acquire { .. })).count();
    assert!(quorum.members.iter().all(|member| sets(member) == 0));
}

#[tokio::test(start_paused = true)]
async fn a_process_with_two_names_has_a_single_vote() {
    let quorum = Quorum::of(3);
    // m0 and m1 lead to the same process, m2 is dead.
    let twin = quorum.members[0].state().run_id.clone();
    quorum.members[1].state().run_id = twin;
    quorum.members[2].state().down = Some(MemberError::Unreachable("connection refused".to_owned()));
    let electorate = Electorate::single(electors(&quorum.members));
    let outcome = engine(&quorum).acquire(&electorate, request("a")).await;
    assert!(matches!(outcome, Acquire::NoQuorum { .. }), "{outcome:?}");
    quorum.members.iter().for_each(|member| member.set("k", "a", TTL));
    let valid_until = quorum.clock.boottime() + TTL;
    let extended = engine(&quorum).extend(&electorate, vec![extension("a", valid_until)]).await;
    assert!(matches!(extended[..], [Extend::NoQuorum { .. }]), "{extended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_joint_electorate_needs_a_majority_of_both_lists() {
    let quorum = Quorum::of(5);
    let names = |range: std::ops::Range<usize>| range.map(|n| format!("m{n}").as_str().into()).collect::<Vec<_>>();
    let electorate = Electorate::joint(electors(&quorum.members), names(0..3), names(2..5));
    let grant = engine(&quorum).acquire(&electorate, request("a")).await;
    assert!(matches!(grant, Acquire::Granted(_)), "{grant:?}");
    engine(&quorum).release(&electorate, &"k".into(), &value("a")).await;
    // A majority of the five and of the old list, but not of the new one.
    quorum.members[3].state().down = Some(MemberError::Fenced);
    quorum.members[4].state().down = Some(MemberError::Fenced);
    let outcome = engine(&quorum).acquire(&electorate, request("b")).await;
    assert!(matches!(outcome, Acquire::NoQuorum { .. }), "{outcome:?}");
    // One member of each list can be missing.
    quorum.members[3].state().down = None;
    quorum.members[0].state().down = Some(MemberError::Fenced);
    let outcome = engine(&quorum).acquire(&electorate, request("c")).await;
    assert!(matches!(outcome, Acquire::Granted(_)), "{outcome:?}");
}

/// A replica that starts has no address of a member whose pod does not run.
#[tokio::test(start_paused = true)]
async fn a_listed_member_without_an_elector_is_in_the_votes() {
    let quorum = Quorum::of(3);
    let list: Vec<MemberName> = quorum.members.iter().map(|member| member.name().clone()).collect();
    let electorate = Electorate::joint(electors(&quorum.members[..2]), list.clone(), list);
    let outcome = engine(&quorum).acquire(&electorate, request("a")).await;
    let Acquire::Granted(grant) = outcome else { panic!("{outcome:?}") };
    assert_eq!(grant.votes, Votes { yes: 2, of: 3 });
    let extended = engine(&quorum).extend(&electorate, vec![extension("a", grant.valid_until)]).await;
    assert!(matches!(extended[..], [Extend::Renewed { votes: Votes { yes: 2, of: 3 }, .. }]), "{extended:?}");
}

/// A check that one process fails.
struct Distrust(RunId);

impl ClockCheck for Distrust {
    fn steady(&self, run_id: &RunId, _sample: &ClockSample) -> bool {
        *run_id != self.0
    }

    /// The last moment of an attempt is never reached on this clock.
    fn earliest(&self, _run_id: &RunId, _at: Boottime) -> Option<UnixMicros> {
        Some(UnixMicros(i64::MAX))
    }
}

#[tokio::test(start_paused = true)]
async fn a_vote_from_a_stepped_clock_is_invalid() {
    let quorum = Quorum::of(3);
    quorum.members[0].freeze(true);
    let stepped = quorum.members[1].state().run_id.clone();
    let electorate = quorum.electorate.clone().with_clock_check(Arc::new(Distrust(stepped)));
    let outcome = engine(&quorum).acquire(&electorate, request("a")).await;
    let Acquire::NoQuorum { failures } = outcome else { panic!("{outcome:?}") };
    assert!(failures.contains(&("m1".into(), MemberFailure::ClockStepped)), "{failures:?}");
}

/// Processes whose clocks show the time of this one.
struct SameClock(Arc<TokioClock>);

impl ClockCheck for SameClock {
    fn steady(&self, _run_id: &RunId, _sample: &ClockSample) -> bool {
        true
    }

    fn earliest(&self, _run_id: &RunId, at: Boottime) -> Option<UnixMicros> {
        Some(UnixMicros(self.0.wall().0 * 1_000).plus(at.since(self.0.boottime())))
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_sets_nothing_after_its_last_moment() {
    let quorum = Quorum::of(3);
    let electorate = quorum.electorate.clone().with_clock_check(Arc::new(SameClock(Arc::clone(&quorum.clock))));
    assert!(matches!(engine(&quorum).acquire(&electorate, request("a")).await, Acquire::Granted(_)));
    quorum.members.iter().for_each(|member| member.state().master.keys.clear());
    quorum.members[0].freeze(true);
    let outcome = engine(&quorum).acquire(&electorate, request("b")).await;
    assert!(matches!(outcome, Acquire::Granted(_)), "{outcome:?}");
    sleep(TIMEOUT + ms(1)).await;
    quorum.members[0].freeze(false);
    sleep(ms(5)).await;
    assert_eq!((quorum.members[0].value("k"), quorum.members[1].value("k")), (None, Some("b".to_owned())));
}
