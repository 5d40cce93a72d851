use super::checker::{Fault, Hold, Loss, LossKind, Millis, Verdict, check};

fn hold(who: &str, token: Option<i64>, from: Millis, until: Millis) -> Hold {
    Hold { who: who.into(), key: "k".into(), token, from, until, ttl: 2_000, ..Hold::default() }
}

fn released(hold: Hold, at: Millis) -> Hold {
    Hold { released: Some(at), ..hold }
}

fn lost(at: Millis, kind: LossKind) -> Hold {
    Hold { losses: vec![Loss { at, kind }], ..hold("a", Some(1), 0, at) }
}

fn members(names: &[&str], from: Millis, until: Millis) -> Fault {
    Fault { from, until, members: names.iter().map(|name| (*name).to_owned()).collect(), ..Fault::default() }
}

fn operators(names: &[&str], from: Millis, until: Millis) -> Fault {
    Fault { from, until, operators: names.iter().map(|name| (*name).to_owned()).collect(), ..Fault::default() }
}

fn of(holds: &[Hold]) -> (usize, usize) {
    let Verdict { overlaps, reversals, .. } = check(holds, &[], 2, 2);
    (overlaps.len(), reversals.len())
}

fn explained(kind: LossKind, faults: &[Fault]) -> bool {
    check(&[lost(100_000, kind)], faults, 2, 2).unexplained.is_empty()
}

#[test]
fn holds_after_one_another_are_fine() {
    let holds = [
        hold("c", Some(3), 40, 60),
        released(hold("a", Some(1), 0, 90), 20),
        hold("b", None, 20, 40),
        // The holder received it after its end.
        hold("d", Some(2), 50, 30),
    ];
    assert_eq!(check(&holds, &[], 2, 2), Verdict::default());
}

#[test]
fn two_holders_at_once_are_a_violation() {
    assert_eq!(of(&[hold("a", None, 0, 20), hold("b", None, 19, 40)]), (1, 0));
    // The order does not matter. Holds can begin at the same moment, or one inside the other.
    assert_eq!(of(&[hold("b", None, 19, 40), hold("a", None, 0, 20)]), (1, 0));
    assert_eq!(of(&[hold("a", None, 5, 20), hold("b", None, 5, 20)]), (1, 0));
    assert_eq!(of(&[hold("a", None, 0, 100), hold("b", None, 10, 20), hold("c", None, 50, 60)]), (2, 0));
    // The release before the other hold began is relevant, not the validity.
    assert_eq!(of(&[released(hold("a", None, 0, 20), 19), hold("b", None, 18, 40)]), (1, 0));
    let other = Hold { key: "other".into(), ..hold("b", None, 10, 20) };
    assert_eq!(of(&[hold("a", None, 0, 20), other]), (0, 0), "keys are independent");
}

/// docs/safety.md, "Limits".
#[test]
fn a_stepped_clock_excepts_outside_clients_until_the_fence() {
    let stepped = [Fault { from: 15, until: 19, clock: true, ..Fault::default() }];
    let of = |later: Hold| {
        let verdict = check(&[hold("a", Some(1), 0, 40), later], &stepped, 2, 2);
        (verdict.overlaps.len(), verdict.excepted.len())
    };
    assert_eq!(of(hold("x", None, 15, 30)), (0, 1));
    assert_eq!(of(hold("x", None, 19, 30)), (0, 1));
    assert_eq!(of(hold("x", None, 20, 30)), (1, 0), "the member is already fenced");
    assert_eq!(of(hold("x", None, 14, 30)), (1, 0), "the hold began before the step");
    assert_eq!(of(hold("b", Some(2), 15, 30)), (1, 0), "the operator checks the clock");
}

#[test]
fn a_validity_across_another_holders_term_is_found() {
    // The holder's validity lapsed at 20. At 50 it received a validity until 80.
    let resumed = Hold { losses: vec![Loss { at: 20, kind: LossKind::Lapsed }], ..hold("a", None, 0, 80) };
    assert_eq!(of(&[resumed, hold("b", None, 30, 40)]), (1, 0));
}

#[test]
fn tokens_that_do_not_rise_are_violations() {
    assert_eq!(of(&[hold("a", Some(2), 0, 10), hold("b", Some(1), 10, 20)]), (0, 1));
    assert_eq!(of(&[hold("a", Some(2), 0, 10), hold("b", Some(2), 10, 20)]), (0, 1), "equal tokens are a violation");
    // Clients without a token hold in between.
    assert_eq!(of(&[hold("a", Some(2), 0, 10), hold("x", None, 10, 20), hold("b", Some(1), 20, 30)]), (0, 1));
    // A token is compared with the highest earlier token, not with the last one.
    assert_eq!(of(&[hold("a", Some(5), 0, 1), hold("b", Some(1), 1, 2), hold("c", Some(4), 2, 3)]), (0, 2));
}

#[test]
fn a_loss_without_a_fault_is_unexplained() {
    assert!(!explained(LossKind::Taken, &[]));
    assert!(!explained(LossKind::Lapsed, &[]));
}

#[test]
fn a_member_explains_nothing_and_a_majority_does() {
    for kind in [LossKind::Taken, LossKind::Lapsed] {
        assert!(!explained(kind, &[members(&["q-0"], 98_000, 99_000)]));
        assert!(!explained(kind, &[members(&["q-0"], 95_000, 96_000), members(&["q-0"], 98_000, 99_000)]));
        assert!(explained(kind, &[members(&["q-0", "q-1"], 98_000, 99_000)]));
        assert!(explained(kind, &[members(&["q-0"], 95_000, 96_000), members(&["q-1"], 98_000, 99_000)]));
        // The faults are too long before the loss, or after it.
        assert!(!explained(kind, &[members(&["q-0", "q-1"], 80_000, 92_999)]));
        assert!(!explained(kind, &[members(&["q-0", "q-1"], 100_001, 100_100)]));
    }
}

#[test]
fn a_single_operator_explains_a_late_publication_and_no_loss() {
    let one = [operators(&["p"], 98_000, 99_000)];
    assert!(explained(LossKind::Lapsed, &one));
    assert!(!explained(LossKind::Taken, &one));
    assert!(explained(LossKind::Taken, &[operators(&["p", "o"], 98_000, 99_000)]));
    // The key was not set again on a member that had returned long before.
    let both =
        [operators(&["p"], 85_000, 86_000), members(&["q-0"], 80_000, 81_000), members(&["q-1"], 99_000, 99_500)];
    assert!(explained(LossKind::Taken, &both));
    assert!(!explained(LossKind::Taken, &both[1..]));
}

#[test]
fn the_api_server_explains_a_late_publication_and_not_a_loss() {
    let away = [Fault { from: 90_000, until: 95_000, api_server: true, ..Fault::default() }];
    assert!(explained(LossKind::Lapsed, &away));
    assert!(!explained(LossKind::Taken, &away));
}

#[test]
fn a_fault_of_the_holder_explains_its_loss_alone() {
    let hit = |who: &str| [Fault { from: 99_000, until: 99_000, holder: Some(who.into()), ..Fault::default() }];
    assert!(explained(LossKind::Taken, &hit("a")));
    assert!(!explained(LossKind::Taken, &hit("b")));
}

#[test]
fn losses_are_counted_by_kind() {
    let holds = [lost(100, LossKind::Taken), lost(200, LossKind::Lapsed), lost(300, LossKind::Lapsed)];
    let Verdict { taken, lapsed, unexplained, .. } = check(&holds, &[], 2, 2);
    assert_eq!((taken, lapsed, unexplained.len()), (1, 2, 3));
}
