//! Seals, releases and inspections.

use super::*;

/// The longest time to live of the key.
fn longest(quorum: &Quorum) -> Duration {
    quorum.members.iter().map(|member| member.ttl("k")).max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_sealed_hold_cannot_be_extended_and_ends_with_its_seal() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    sleep(ms(4_000)).await;
    let Seal::Sealed { until } = seal(&quorum, ms(2_000)).await else { panic!() };
    assert_eq!(longest(&quorum), ms(7_999), "6 s left, less 1 ms on the way, and 2 s of lock delay");
    assert!(until > grant.valid_until);
    assert_eq!(extend(&quorum, "a", grant.valid_until).await, Extend::Refused { refusals: 3 });
    assert!(matches!(acquire(&quorum, "b").await, Acquire::HeldByOther { .. }));
    // Sealing again adds no further delay.
    sleep(ms(1_000)).await;
    let Seal::Sealed { until: again } = seal(&quorum, ms(2_000)).await else { panic!() };
    assert!(longest(&quorum) < ms(7_000) && again <= until, "{:?} {again:?} {until:?}", longest(&quorum));
    sleep(until.since(quorum.clock.boottime())).await;
    granted(&quorum, "c").await;
}

#[tokio::test(start_paused = true)]
async fn a_seal_needs_a_majority_and_reports_a_lost_hold() {
    let quorum = Quorum::of(3);
    granted(&quorum, "a").await;
    quorum.members[0].state().master.keys.clear();
    quorum.members[1].freeze(true);
    // A member that has lost the key does not confirm, because a repair for it can be in flight.
    let outcome = seal(&quorum, Duration::ZERO).await;
    assert!(matches!(outcome, Seal::NoQuorum { .. }), "{outcome:?}");
    quorum.members[1].freeze(false);
    sleep(ms(5)).await;
    assert!(matches!(seal(&quorum, Duration::ZERO).await, Seal::Sealed { .. }));
    quorum.members[1].state().master.keys.clear();
    assert_eq!(seal(&quorum, Duration::ZERO).await, Seal::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_release_reaches_every_member_and_waits_for_one_timeout() {
    let quorum = Quorum::of(3);
    granted(&quorum, "a").await;
    quorum.members[0].freeze(true);
    quorum.members[1].state().down = Some(MemberError::Fenced);
    let redlock = engine(&quorum);
    let (released, took) = timed(&quorum, redlock.release(&quorum.electorate, &"k".into(), &value("a"))).await;
    assert_eq!((released.deleted, took), (1, TIMEOUT));
    let failures =
        vec![("m0".into(), MemberError::TimedOut.into()), ("m1".into(), MemberFailure::Member(MemberError::Fenced))];
    assert_eq!(released.failures, failures);
    quorum.members[0].freeze(false);
    sleep(ms(5)).await;
    assert_eq!(quorum.members[0].value("k"), None);
    quorum.members[1].state().down = None;
    let again = redlock.release(&quorum.electorate, &"k".into(), &value("a")).await;
    assert_eq!((again.deleted, again.failures.len()), (1, 0), "idempotent");
}

#[tokio::test(start_paused = true)]
async fn an_inspection_reports_each_admitted_member() {
    let quorum = Quorum::of(3);
    quorum.members[0].set("k", "a", TTL);
    quorum.members[1].restart();
    quorum.members[2].freeze(true);
    let states = engine(&quorum).inspect(&quorum.electorate, &"k".into()).await;
    let held = KeyState::String { value: StoredValue::new("a"), remaining: Some(ms(9_999)) };
    let silent = Err(MemberFailure::Member(MemberError::TimedOut));
    let expected = [Ok(held), Err(MemberFailure::NotAdmitted), silent];
    assert_eq!(states, ["m0", "m1", "m2"].map(MemberName::from).into_iter().zip(expected).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_seal_outlives_the_answers_that_are_counted_with_it() {
    let quorum = Quorum::of(3);
    quorum.members.iter().for_each(|member| member.set("k", "a", ms(10)));
    let sealed = seal(&quorum, Duration::ZERO).await;
    assert!(matches!(sealed, Seal::Sealed { .. }), "{sealed:?}");
    assert!(longest(&quorum) > TIMEOUT, "otherwise a repair could set the key again between two answers");
}
