use std::time::Duration;

use super::*;
use crate::agent::leadership::Hold;
use crate::agent::tests::template;
use crate::tests::at;
use redlock_api::GoDuration;

const ELECTED: &str = "shop/elected";

fn order(lock: &str, request: Option<&str>) -> Order {
    let args = crate::hold::LockArgs { lock: lock.parse().unwrap(), ..template() };
    Order { args, request: request.map(str::to_owned), is_unattended: false, least: Duration::ZERO }
}

/// A state with a patience of 10 s and an instance `one`, which registered at 0.
fn served(is_election: bool, has_hooks: bool) -> AgentState {
    let mut state = AgentState::new(order(ELECTED, None), is_election, has_hooks, Duration::from_secs(10));
    assert_eq!(state.register("one".into(), false, at(0)), Ok(()));
    state
}

fn steps(state: &mut AgentState, now: u64) -> Vec<String> {
    let name = |action| match action {
        Action::Acquire { lock, .. } => format!("acquire {lock}"),
        Action::End { lock } => format!("end {lock}"),
        Action::Log { line, .. } => line,
        Action::Elected => "elected".to_owned(),
        Action::Lost => "lost".to_owned(),
    };
    state.step(at(now)).into_iter().map(name).collect()
}

/// The attempt reports that it has the lock.
fn held(state: &mut AgentState, lock: &str, token: i64, until: u64, now: u64) {
    let hold = Hold::new(token, "me".into(), true, at(until), Duration::ZERO);
    state.lock(lock).unwrap().held(hold, at(now));
}

fn leads(state: &mut AgentState, lock: &str, instance: &str, now: u64) -> Option<i64> {
    match state.answer(lock, Some(instance), at(now)) {
        Answer::Leads { token, .. } => Some(token),
        _ => None,
    }
}

#[test]
fn the_last_instance_that_registered_is_served() {
    let mut state = served(false, false);
    let refusal = |state: &mut AgentState, id: Option<&str>| match state.answer(ELECTED, id, at(1)) {
        Answer::No(refusal) => Some(refusal),
        _ => None,
    };
    assert_eq!(refusal(&mut state, Some("one")), None);
    assert_eq!(refusal(&mut state, Some("two")), Some(Refusal::NotServed));
    assert_eq!(refusal(&mut state, None), Some(Refusal::NotRegistered));
    assert_eq!(state.register("two".into(), false, at(2)), Ok(()));
    assert_eq!(refusal(&mut state, Some("one")), Some(Refusal::NotServed));
    assert_eq!(state.answer("shop/other", Some("two"), at(2)), Answer::No(Refusal::NotAcquired));
}

#[test]
fn an_instance_that_registers_behind_another_one_ends_nothing() {
    let mut state = served(false, false);
    assert_eq!(state.register("two".into(), true, at(1)), Err(Refusal::Served));
    assert!(state.is_wanted(ELECTED, at(1)));
    assert_eq!(state.unregister(Some("two"), at(1)), Err(Refusal::NotServed));
    assert_eq!(state.unregister(Some("one"), at(1)), Ok(()));
    assert!(!state.is_wanted(ELECTED, at(1)));
    assert_eq!(state.register("two".into(), true, at(1)), Ok(()), "no instance is served");
}

/// The client repeats a request on a second connection.
#[test]
fn a_request_that_is_repeated_waits_for_the_same_acquisition() {
    let mut state = served(false, false);
    let acquire = |state: &mut AgentState, id| state.acquire(Some("one"), order("shop/a", Some(id)), at(1));
    assert_eq!([acquire(&mut state, "r"), acquire(&mut state, "r")], [Ok(()), Ok(())]);
    assert_eq!(acquire(&mut state, "other"), Err(Refusal::Taken));
    state.request_ended("shop/a", false);
    assert!(state.is_wanted("shop/a", at(1)), "the second one still waits");
    state.request_ended("shop/a", false);
    assert!(!state.is_wanted("shop/a", at(1)));
    // One of them got the lock, and the end of the other one does not release it.
    assert_eq!([acquire(&mut state, "r"), acquire(&mut state, "r")], [Ok(()), Ok(())]);
    state.request_ended("shop/a", true);
    state.request_ended("shop/a", false);
    assert!(state.is_wanted("shop/a", at(1)));
}

#[test]
fn a_lock_is_released_when_the_last_promise_has_passed() {
    let mut state = served(false, false);
    assert_eq!(steps(&mut state, 0), ["acquire shop/elected"]);
    assert!(steps(&mut state, 1).is_empty(), "the attempt runs");
    held(&mut state, ELECTED, 7, 3_000, 100);
    assert_eq!(leads(&mut state, ELECTED, "one", 200), Some(7));
    held(&mut state, ELECTED, 7, 20_000, 2_000);
    assert!(steps(&mut state, 10_199).is_empty());
    let gone = "token 7 is given back: the application does not want it any more, or does not ask";
    assert_eq!(steps(&mut state, 10_200), [gone, "end shop/elected"], "the promise ended at 3 s");
    // The instance was slow, and sends a request while the attempt releases the lock.
    assert_eq!(leads(&mut state, ELECTED, "one", 10_300), None);
    assert!(steps(&mut state, 10_300).is_empty());
    state.lock(ELECTED).unwrap().released(at(10_400));
    assert_eq!(steps(&mut state, 10_400), ["acquire shop/elected"]);
    held(&mut state, ELECTED, 8, 20_000, 10_500);
    assert_eq!(leads(&mut state, ELECTED, "one", 10_600), Some(8));
    assert_eq!(state.register("two".into(), false, at(10_700)), Ok(()));
    assert_eq!(steps(&mut state, 10_700), ["token 8 is given back: another instance has registered since"]);
    assert!(steps(&mut state, 19_999).is_empty());
    assert_eq!(steps(&mut state, 20_000), ["end shop/elected"]);
}

#[test]
fn the_application_can_release_a_lock_before_its_promise_ends() {
    let mut state = served(false, false);
    let _ = steps(&mut state, 0);
    held(&mut state, ELECTED, 7, 3_000, 0);
    assert_eq!(leads(&mut state, ELECTED, "one", 1), Some(7));
    assert_eq!(state.release(ELECTED, Some("one"), 6, at(2)), Err(Refusal::OtherToken { token: 6 }));
    assert_eq!(state.release(ELECTED, Some("one"), 7, at(2)), Ok(()));
    assert_eq!(steps(&mut state, 2), ["token 7 is given back: the application has released it", "end shop/elected"]);
    state.lock(ELECTED).unwrap().released(at(3));
    assert!(steps(&mut state, 3).is_empty(), "a release is no new request");
}

#[test]
fn an_attempt_is_cancelled_or_tried_again_after_a_pause() {
    let mut state = served(false, false);
    assert_eq!(state.acquire(Some("one"), order("shop/a", None), at(0)), Ok(()));
    assert_eq!(steps(&mut state, 0), ["acquire shop/a", "acquire shop/elected"]);
    state.lock(ELECTED).unwrap().failed(at(10));
    state.lock("shop/a").unwrap().failed(at(10));
    assert!(!state.is_wanted("shop/a", at(10)), "its request gets the reason");
    assert_eq!(state.next_step(at(10)), Some(Duration::from_secs(1)));
    assert!(steps(&mut state, 1_009).is_empty());
    assert_eq!(steps(&mut state, 1_010), ["acquire shop/elected"]);
    assert!(state.lock("shop/a").is_some(), "its request has not ended");
    state.request_ended("shop/a", false);
    let _ = steps(&mut state, 1_011);
    assert!(state.lock("shop/a").is_none());
    assert_eq!(state.unregister(Some("one"), at(1_100)), Ok(()));
    assert_eq!(steps(&mut state, 1_100), ["end shop/elected"]);
    // The attempt already had the lock, and releases it. The next instance gets another token.
    assert_eq!(state.register("two".into(), false, at(1_100)), Ok(()));
    held(&mut state, ELECTED, 7, 9_000, 1_101);
    assert!(steps(&mut state, 1_101).is_empty());
    assert_eq!(leads(&mut state, ELECTED, "two", 1_102), None);
    state.lock(ELECTED).unwrap().released(at(1_200));
    assert_eq!(steps(&mut state, 1_200), ["acquire shop/elected"]);
}

#[test]
fn a_hold_has_a_longest_time_and_a_shortest_one() {
    let mut state = served(false, false);
    let mut order = order("shop/a", None);
    order.args.max_hold = Some(GoDuration::from_secs(2));
    (order.is_unattended, order.least) = (true, Duration::from_secs(3));
    assert_eq!(state.acquire(Some("one"), order, at(0)), Ok(()));
    let _ = steps(&mut state, 0);
    // Both times begin when the lock is held, after a wait of any length.
    held(&mut state, "shop/a", 7, 60_000, 20_000);
    assert!(steps(&mut state, 21_999).iter().all(|step| !step.contains("token 7")));
    let end = "token 7 is given back: it was held for its maximum time";
    assert_eq!(steps(&mut state, 22_000), [end]);
    assert!(steps(&mut state, 22_999).is_empty());
    assert_eq!(steps(&mut state, 23_000), ["end shop/a"]);
}

#[test]
fn an_agent_that_is_stopped_ends_when_all_locks_are_released() {
    let mut state = served(false, false);
    let _ = steps(&mut state, 0);
    held(&mut state, ELECTED, 7, 3_000, 0);
    assert_eq!(leads(&mut state, ELECTED, "one", 1), Some(7));
    state.stop();
    assert_eq!(steps(&mut state, 2).len(), 1);
    assert_eq!(leads(&mut state, ELECTED, "one", 3), None);
    assert_eq!(state.acquire(Some("one"), order("shop/a", None), at(4)), Err(Refusal::Stopping));
    assert_eq!(steps(&mut state, 3_000), ["end shop/elected"]);
    assert!(!state.has_stopped());
    state.lock(ELECTED).unwrap().released(at(3_001));
    assert!(steps(&mut state, 3_001).is_empty() && state.has_stopped());
}

#[test]
fn a_signal_is_sent_at_each_beginning_and_each_end() {
    let mut state = served(false, true);
    let _ = steps(&mut state, 0);
    held(&mut state, ELECTED, 7, 3_000, 0);
    assert_eq!(steps(&mut state, 0), ["elected"]);
    held(&mut state, ELECTED, 7, 4_000, 1_000);
    assert!(steps(&mut state, 1_000).is_empty(), "a renewal is no beginning");
    let expired = "token 7 is given back: the validity of token 7 has passed, and no renewal is known";
    assert_eq!(steps(&mut state, 4_000), [expired, "end shop/elected", "lost"]);
}

#[test]
fn an_election_is_followed_and_no_lock_is_taken() {
    let mut state = served(true, false);
    assert!(steps(&mut state, 0).is_empty());
    assert_eq!(state.acquire(Some("one"), order("shop/a", None), at(0)), Err(Refusal::Election));
    // This token was granted before the start of the agent. An earlier agent possibly promised it to the application.
    state.assume_promise(6, at(500));
    let elect = |state: &mut AgentState, token, until, now| {
        state
            .lock(ELECTED)
            .unwrap()
            .leadership
            .held(Hold::new(token, "pod-a".into(), true, at(until), Duration::ZERO), at(now));
    };
    elect(&mut state, 6, 3_000, 1);
    assert_eq!(state.answer(ELECTED, Some("one"), at(2)), Answer::No(Refusal::HeldBefore { token: 6 }));
    let mut is_unused = |token, now| state.is_unused(token, at(now));
    assert!(!is_unused(6, 499) && is_unused(6, 500));
    elect(&mut state, 7, 3_000, 600);
    assert_eq!(leads(&mut state, ELECTED, "one", 700), Some(7));
    assert_eq!(state.leader(at(700)).as_deref(), Some("pod-a"));
    state.stop();
    assert!(state.has_stopped());
}
