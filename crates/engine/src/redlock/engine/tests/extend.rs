//! Renewals, and repairs of what members have lost.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_extension_in_time_renews_with_all_votes() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    sleep(ms(3_000)).await;
    quorum.members[2].state().delay = ms(8);
    let (outcome, took) = timed(&quorum, extend(&quorum, "a", grant.valid_until)).await;
    let Extend::Renewed { started, valid_until, votes, missing, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((votes, missing.len(), took), (Votes { yes: 3, of: 3 }, 0, ms(8)));
    assert_eq!(valid_until, started + TTL.saturating_sub(ms(102)));
    assert!(valid_until > grant.valid_until);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_minority_costs_an_extension_half_a_node_timeout() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    quorum.members[0].freeze(true);
    let (outcome, took) = timed(&quorum, extend(&quorum, "a", grant.valid_until)).await;
    assert!(matches!(outcome, Extend::Renewed { votes: Votes { yes: 2, of: 3 }, .. }), "{outcome:?}");
    assert_eq!(took, ms(1) + TIMEOUT / 2);
}

#[tokio::test(start_paused = true)]
async fn an_extension_after_the_old_validity_is_too_late() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    let left = |before: u64| grant.valid_until.since(quorum.clock.boottime()).saturating_sub(ms(before));
    // This extension begins before the end of the validity, and is decided after it.
    sleep(left(10)).await;
    quorum.members.iter().for_each(|member| member.state().delay = ms(20));
    assert_eq!(extend(&quorum, "a", grant.valid_until).await, Extend::TooLate);
    // An extension after the end sends no request.
    let asked = quorum.members[0].state().log.len();
    assert_eq!(extend(&quorum, "a", grant.valid_until).await, Extend::TooLate);
    assert_eq!(quorum.members[0].state().log.len(), asked);
}

#[tokio::test(start_paused = true)]
async fn an_extension_never_shortens_a_validity() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    let short = ExtendRequest { ttl: ms(1_000), ..extension("a", grant.valid_until) };
    let outcome = engine(&quorum).extend(&quorum.electorate, vec![short]).await;
    let [Extend::Renewed { valid_until, .. }] = outcome[..] else { panic!("{outcome:?}") };
    assert_eq!(valid_until, grant.valid_until);
    assert!(quorum.members.iter().all(|member| member.ttl("k") > ms(9_000)));
}

#[tokio::test(start_paused = true)]
async fn a_majority_without_our_value_means_the_hold_is_lost() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    quorum.members[0].set("k", "other", TTL);
    quorum.members[1].set("k", "other", TTL);
    assert_eq!(extend(&quorum, "a", grant.valid_until).await, Extend::Refused { refusals: 2 });
    // One refusal and one silent member decide neither a renewal nor a loss.
    quorum.members[1].freeze(true);
    let outcome = extend(&quorum, "a", grant.valid_until).await;
    let silent = ("m1".into(), MemberFailure::Member(MemberError::TimedOut));
    assert_eq!(outcome, Extend::NoQuorum { failures: vec![silent] });
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_pipeline_with_a_separate_outcome_per_hold() {
    let quorum = Quorum::of(3);
    let redlock = engine(&quorum);
    let grant = granted(&quorum, "a").await;
    let other = |key: &str| ExtendRequest { key: key.into(), ..extension("a", grant.valid_until) };
    quorum.members.iter().for_each(|member| member.set("lost", "other", TTL));
    let late = ExtendRequest { valid_until: Some(quorum.clock.boottime()), ..extension("a", grant.valid_until) };
    let before = quorum.members[0].state().executed;
    let batch = vec![extension("a", grant.valid_until), other("lost"), late];
    let (outcome, took) = timed(&quorum, redlock.extend(&quorum.electorate, batch)).await;
    assert!(
        matches!(outcome[..], [Extend::Renewed { .. }, Extend::Refused { refusals: 3 }, Extend::TooLate]),
        "{outcome:?}"
    );
    assert_eq!(quorum.members[0].state().executed - before, 2);
    assert_eq!(took, ms(1));
    assert_eq!(redlock.extend(&quorum.electorate, Vec::new()).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_repair_ends_with_the_validity_and_spares_other_holders() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    quorum.members[0].state().master.keys.clear();
    quorum.members[1].set("k", "a", TTL);
    let outcome = extend(&quorum, "a", grant.valid_until).await;
    let Extend::Renewed { valid_until, votes, missing, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(votes, Votes { yes: 2, of: 3 });
    assert!(matches!(&missing[..], [Missing { member, .. }] if member.as_str() == "m0"), "{missing:?}");
    let until = (valid_until, valid_until);
    assert_eq!(repair(&quorum, until, &missing).await, ["m0".into()]);
    let ends = quorum.clock.boottime() + quorum.members[0].ttl("k");
    assert!(ends <= valid_until, "{ends:?} {valid_until:?}");
    quorum.members[0].set("k", "other", TTL);
    assert_eq!(repair(&quorum, until, &missing).await, []);
    assert_eq!(quorum.members[0].value("k").as_deref(), Some("other"));
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_arrives_after_the_validity_does_nothing() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    quorum.members[0].state().master.keys.clear();
    let Extend::Renewed { valid_until, missing, .. } = extend(&quorum, "a", grant.valid_until).await else { panic!() };
    quorum.members[0].freeze(true);
    assert_eq!(repair(&quorum, (valid_until, valid_until), &missing).await, []);
    sleep(TTL).await;
    quorum.members[0].freeze(false);
    sleep(ms(5)).await;
    assert_eq!(quorum.members[0].value("k"), None);
    assert_eq!(repair(&quorum, (valid_until, valid_until), &missing).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_arrives_after_its_last_moment_does_nothing() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    quorum.members[0].state().master.keys.clear();
    let outcome = extend(&quorum, "a", grant.valid_until).await;
    let Extend::Renewed { started, valid_until, missing, .. } = outcome else { panic!() };
    let last = repair_until(started, TTL, TIMEOUT).unwrap();
    quorum.members[0].freeze(true);
    assert_eq!(repair(&quorum, (valid_until, last), &missing).await, []);
    sleep(TTL / 4).await;
    quorum.members[0].freeze(false);
    sleep(ms(5)).await;
    assert_eq!(quorum.members[0].value("k"), None);
}

#[tokio::test(start_paused = true)]
async fn without_a_validity_a_majority_proves_the_hold() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    let held = ExtendRequest { valid_until: None, ..extension("a", grant.valid_until) };
    let outcome = engine(&quorum).extend(&quorum.electorate, vec![held]).await;
    assert!(matches!(outcome[..], [Extend::Renewed { .. }]), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_older_than_a_node_timeout_are_not_decisive() {
    let quorum = Quorum::of(3);
    let until = quorum.clock.boottime() + TTL;
    // The second pipeline has twice the timeout.
    let requests = |count: usize| vec![extension("a", until); count];
    let outcome = engine(&quorum).extend(&quorum.electorate, requests(101)).await;
    assert!(outcome.iter().all(|outcome| matches!(outcome, Extend::Refused { .. })), "{outcome:?}");
    quorum.members.iter().for_each(|member| member.state().delay = TIMEOUT + ms(10));
    let outcome = engine(&quorum).extend(&quorum.electorate, requests(101)).await;
    assert!(matches!(outcome[100], Extend::NoQuorum { .. }), "{:?}", outcome[100]);
}
