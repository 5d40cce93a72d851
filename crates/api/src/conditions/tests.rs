use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_long_message_is_cut_and_cut_again_alike() {
    let mut conditions = Vec::new();
    let long = "ä".repeat(3_000);
    let mut set = || {
        let at = (Some(1), at(10));
        set_condition(&mut conditions, LockCondition::Held, false, HeldReason::Queued, long.as_str(), at);
        conditions.clone()
    };
    assert_eq!(set(), set(), "the same message again is no change");
    assert_eq!(conditions[0].message.chars().count(), LONGEST_MESSAGE);
}

#[test]
fn a_new_condition_is_appended() {
    let mut conditions = Vec::new();
    let at = (Some(3), "2026-01-01T00:00:01.7Z".parse().unwrap());
    set_condition(&mut conditions, LockCondition::Held, true, HeldReason::Held, "held by a", at);
    let written = serde_json::json!([{"type": "Held", "status": "True", "reason": "Held", "message": "held by a",
        "observedGeneration": 3, "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
    assert_eq!(serde_json::to_value(&conditions).unwrap(), written);
    let read_back: Vec<Condition> = serde_json::from_value(written).unwrap();
    assert_eq!(read_back, conditions);
    assert!(is_true(&conditions, LockCondition::Held));
    assert!(!is_true(&conditions, LockCondition::Accepted));
}

#[test]
fn the_transition_time_stays_while_the_status_stays() {
    let mut conditions = Vec::new();
    let mut set = |status: Status, reason: HeldReason, second| {
        set_condition(&mut conditions, LockCondition::Held, status, reason, "", (None, at(second)));
        let set = &conditions[0];
        assert_eq!((&*set.status, &*set.reason), (status.as_str(), reason.as_str()));
        (set.last_transition_time.0.as_second(), conditions.len())
    };
    assert_eq!(set(Status::False, HeldReason::Queued, 10), (10, 1));
    assert_eq!(set(Status::False, HeldReason::Queued, 20), (10, 1));
    assert_eq!(set(Status::False, HeldReason::HeldByOther, 30), (10, 1));
    assert_eq!(set(Status::True, HeldReason::Held, 40), (40, 1));
    assert_eq!(set(Status::Unknown, HeldReason::NoQuorum, 50), (50, 1));
}

#[test]
fn a_new_generation_or_message_is_written() {
    let mut conditions = Vec::new();
    let (ready, reason) = (QuorumCondition::Ready, CommonReason::MembersFenced);
    for (message, generation) in [("main-0", Some(1)), ("main-1", Some(1)), ("main-1", Some(2))] {
        set_condition(&mut conditions, ready, false, reason, message, (generation, at(1)));
        let set = &conditions[0];
        assert_eq!((&*set.message, set.observed_generation), (message, generation));
    }
}

#[test]
fn other_conditions_are_left_alone() {
    let mut conditions = Vec::new();
    set_condition(&mut conditions, LockCondition::Accepted, true, AcceptedReason::Accepted, "", (None, at(1)));
    set_condition(&mut conditions, LockCondition::Held, true, HeldReason::Held, "", (None, at(2)));
    let accepted = conditions[0].clone();
    set_condition(&mut conditions, LockCondition::Held, false, HeldReason::Released, "", (None, at(3)));
    assert_eq!(find_condition(&conditions, LockCondition::Accepted), Some(&accepted));
}

#[test]
fn reasons_are_alphanumeric_and_begin_with_a_capital() {
    let reasons = AcceptedReason::ALL.iter().map(|r| r.as_str()).chain(HeldReason::ALL.iter().map(|r| r.as_str()));
    for name in reasons.chain(CommonReason::ALL.iter().map(|r| r.as_str())) {
        assert!(name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(char::is_alphanumeric));
    }
}
