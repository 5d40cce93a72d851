use super::fake::{Fake, Quorum, electors};
use super::{Redlock, Settings};
use crate::redlock::{
    Acquire, AcquireRequest, ClockCheck, ClockSample, Command, Electorate, Extend, ExtendRequest, FencingToken, Grant,
    KeyState, LockValue, MemberError, MemberFailure, Missing, RunId, Seal, StoredValue, Votes,
};
use crate::time::{Boottime, Clock, TokioClock};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(50);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn engine(quorum: &Quorum) -> Redlock<TokioClock> {
    Redlock::new(Arc::clone(&quorum.clock), Settings::default())
}

fn value(text: &str) -> LockValue {
    LockValue::from_text(text)
}

fn request(text: &str) -> AcquireRequest {
    AcquireRequest { key: "k".into(), value: value(text), ttl: TTL, hint: FencingToken::ZERO }
}

async fn acquire(quorum: &Quorum, text: &str) -> Acquire {
    engine(quorum).acquire(&quorum.electorate, request(text)).await
}

async fn granted(quorum: &Quorum, text: &str) -> Grant {
    match acquire(quorum, text).await {
        Acquire::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn extension(text: &str, valid_until: Boottime) -> ExtendRequest {
    ExtendRequest { key: "k".into(), value: value(text), ttl: TTL, valid_until }
}

async fn extend(quorum: &Quorum, text: &str, valid_until: Boottime) -> Extend {
    let mut answers = engine(quorum).extend(&quorum.electorate, vec![extension(text, valid_until)]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

/// What `future` takes on the paused clock.
async fn timed<T>(quorum: &Quorum, future: impl Future<Output = T>) -> (T, Duration) {
    let started = quorum.clock.boottime();
    let output = future.await;
    (output, quorum.clock.boottime().since(started))
}

fn releases(fake: &Fake) -> usize {
    fake.state().log.iter().filter(|command| matches!(command, Command::Release { .. })).count()
}

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
    assert_eq!(outcome, Acquire::NoQuorum { refusals: 0, failures: vec![timed_out("m0"), timed_out("m1")] });
    // The releases wait behind the SETs.
    assert_eq!(quorum.members.iter().map(|member| releases(member)).collect::<Vec<_>>(), [1, 1, 1]);
    quorum.members.iter().for_each(|member| member.freeze(false));
    sleep(ms(5)).await;
    assert_eq!(quorum.holders("k", "a"), 0);
    assert!(quorum.members.iter().all(|member| member.state().executed == 2), "set and deleted, in this order");
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_says_what_it_saw_and_releases_everywhere() {
    let quorum = Quorum::of(3);
    quorum.members[..2].iter().for_each(|member| member.set("k", "other", ms(4_000)));
    let (outcome, took) = timed(&quorum, acquire(&quorum, "a")).await;
    assert_eq!(took, ms(1));
    let Acquire::HeldByOther { refusals: 2, longest, seen } = outcome else { panic!("{outcome:?}") };
    assert_eq!(longest, Some(ms(3_999)));
    assert_eq!(seen.len(), 2);
    let holder = KeyState::String { value: StoredValue::new("other"), remaining: Some(ms(3_999)) };
    assert_eq!(seen[0].holder, holder);
    sleep(ms(5)).await;
    assert_eq!((quorum.holders("k", "a"), quorum.holders("k", "other")), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn taken_and_unreachable_are_not_mixed_up() {
    // One says taken, one is dead, one is slow: lost at once, but why is open until the slow one has answered.
    for (slow_says_taken, held_by_other) in [(true, true), (false, false)] {
        let quorum = Quorum::of(3);
        quorum.members[0].set("k", "other", TTL);
        quorum.members[1].state().down = Some(MemberError::Unreachable("connection refused".to_owned()));
        quorum.members[2].state().delay = ms(30);
        if slow_says_taken {
            quorum.members[2].set("k", "other", TTL);
        }
        let (outcome, took) = timed(&quorum, acquire(&quorum, "a")).await;
        assert_eq!(took, ms(30));
        assert_eq!(matches!(outcome, Acquire::HeldByOther { refusals: 2, .. }), held_by_other, "{outcome:?}");
        assert_eq!(matches!(outcome, Acquire::NoQuorum { refusals: 1, .. }), !held_by_other, "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_is_released_before_the_reason_is_known() {
    let quorum = Quorum::of(3);
    quorum.members[0].set("k", "other", TTL);
    quorum.members[1].state().down = Some(MemberError::Fenced);
    quorum.members[2].freeze(true);
    let attempt = acquire(&quorum, "a");
    tokio::pin!(attempt);
    assert!(tokio::time::timeout(ms(5), &mut attempt).await.is_err());
    assert!(quorum.members.iter().all(|member| releases(member) == 1));
    assert!(matches!(attempt.await, Acquire::NoQuorum { refusals: 1, .. }));
    assert!(quorum.members.iter().all(|member| releases(member) == 1), "released once");
}

#[tokio::test(start_paused = true)]
async fn a_vote_that_comes_after_the_decision_is_not_counted() {
    let quorum = Quorum::of(3);
    // The late member would give a higher token; the majority's is published.
    quorum.members[2].state().delay = ms(20);
    quorum.members[2].state().counter = 40;
    let grant = granted(&quorum, "a").await;
    assert_eq!((grant.token.get(), grant.votes), (1, Votes { yes: 2, of: 3 }));
    sleep(ms(30)).await;
    assert_eq!(quorum.holders("k", "a"), 3);
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
async fn differing_counters_cost_a_second_round_that_a_majority_confirms() {
    let quorum = Quorum::of(3);
    quorum.members[0].state().counter = 6;
    quorum.members[2].freeze(true);
    let (grant, took) = timed(&quorum, granted(&quorum, "a")).await;
    assert_eq!((grant.token.get(), took), (7, ms(2)));
    assert_eq!(quorum.members[1].state().counter, 7, "written back");
    // The validity counts both rounds.
    assert_eq!(grant.valid_until, grant.started + TTL.saturating_sub(ms(102)));
}

#[tokio::test(start_paused = true)]
async fn a_write_back_counts_only_where_the_key_is_still_ours() {
    let quorum = Quorum::of(3);
    quorum.members[0].state().counter = 6;
    quorum.members[2].freeze(true);
    // Member 1 votes with 1 after 10 ms, and loses the key before the write-back reaches it after 20 ms.
    quorum.members.iter().for_each(|member| member.state().delay = ms(10));
    let attempt = acquire(&quorum, "a");
    let lose = async {
        sleep(ms(15)).await;
        quorum.members[1].set("k", "other", TTL);
    };
    let (outcome, ()) = tokio::join!(attempt, lose);
    assert!(matches!(outcome, Acquire::NoQuorum { refusals: 1, .. }), "{outcome:?}");
    assert!(quorum.members.iter().all(|member| releases(member) == 1));
    assert_eq!(quorum.members[1].state().counter, 1, "a member that has lost the key stores no token");
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
async fn a_vote_of_a_process_that_is_not_admitted_is_dropped() {
    let quorum = Quorum::of(3);
    quorum.members[0].restart();
    quorum.members[1].restart();
    let outcome = acquire(&quorum, "a").await;
    let not_admitted = |name: &str| (name.into(), MemberFailure::NotAdmitted);
    assert_eq!(outcome, Acquire::NoQuorum { refusals: 0, failures: vec![not_admitted("m0"), not_admitted("m1")] });
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_of_admitted_members_no_key_is_set() {
    let quorum = Quorum::of(3);
    let mut electors = electors(&quorum.members);
    electors[0].admitted = None;
    electors[1].admitted = None;
    let outcome = engine(&quorum).acquire(&Electorate::single(electors), request("a")).await;
    assert!(matches!(outcome, Acquire::NoQuorum { refusals: 0, ref failures } if failures.len() == 2), "{outcome:?}");
    let sets = |fake: &Fake| fake.state().log.iter().filter(|c| matches!(c, Command::Acquire { .. })).count();
    assert!(quorum.members.iter().all(|member| sets(member) == 0));
}

#[tokio::test(start_paused = true)]
async fn one_process_under_two_names_has_one_vote() {
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
    // One member of each list may be missing.
    quorum.members[3].state().down = None;
    quorum.members[0].state().down = Some(MemberError::Fenced);
    let outcome = engine(&quorum).acquire(&electorate, request("c")).await;
    assert!(matches!(outcome, Acquire::Granted(_)), "{outcome:?}");
}

/// Distrusts one process.
struct Distrust(RunId);

impl ClockCheck for Distrust {
    fn steady(&self, run_id: &RunId, _sample: &ClockSample) -> bool {
        *run_id != self.0
    }
}

#[tokio::test(start_paused = true)]
async fn a_yes_from_a_stepped_clock_does_not_count() {
    let quorum = Quorum::of(3);
    quorum.members[0].freeze(true);
    let stepped = quorum.members[1].state().run_id.clone();
    let electorate = quorum.electorate.clone().with_clock_check(Arc::new(Distrust(stepped)));
    let outcome = engine(&quorum).acquire(&electorate, request("a")).await;
    let Acquire::NoQuorum { refusals: 0, failures } = outcome else { panic!("{outcome:?}") };
    assert!(failures.contains(&("m1".into(), MemberFailure::ClockStepped)), "{failures:?}");
}

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
async fn an_extension_decided_after_the_old_validity_is_too_late_whatever_the_votes() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    let left = |before: u64| grant.valid_until.since(quorum.clock.boottime()).saturating_sub(ms(before));
    // Begun before its end and decided after it.
    sleep(left(10)).await;
    quorum.members.iter().for_each(|member| member.state().delay = ms(20));
    assert_eq!(extend(&quorum, "a", grant.valid_until).await, Extend::TooLate);
    // Begun after its end: not even asked.
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
    // One that refuses and one that is silent are no majority for either.
    quorum.members[1].freeze(true);
    let outcome = extend(&quorum, "a", grant.valid_until).await;
    let silent = ("m1".into(), MemberFailure::Member(MemberError::TimedOut));
    assert_eq!(outcome, Extend::NoQuorum { failures: vec![silent] });
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_pipeline_and_each_hold_is_decided_by_itself() {
    let quorum = Quorum::of(3);
    let redlock = engine(&quorum);
    let grant = granted(&quorum, "a").await;
    let other = |key: &str| ExtendRequest { key: key.into(), ..extension("a", grant.valid_until) };
    quorum.members.iter().for_each(|member| member.set("lost", "other", TTL));
    let late = ExtendRequest { valid_until: quorum.clock.boottime(), ..extension("a", grant.valid_until) };
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
async fn a_lost_key_is_repaired_for_the_rest_of_the_validity_and_never_over_another_holder() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    quorum.members[0].state().keys.clear();
    quorum.members[1].set("k", "a", TTL);
    let outcome = extend(&quorum, "a", grant.valid_until).await;
    let Extend::Renewed { valid_until, votes, missing, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(votes, Votes { yes: 2, of: 3 });
    assert!(matches!(&missing[..], [Missing { member, .. }] if member.as_str() == "m0"), "{missing:?}");
    let redlock = engine(&quorum);
    let (key, held) = ("k".into(), value("a"));
    let repair = || redlock.repair(&quorum.electorate, &key, &held, valid_until, &missing);
    assert_eq!(repair().await, ["m0".into()]);
    let ends = quorum.clock.boottime() + quorum.members[0].ttl("k");
    assert!(ends <= valid_until, "{ends:?} {valid_until:?}");
    quorum.members[0].set("k", "other", TTL);
    assert_eq!(repair().await, []);
    assert_eq!(quorum.members[0].value("k").as_deref(), Some("other"));
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_arrives_after_the_validity_does_nothing() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    quorum.members[0].state().keys.clear();
    let Extend::Renewed { valid_until, missing, .. } = extend(&quorum, "a", grant.valid_until).await else { panic!() };
    quorum.members[0].freeze(true);
    let redlock = engine(&quorum);
    assert_eq!(redlock.repair(&quorum.electorate, &"k".into(), &value("a"), valid_until, &missing).await, []);
    sleep(TTL).await;
    quorum.members[0].freeze(false);
    sleep(ms(5)).await;
    assert_eq!(quorum.members[0].value("k"), None);
    assert_eq!(redlock.repair(&quorum.electorate, &"k".into(), &value("a"), valid_until, &missing).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_sealed_hold_can_be_extended_by_nobody_and_ends_when_the_seal_says() {
    let quorum = Quorum::of(3);
    let grant = granted(&quorum, "a").await;
    sleep(ms(4_000)).await;
    let redlock = engine(&quorum);
    let (key, held, sealed) = ("k".into(), value("a"), value("sealed"));
    let seal = || redlock.seal(&quorum.electorate, &key, &held, &sealed, ms(2_000));
    let Seal::Sealed { longest, until } = seal().await else { panic!() };
    assert_eq!(longest, ms(7_999), "6 s left, less 1 ms on the way, and 2 s of lock delay");
    assert!(until > grant.valid_until);
    assert_eq!(extend(&quorum, "a", grant.valid_until).await, Extend::Refused { refusals: 3 });
    assert!(matches!(acquire(&quorum, "b").await, Acquire::HeldByOther { .. }));
    // Sealing again adds no further delay.
    sleep(ms(1_000)).await;
    let Seal::Sealed { longest: again, .. } = seal().await else { panic!() };
    assert!(again < ms(7_000), "{again:?}");
    sleep(until.since(quorum.clock.boottime())).await;
    granted(&quorum, "c").await;
}

#[tokio::test(start_paused = true)]
async fn a_seal_needs_a_majority_and_knows_when_the_hold_is_gone() {
    let quorum = Quorum::of(3);
    granted(&quorum, "a").await;
    let redlock = engine(&quorum);
    let (key, held, sealed) = ("k".into(), value("a"), value("sealed"));
    let seal = || redlock.seal(&quorum.electorate, &key, &held, &sealed, Duration::ZERO);
    quorum.members[0].state().keys.clear();
    quorum.members[1].freeze(true);
    // One has lost the key: that is no confirmation, a repair may be under way to it.
    let outcome = seal().await;
    assert!(matches!(outcome, Seal::NoQuorum { .. }), "{outcome:?}");
    quorum.members[1].freeze(false);
    sleep(ms(5)).await;
    assert!(matches!(seal().await, Seal::Sealed { .. }));
    quorum.members[1].state().keys.clear();
    assert_eq!(seal().await, Seal::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_release_reaches_everybody_and_waits_for_nobody_long() {
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
async fn an_inspection_tells_of_each_admitted_member() {
    let quorum = Quorum::of(3);
    quorum.members[0].set("k", "a", TTL);
    quorum.members[1].restart();
    quorum.members[2].freeze(true);
    let states = engine(&quorum).inspect(&quorum.electorate, &"k".into()).await;
    let held = KeyState::String { value: StoredValue::new("a"), remaining: Some(ms(9_999)) };
    assert_eq!(
        states,
        vec![
            ("m0".into(), Ok(held)),
            ("m1".into(), Err(MemberFailure::NotAdmitted)),
            ("m2".into(), Err(MemberFailure::Member(MemberError::TimedOut))),
        ]
    );
}
