//! The configurations: all rules on, then each of them off.

use super::*;
use crate::check::{each_violated, holds, large, violated};

const ONE: &[usize] = &[0];
const TWO: &[usize] = &[0, 1];
const THREE: &[usize] = &[0, 1, 2];
const NEXT: &[usize] = &[1, 2, 3];
const ONE_STAYS: &[usize] = &[2, 3, 4];

fn without_restarts(old: &[usize], new: &[usize]) -> Shared {
    Shared { restarts: 0, ..Shared::new(old, new) }
}

fn lapses(old: &[usize], new: &[usize]) -> Shared {
    Shared { lapses: true, ..without_restarts(old, new) }
}

#[test]
fn with_all_rules_two_operators_change_their_shared_masters() {
    let permitted = |name: &str, rules: Shared| {
        assert!(rules.is_permitted(), "{name}");
        holds(&format!("shared masters, {name}"), rules);
    };
    permitted("1 to 2, 1 restart", Shared::new(ONE, TWO));
    permitted("1 to 2, claims run out", lapses(ONE, TWO));
    permitted("one of three replaced", without_restarts(THREE, NEXT));
    if large() {
        permitted("2 to 3, claims run out", lapses(TWO, THREE));
        permitted("2 to 3, 1 restart", Shared::new(TWO, THREE));
        permitted("one of three replaced, claims run out", lapses(THREE, NEXT));
    }
}

#[test]
fn without_any_one_rule_the_shared_masters_split_a_lock() {
    let changes = || without_restarts(ONE, THREE);
    each_violated([
        ("two lists on one master", Shared { lists_checked: false, ..changes() }),
        ("no joining", Shared { joins: false, ..changes() }),
        ("records close no epoch", Shared { closes: false, ..changes() }),
        ("no pause", Shared { wait: 0, ..changes() }),
    ]);
}

/// Therefore more than half of each list stays while another operator uses the old list.
///
/// The API server refuses even sizes. Here they are small cases of the rule.
#[test]
fn with_too_few_masters_that_stay() {
    let refused = |name: &str, rules: Shared| {
        assert!(!rules.is_permitted(), "{name}");
        violated(&format!("shared masters, {name}"), rules);
    };
    refused("none stays", without_restarts(ONE, &[1]));
    refused("one stays for three", lapses(ONE, THREE));
    if large() {
        refused("one stays of three", lapses(THREE, ONE_STAYS));
    }
}
