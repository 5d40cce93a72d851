//! The configurations: all rules on, then each of them off.

use super::*;

const ONE: &[usize] = &[0];
const THREE: &[usize] = &[0, 1, 2];
const FIVE: &[usize] = &[0, 1, 2, 3, 4];

/// An outside client or a disconnected replica keeps the old list.
const OUTSIDE: [Kind; 2] = [Kind::Outside, Kind::Replica];
const REPLICAS: [Kind; 2] = [Kind::Replica, Kind::Replica];
const STRANGERS: [Kind; 2] = [Kind::Outside, Kind::Outside];

fn grows(kinds: [Kind; 2], ttl: u8) -> Change {
    Change::new(ONE, THREE, kinds, ttl)
}

fn shrinks(kinds: [Kind; 2], ttl: u8) -> Change {
    Change::new(THREE, ONE, kinds, ttl)
}

#[test]
fn with_all_rules_a_change_splits_no_lock() {
    for (name, kinds) in [("outside and replica", OUTSIDE), ("replicas", REPLICAS), ("outside", STRANGERS)] {
        holds(&format!("membership, 1 to 3, ttl 1, {name}"), grows(kinds, 1));
        holds(&format!("membership, 3 to 1, ttl 1, {name}"), shrinks(kinds, 1));
        if large() {
            holds(&format!("membership, 1 to 3, ttl 2, {name}"), grows(kinds, 2));
            holds(&format!("membership, 3 to 1, ttl 2, {name}"), shrinks(kinds, 2));
            holds(&format!("membership, 1 to 3, {name}, 2 restarts"), Change { restarts: 2, ..grows(kinds, 1) });
            holds(&format!("membership, 3 to 5, {name}"), Change::new(THREE, FIVE, kinds, 1));
            holds(&format!("membership, 5 to 3, {name}"), Change::new(FIVE, THREE, kinds, 1));
        }
    }
}

#[test]
fn a_list_that_is_replaced_as_a_whole() {
    holds("membership, {1} to {2}", Change { restarts: 2, ..Change::new(ONE, &[1], OUTSIDE, 1) });
}

/// External masters.
fn external(old: &[usize], new: &[usize]) -> Change {
    Change { external: true, ..Change::new(old, new, REPLICAS, 1) }
}

#[test]
fn external_masters_are_closed_by_their_records() {
    holds("membership, external {1} to {2}", external(ONE, &[1]));
    holds("membership, external 1 to 3", Change { restarts: 0, ..external(ONE, THREE) });
    if large() {
        holds("membership, external {1} to {2}, 2 restarts", Change { restarts: 2, ..external(ONE, &[1]) });
        holds("membership, external 1 to 3, 1 restart", external(ONE, THREE));
        holds("membership, external 3 to 1", Change { restarts: 0, ..external(THREE, ONE) });
    }
}

#[test]
fn without_any_one_rule_a_change_splits_the_lock() {
    let wait = grows(OUTSIDE, 1).wait - 1;
    // One of three members is closed. The other two are a majority of the old list.
    let one_closed = Change { closed_needed: 1, restarts: 0, ..Change::new(THREE, &[2, 3, 4], OUTSIDE, 1) };
    each_violated([
        ("the new list alone counts at once", Change { joint: false, ..grows(REPLICAS, 1) }),
        ("users of the epoch before stay open", Change { close: false, ..grows(OUTSIDE, 1) }),
        ("users of the epoch before stay open, for a replica", Change { close: false, ..grows(REPLICAS, 1) }),
        ("one of three old members is closed", one_closed),
        ("the wait is one tick short", Change { wait, ..grows(OUTSIDE, 1) }),
        ("clients of the new list are let in at the switch", Change { clients_wait: false, ..grows(STRANGERS, 1) }),
        ("a round of the old list votes as the new user", Change { bound_to_epoch: false, ..grows(REPLICAS, 1) }),
        ("votes do not compare the record", Change { checked: false, ..external(ONE, &[1]) }),
    ]);
}
