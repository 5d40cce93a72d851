//! The configurations: all rules on, then each of them off.

use super::*;
use crate::check::{holds, large, violated};

const ONE: &[usize] = &[0];
const OTHER: &[usize] = &[1];
const THREE: &[usize] = &[0, 1, 2];

#[test]
fn with_all_rules_two_operators_change_the_list_of_shared_masters() {
    holds("shared masters, {1} to {2}", Shared::new(ONE, OTHER));
    holds("shared masters, {1} to {2}, in opposite directions", Shared::opposite(ONE, OTHER));
    holds("shared masters, 1 to 3", Shared { restarts: 0, ..Shared::new(ONE, THREE) });
    holds("shared masters, 1 to 3, claims run out", Shared { restarts: 0, lapses: true, ..Shared::new(ONE, THREE) });
    let replaced = Shared { restarts: 0, ..Shared::new(THREE, &[1, 2, 3]) };
    let back = Shared { restarts: 0, ..Shared::opposite(THREE, &[1, 2, 3]) };
    holds("shared masters, one of three replaced, in opposite directions", back);
    if large() {
        holds("shared masters, one of three replaced", replaced.clone());
        holds("shared masters, one of three replaced, claims run out", Shared { lapses: true, ..replaced });
        holds("shared masters, 1 to 3, 1 restart", Shared::new(ONE, THREE));
        holds("shared masters, 3 to 1", Shared { restarts: 0, ..Shared::new(THREE, ONE) });
        holds("shared masters, 3 to 1, opposite", Shared { restarts: 0, ..Shared::opposite(THREE, ONE) });
    }
}

#[test]
fn without_waiting_for_the_records_at_the_end() {
    violated("the end does not wait for the records", Shared { told_needed: false, ..Shared::new(ONE, OTHER) });
}

#[test]
fn with_a_list_given_up_that_another_counts_alone() {
    violated("a list is given up unasked", Shared { give_up_checked: false, ..Shared::new(ONE, OTHER) });
}

#[test]
fn with_both_lists_told_before_the_old_promises_are_over() {
    violated("both lists are told too early", Shared { wait: 0, ..Shared::new(ONE, OTHER) });
}
