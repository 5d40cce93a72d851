//! Grants, refusals, tokens, and releases of failed attempts.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_healthy_quorum_grants_in_one_round_trip() {
    let quorum = Quorum::of(3);
    let (grant, took) = timed(&quorum, granted(&quorum, "a")).await;
    assert_eq!(took, ms(1));
    assert_eq!(grant.token, FencingToken::new(1).unwrap());
    // 1 % of 10 s, and 2 ms
    assert_eq!(grant.valid_until, grant.started + TTL.saturating_sub(ms(102)));
    assert_eq!(quorum.holders("k", "a"), 3);
    assert!(quorum.members.iter().all(|member| releases(member) == 0));
}

#[tokio::test(start_paused = true)]
async fn a_majority_decides_without_waiting_for_a_frozen_minority() {
    for (size, frozen) in [(3, 1), (5, 2)] {
        let quorum = Quorum::of(size);
        quorum.members[..frozen].iter().for_each(|member| member.freeze(true));
        let (grant, took) = timed(&quorum, granted(&quorum, "a")).await;
        assert_eq!(took, ms(1), "{frozen} of {size}");
        assert_eq!(grant.votes, Votes { yes: size - frozen, of: size });
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_majority_costs_one_node_timeout_and_is_named() {
    let quorum = Quorum::of(3);
    quorum.members[..2].iter().for_each(|member| member.freeze(true));
    let (outcome, took) = timed(&quorum, acquire(&quorum, "a")).await;
    assert_eq!(took, TIMEOUT);
    let timed_out = |name: &str| (name.into(), MemberFailure::Member(MemberError::TimedOut));
    assert_eq!(outcome, Acquire::NoQuorum { failures: vec![timed_out("m0"), timed_out("m1")] });
    // The members execute the releases after the SETs.
    assert_eq!(quorum.members.iter().map(|member| releases(member)).collect::<Vec<_>>(), [1, 1, 1]);
    quorum.members.iter().for_each(|member| member.freeze(false));
    sleep(ms(5)).await;
    assert_eq!(quorum.holders("k", "a"), 0);
    assert!(quorum.members.iter().all(|member| member.state().executed == 2), "set and deleted, in this order");
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_reports_occupants_and_releases_everywhere() {
    let quorum = Quorum::of(3);
    quorum.members[..2].iter().for_each(|member| member.set("k", "other", ms(4_000)));
    let (outcome, took) = timed(&quorum, acquire(&quorum, "a")).await;
    assert_eq!(took, ms(1));
    let Acquire::HeldByOther { refusals: 2, longest, occupants } = outcome else { panic!("{outcome:?}") };
    assert_eq!(longest, Some(ms(3_999)));
    assert_eq!(occupants.len(), 2);
    let holder = KeyState::String { value: StoredValue::new("other"), remaining: Some(ms(3_999)) };
    assert_eq!(occupants[0].holder, holder);
    sleep(ms(5)).await;
    assert_eq!((quorum.holders("k", "a"), quorum.holders("k", "other")), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn taken_and_unreachable_are_not_mixed_up() {
    // One member refuses, one is dead, one is slow: the attempt is lost at once, but its reason is open until the slow
    // one answers.
    for (slow_refuses, held_by_other) in [(true, true), (false, false)] {
        let quorum = Quorum::of(3);
        quorum.members[0].set("k", "other", TTL);
        quorum.members[1].state().down = Some(MemberError::Unreachable("connection refused".to_owned()));
        quorum.members[2].state().delay = ms(30);
        if slow_refuses {
            quorum.members[2].set("k", "other", TTL);
        }
        let (outcome, took) = timed(&quorum, acquire(&quorum, "a")).await;
        assert_eq!(took, ms(30));
        assert_eq!(matches!(outcome, Acquire::HeldByOther { refusals: 2, .. }), held_by_other, "{outcome:?}");
        // A refusal is no failure.
        let has_one_failure = matches!(&outcome, Acquire::NoQuorum { failures } if failures.len() == 1);
        assert_eq!(has_one_failure, !held_by_other, "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_is_released_before_its_reason_is_decided() {
    let quorum = Quorum::of(3);
    quorum.members[0].set("k", "other", TTL);
    quorum.members[1].state().down = Some(MemberError::Fenced);
    quorum.members[2].freeze(true);
    let attempt = acquire(&quorum, "a");
    tokio::pin!(attempt);
    assert!(tokio::time::timeout(ms(5), &mut attempt).await.is_err());
    assert!(quorum.members.iter().all(|member| releases(member) == 1));
    assert!(matches!(attempt.await, Acquire::NoQuorum { failures } if failures.len() == 2));
    assert!(quorum.members.iter().all(|member| releases(member) == 1), "released once");
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_comes_after_the_decision_is_not_counted() {
    let quorum = Quorum::of(3);
    // The late member would give a higher token, but the grant has the token of the majority.
    quorum.members[2].state().delay = ms(20);
    quorum.members[2].state().master.counter = 40;
    let grant = granted(&quorum, "a").await;
    assert_eq!((grant.token.get(), grant.votes), (1, Votes { yes: 2, of: 3 }));
    sleep(ms(30)).await;
    assert_eq!(quorum.holders("k", "a"), 3);
}

#[tokio::test(start_paused = true)]
async fn late_votes_change_no_token_and_are_not_awaited_for_long() {
    for (is_frozen, yes, waits) in [(false, 3, ms(1)), (true, 2, ms(2))] {
        let quorum = Quorum::of(3);
        quorum.members[2].state().delay = ms(2);
        quorum.members[2].state().master.counter = 40;
        quorum.members[2].freeze(is_frozen);
        let (outcome, mut late) = engine(&quorum).attempt(&quorum.electorate, request("a")).await;
        let Acquire::Granted(grant) = outcome else { panic!("{outcome:?}") };
        assert_eq!((grant.token.get(), grant.votes), (1, Votes { yes: 2, of: 3 }));
        let (votes, took) = timed(&quorum, late.within(ms(2))).await;
        assert_eq!((votes, took), (Some(Votes { yes, of: 3 }), waits), "frozen: {is_frozen}");
        let (outcome, mut late) = engine(&quorum).attempt(&quorum.electorate, request("b")).await;
        assert!(!matches!(outcome, Acquire::Granted(_)));
        assert_eq!(timed(&quorum, late.within(ms(2))).await, (None, ms(0)), "without a grant it returns immediately");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_releases_everywhere() {
    let quorum = Quorum::of(3);
    quorum.members[..2].iter().for_each(|member| member.freeze(true));
    assert!(tokio::time::timeout(ms(10), acquire(&quorum, "a")).await.is_err());
    quorum.members.iter().for_each(|member| member.freeze(false));
    sleep(ms(5)).await;
    assert_eq!(quorum.holders("k", "a"), 0);
    assert!(quorum.members.iter().all(|member| releases(member) == 1));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_leaves_no_validity_is_expired_and_released() {
    let quorum = Quorum::of(3);
    quorum.members.iter().for_each(|member| member.state().delay = ms(30));
    let short = AcquireRequest { ttl: ms(32), ..request("a") };
    let outcome = engine(&quorum).acquire(&quorum.electorate, short).await;
    assert_eq!(outcome, Acquire::Expired);
    assert!(quorum.members.iter().all(|member| releases(member) == 1));
}

#[tokio::test(start_paused = true)]
async fn a_majority_confirms_the_second_round_of_differing_counters() {
    let quorum = Quorum::of(3);
    quorum.members[0].state().master.counter = 6;
    quorum.members[2].freeze(true);
    let (grant, took) = timed(&quorum, granted(&quorum, "a")).await;
    // The attempt waited for the third vote as long as the first two took.
    assert_eq!((grant.token.get(), took), (7, ms(3)));
    assert_eq!(quorum.members[1].state().master.counter, 7, "written back");
    // The elapsed time includes both rounds.
    assert_eq!(grant.valid_until, grant.started + TTL.saturating_sub(ms(102)));
}

#[tokio::test(start_paused = true)]
async fn a_write_back_is_valid_only_on_members_that_keep_the_key() {
    let quorum = Quorum::of(3);
    quorum.members[0].state().master.counter = 6;
    quorum.members[2].freeze(true);
    // Member 1 votes with 1 after 10 ms, and loses the key before the write-back reaches it after 20 ms.
    quorum.members.iter().for_each(|member| member.state().delay = ms(10));
    let attempt = acquire(&quorum, "a");
    let lose = async {
        sleep(ms(15)).await;
        quorum.members[1].set("k", "other", TTL);
    };
    let (outcome, ()) = tokio::join!(attempt, lose);
    assert_eq!(outcome, Acquire::NoQuorum { failures: Vec::new() }, "member 1 refused, and did not fail");
    assert!(quorum.members.iter().all(|member| releases(member) == 1));
    assert_eq!(quorum.members[1].state().master.counter, 1, "a member that has lost the key stores no token");
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_from_holder_to_holder_through_any_majority() {
    let quorum = Quorum::of(5);
    let mut last = FencingToken::ZERO;
    for turn in 0..20 {
        let frozen = [turn % 5, (turn * 3 + 1) % 5];
        frozen.iter().for_each(|index| quorum.members[*index].freeze(true));
        let text = format!("v{turn}");
        let grant = granted(&quorum, &text).await;
        assert!(grant.token > last, "turn {turn}: {} after {last}", grant.token);
        last = grant.token;
        frozen.iter().for_each(|index| quorum.members[*index].freeze(false));
        engine(&quorum).release(&quorum.electorate, &"k".into(), &value(&text)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn counters_that_differ_cost_no_second_round_when_all_vote() {
    let quorum = Quorum::of(3);
    quorum.set_counters([6, 9, 3]);
    let (grant, took) = timed(&quorum, granted(&quorum, "a")).await;
    // Two members store 7 or more, and any later majority includes one of them.
    assert_eq!((grant.token.get(), took), (7, ms(1)));
    let raises = |command: &Command| matches!(command, Command::RaiseCounter { .. });
    assert!(quorum.members.iter().all(|member| !member.state().log.iter().any(raises)));
}

#[tokio::test(start_paused = true)]
async fn a_client_with_only_incr_uses_counters_that_are_near() {
    let quorum = Quorum::of(5);
    quorum.set_counters([9_000, 100, 150, 40, 0]);
    quorum.members[4].freeze(true);
    let client = engine(&quorum).with_token_reach(1_000);
    // The token comes from the highest three counters that are within 1,000 of each other.
    let outcome = client.acquire(&quorum.electorate, request("a")).await;
    assert!(matches!(outcome, Acquire::Granted(grant) if grant.token.get() == 151), "{outcome:?}");
    let outcome = client.acquire(&quorum.electorate, AcquireRequest { key: "l".into(), ..request("b") }).await;
    assert!(matches!(outcome, Acquire::Granted(grant) if grant.token.get() > 151), "{outcome:?}");
    quorum.set_counters([90_000, 60_000, 30_000, 1, 0]);
    let outcome = client.acquire(&quorum.electorate, AcquireRequest { key: "m".into(), ..request("c") }).await;
    assert_eq!(outcome, Acquire::CountersApart);
    sleep(ms(10)).await;
    assert_eq!(quorum.holders("m", "c"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_a_spent_counter_is_not_counted() {
    let quorum = Quorum::of(3);
    quorum.members[0].state().master.counter = FencingToken::OUTLIER.get();
    assert_eq!(granted(&quorum, "a").await.token.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn equal_lists_become_one_and_a_learner_is_ignored() {
    let mut quorum = Quorum::of(4);
    quorum.set_counters([29, 19, 9, 5_000]);
    let listed: Vec<_> =
        quorum.electorate.electors().iter().take(3).map(|elector| elector.member.name().clone()).collect();
    let electors = quorum.electorate.electors().to_vec();
    quorum.electorate = Electorate::joint(electors, listed.clone(), listed);
    // The token is the second largest number of the three listed members. The learner's larger number is ignored.
    assert_eq!(granted(&quorum, "a").await.token.get(), 20);
    assert_eq!(quorum.members[2].state().master.counter, 10, "there was no second round");
}
