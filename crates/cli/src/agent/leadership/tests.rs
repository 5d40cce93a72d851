use super::*;
use crate::tests::at;

fn hold(token: i64, until: u64) -> Hold {
    Hold::new(token, "pod-a".into(), true, at(until), Duration::from_millis(200))
}

/// An agent that holds the lock with token 7 until 3 s.
fn holding() -> Leadership {
    let mut leadership = Leadership::new();
    leadership.held(hold(7, 3_000), at(0));
    leadership
}

fn leads(leadership: &mut Leadership, now: u64) -> Option<(i64, Boottime)> {
    match leadership.answer(at(now)) {
        Answer::Leads { token, deadline, .. } => Some((token, deadline)),
        _ => None,
    }
}

fn refusal(leadership: &mut Leadership, now: u64) -> Refusal {
    match leadership.answer(at(now)) {
        Answer::No(refusal) => refusal,
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn leadership_is_unknown_before_the_first_answer() {
    assert!(matches!(Leadership::new().answer(at(0)), Answer::Unknown { .. }));
    assert_eq!(Leadership::new().leader(at(0)), None);
}

#[test]
fn the_instance_leads_until_the_deadline_and_not_beyond_it() {
    let mut leadership = holding();
    assert_eq!(leads(&mut leadership, 2_799), Some((7, at(2_800))));
    assert!(matches!(leadership.answer(at(2_800)), Answer::Unknown { .. }));
    assert_eq!(leadership.leader(at(2_800)), None, "a validity that has passed names no leader");
}

#[test]
fn a_hold_whose_deadline_has_passed_once_does_not_come_back() {
    let mut asked = holding();
    assert_eq!(leads(&mut asked, 2_900), None);
    // The second one got no request in between, and the renewal is late.
    for mut leadership in [asked, holding()] {
        leadership.held(hold(7, 6_000), at(2_950));
        assert_eq!(leads(&mut leadership, 2_960), None);
        leadership.held(hold(8, 6_000), at(2_970));
        assert_eq!(leads(&mut leadership, 2_980), Some((8, at(5_800))));
    }
}

#[test]
fn a_renewal_extends_the_deadline_and_never_shortens_it() {
    let mut leadership = holding();
    leadership.held(hold(7, 5_000), at(1_000));
    leadership.held(hold(7, 4_000), at(1_100));
    assert_eq!(leads(&mut leadership, 1_200), Some((7, at(4_800))));
}

#[test]
fn an_instance_gets_no_token_from_before_its_registration() {
    let mut leadership = holding();
    assert!(leads(&mut leadership, 1).is_some());
    leadership.register();
    assert_eq!(refusal(&mut leadership, 2), Refusal::HeldBefore { token: 7 });
    assert_eq!(leadership.leader(at(2)), None, "nor by the name");
    leadership.held(hold(7, 9_000), at(3));
    assert_eq!(refusal(&mut leadership, 4), Refusal::HeldBefore { token: 7 }, "a renewal changes nothing");
    leadership.held(hold(8, 9_000), at(5));
    assert_eq!(leads(&mut leadership, 6), Some((8, at(8_800))));
}

#[test]
fn a_registered_instance_gets_no_token_of_an_earlier_agent() {
    let mut leadership = Leadership::new();
    leadership.register();
    leadership.assume_promise(7, at(2_000), true);
    leadership.held(hold(7, 3_000), at(0));
    assert_eq!(refusal(&mut leadership, 1), Refusal::HeldBefore { token: 7 });
    // This is a late event about an even older hold.
    leadership.held(hold(6, 9_000), at(1));
    assert_eq!(refusal(&mut leadership, 2), Refusal::HeldBefore { token: 7 });
    leadership.held(hold(8, 9_000), at(3));
    assert!(leads(&mut leadership, 4).is_some());
    // The application registers afterwards. Until then the hold can become its own.
    let mut silent = Leadership::new();
    silent.assume_promise(7, at(2_000), false);
    assert!(!silent.is_unused(7, at(2_000)), "no report yet");
    silent.held(hold(7, 3_000), at(0));
    assert!(!silent.is_unused(7, at(2_000)));
    silent.register();
    assert!(silent.is_unused(7, at(2_000)) && !silent.is_unused(7, at(1_999)));
}

/// With `--members-secret` the first report follows the registration, because it waits for the members.
#[test]
fn an_assumed_token_is_refused_if_its_report_comes_late() {
    let mut leadership = Leadership::new();
    leadership.assume_promise(7, at(2_000), false);
    leadership.register();
    leadership.held(hold(7, 3_000), at(0));
    assert_eq!(refusal(&mut leadership, 1), Refusal::HeldBefore { token: 7 });
    let mut asked = Leadership::new();
    asked.assume_promise(7, at(2_000), false);
    asked.held(hold(7, 3_000), at(0));
    assert_eq!(asked.leader(at(1)).as_deref(), Some("pod-a"), "a client of leader-elector never registers");
}

/// For example, the operator renewed the hold while the agent was frozen.
#[test]
fn a_hold_that_has_expired_for_the_application_is_unused() {
    let mut leadership = holding();
    assert!(leads(&mut leadership, 1).is_some() && !leadership.is_unused(7, at(1)));
    leadership.held(hold(7, 9_000), at(4_000));
    assert_eq!(leads(&mut leadership, 4_001), None);
    assert!(leadership.is_unused(7, at(4_001)));
}

#[test]
fn a_hold_is_kept_until_the_last_promise_has_passed() {
    let mut leadership = holding();
    assert!(!leadership.is_promised(at(0)), "no answer yet");
    assert!(leads(&mut leadership, 10).is_some());
    leadership.register();
    leadership.held(hold(7, 5_000), at(20));
    assert_eq!(leads(&mut leadership, 30), None);
    assert!(leadership.is_promised(at(2_799)));
    assert!(!leadership.is_promised(at(2_800)), "no answer had the renewal");
    assert!(!leadership.is_unused(7, at(2_799)) && leadership.is_unused(7, at(2_800)));
}

#[test]
fn a_hold_that_was_released_does_not_come_back() {
    let mut leadership = holding();
    assert!(leads(&mut leadership, 10).is_some());
    assert!(!leadership.release(6, at(20)), "another token");
    assert!(leadership.release(7, at(20)));
    leadership.held(hold(7, 6_000), at(30));
    assert!(matches!(refusal(&mut leadership, 40), Refusal::NotHeld { .. }));
    assert!(leadership.is_unused(7, at(40)), "the application has stopped");
}

#[test]
fn an_answer_with_the_leaders_name_is_a_promise() {
    let mut leadership = holding();
    assert_eq!(leadership.leader(at(1)).as_deref(), Some("pod-a"));
    assert!(leadership.is_promised(at(2_799)));
}

#[test]
fn another_leader_is_named_and_the_instance_does_not_lead() {
    let mut leadership = Leadership::new();
    let other = Hold::new(7, "pod-b".into(), false, at(3_000), Duration::ZERO);
    leadership.held(other, at(0));
    assert_eq!(refusal(&mut leadership, 1), Refusal::HeldByOther { holder: "pod-b".into() });
    assert_eq!(leadership.leader(at(1)).as_deref(), Some("pod-b"));
    leadership.register();
    assert_eq!(leadership.leader(at(1)).as_deref(), Some("pod-b"), "the other pod has other instances");
    assert!(!leadership.is_promised(at(1)), "this agent has promised nothing");
    assert_eq!(leadership.leader(at(3_000)), None);
    let renewed = Hold::new(7, "pod-b".into(), false, at(5_000), Duration::ZERO);
    leadership.held(renewed, at(3_500));
    assert_eq!(leadership.leader(at(3_600)).as_deref(), Some("pod-b"), "a late report about another pod is true again");
}

#[test]
fn a_lost_hold_is_lost_at_once() {
    let mut leadership = holding();
    assert!(leads(&mut leadership, 1).is_some());
    assert!(leadership.take_changed());
    leadership.not_held("by alice (Broken).");
    assert!(leadership.take_changed() && !leadership.take_changed());
    assert_eq!(refusal(&mut leadership, 2), Refusal::NotHeld { why: "by alice (Broken)".into() });
    assert!(leadership.is_promised(at(2)), "the promise is still valid");
    leadership.held(hold(7, 9_000), at(3));
    assert!(matches!(refusal(&mut leadership, 4), Refusal::NotHeld { .. }), "a late report does not restore it");
}
