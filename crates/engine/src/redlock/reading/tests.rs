use proptest::prelude::*;

use super::*;
use MemberReading::{Nothing, Silent};

const NONE: Drift = Drift { ppm: 0, floor: Duration::ZERO };

fn at(millis: u64) -> Boottime {
    Boottime::new(Duration::from_millis(millis))
}

fn stores(value: &str, millis: u64) -> MemberReading {
    MemberReading::Value(StoredValue::new(value), Duration::from_millis(millis))
}

fn read(lists: &[Vec<MemberReading>], value: &str) -> Reading {
    reading(lists, &Owner::Value(LockValue::from_text(value)), at(1_000), NONE)
}

fn until(value: &str, millis: u64) -> Reading {
    Reading::Held { value: LockValue::from_text(value), valid_until: at(millis) }
}

#[test]
fn the_rest_is_the_one_that_a_majority_has() {
    let three = |a, b, c| vec![vec![a, b, c]];
    assert_eq!(read(&three(stores("v", 900), stores("v", 500), stores("v", 700)), "v"), until("v", 1_700));
    assert_eq!(read(&three(stores("v", 900), stores("v", 500), Silent), "v"), until("v", 1_500));
    assert_eq!(read(&three(stores("v", 900), Nothing, stores("w", 700)), "v"), Reading::NotHeld);
    assert_eq!(read(&three(stores("v", 900), Silent, stores("w", 700)), "v"), Reading::Unknown);
    assert_eq!(read(&three(Silent, Silent, Silent), "v"), Reading::Unknown);
    assert_eq!(read(&[], "v"), Reading::Unknown);
}

#[test]
fn a_reading_subtracts_the_drift_and_starts_at_the_request() {
    let owner = Owner::Value(LockValue::from_text("v"));
    let list = [vec![stores("v", 10_000)]];
    let Reading::Held { valid_until, .. } = reading(&list, &owner, at(50), Drift::default()) else { panic!() };
    assert_eq!(valid_until, at(50 + 10_000 - 100 - 2));
    let Reading::Held { valid_until, .. } = reading(&[vec![stores("v", 1)]], &owner, at(50), Drift::default()) else {
        panic!()
    };
    assert_eq!(valid_until, at(50), "never before the request");
}

#[test]
fn a_reading_needs_a_majority_of_both_lists_during_a_change() {
    let old = vec![stores("v", 300), stores("v", 300), stores("v", 300)];
    let all = |new: [MemberReading; 2]| vec![[old.clone(), new.to_vec()].concat(), old.clone()];
    assert_eq!(read(&all([stores("v", 100), Nothing]), "v"), until("v", 1_300));
    let mostly_new = vec![vec![stores("v", 100), stores("v", 100), Nothing], old.clone()];
    assert_eq!(read(&mostly_new, "v"), until("v", 1_100), "the smaller time to live");
    let only_old = vec![vec![stores("v", 300), Nothing, Nothing], old.clone()];
    assert_eq!(read(&only_old, "v"), Reading::NotHeld);
    let perhaps = vec![vec![stores("v", 300), Nothing, Silent], old];
    assert_eq!(read(&perhaps, "v"), Reading::Unknown);
}

#[test]
fn a_nonce_finds_its_value_and_a_seal_is_another_value() {
    let nonce = Nonce::from_bytes([7; 10]);
    let (value, seal) = (format!("{nonce}{}", "a".repeat(20)), format!("{nonce}{}", "b".repeat(20)));
    let read_by_nonce = |list: Vec<MemberReading>| reading(&[list], &Owner::Nonce(nonce), at(1_000), NONE);
    let held = vec![stores(&value, 500), stores(&value, 400), stores(&seal, 9_000)];
    assert_eq!(read_by_nonce(held), until(&value, 1_400));
    assert_eq!(read_by_nonce(vec![stores(&value, 500), stores(&seal, 9_000), Nothing]), Reading::Unknown);
    let foreign = [nonce.to_string(), format!("{value}0"), "x".repeat(40)].map(|text| stores(&text, 500));
    assert_eq!(read_by_nonce(foreign.to_vec()), Reading::NotHeld);
}

proptest! {
    /// Another value needs a majority of members without this value.
    ///
    /// A member is free only after the key with this value has expired on it.
    #[test]
    fn no_other_value_finds_a_majority_during_the_validity(lists in prop::collection::vec(prop::collection::vec(0..3_000_u64, 1..8), 1..3)) {
        // A number below 1000: the member has no key.
        let stored = |millis: &u64| if *millis < 1_000 { Nothing } else { stores("v", *millis) };
        let members: Vec<Vec<MemberReading>> = lists.iter().map(|list| list.iter().map(stored).collect()).collect();
        if let Reading::Held { valid_until, .. } = read(&members, "v") {
            for list in &lists {
                let just_before = valid_until.saturating_sub(Duration::from_millis(1)).since(at(1_000)).as_millis();
                let free = list.iter().filter(|millis| **millis < 1_000 || u128::from(**millis) <= just_before).count();
                prop_assert!(free < list.len() / 2 + 1, "{free} of {} are free", list.len());
            }
        }
    }
}
