//! The configurations: all rules on, then each of them off.

use super::*;
use crate::check::{holds, large, violated};

const ONE: &[usize] = &[0];
const TWO: &[usize] = &[0, 1];
const THREE: &[usize] = &[0, 1, 2];
const NEXT: &[usize] = &[1, 2, 3];

fn without_restarts(old: &[usize], new: &[usize]) -> Shared {
    Shared { restarts: 0, ..Shared::new(old, new) }
}

#[test]
fn with_all_rules_two_operators_change_their_shared_masters() {
    holds("shared masters, 1 to 2, 1 restart", Shared::new(ONE, TWO));
    holds("shared masters, 1 to 3", without_restarts(ONE, THREE));
    if large() {
        holds("shared masters, 1 to 3, claims run out", Shared { lapses: true, ..without_restarts(ONE, THREE) });
        holds("shared masters, 1 to 3, 1 restart", Shared::new(ONE, THREE));
        holds("shared masters, 3 to 1", without_restarts(THREE, ONE));
        holds("shared masters, one of three replaced", without_restarts(THREE, NEXT));
        let lapses = Shared { lapses: true, ..without_restarts(THREE, NEXT) };
        holds("shared masters, one of three replaced, claims run out", lapses);
    }
}

#[test]
fn with_claims_made_beside_another_list() {
    violated("two lists on one master", Shared { lists_checked: false, ..without_restarts(ONE, THREE) });
}

#[test]
fn with_votes_before_the_claim_stands_on_every_member() {
    violated("no joining", Shared { joins: false, ..without_restarts(ONE, THREE) });
}

#[test]
fn without_a_closing_of_the_old_list() {
    violated("records close no epoch", Shared { closes: false, ..without_restarts(ONE, THREE) });
}

#[test]
fn without_a_pause() {
    violated("no pause", Shared { wait: 0, ..without_restarts(ONE, THREE) });
}

/// Therefore a change that keeps no master waits until no other operator uses the earlier list.
#[test]
fn with_a_new_list_that_shares_no_master_with_the_old_one() {
    violated("no master is kept", without_restarts(ONE, &[1]));
}
