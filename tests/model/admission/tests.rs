//! The configurations.

use super::*;

fn voting() -> Admission {
    Admission::new(2, false)
}

#[test]
fn with_all_rules_a_process_votes_only_after_its_wait() {
    holds("fence, first start, ttl 1, 1 leader", Admission { terms: 1, ..Admission::new(1, true) });
    holds("fence, restarts and twins, ttl 1", Admission::new(1, false));
    if large() {
        holds("fence, first start, ttl 1, 2 leaders", Admission::new(1, true));
        holds("fence, restarts and twins, ttl 2", voting());
        holds("fence, 3 processes, ttl 1", Admission { processes: 3, ..Admission::new(1, false) });
    }
}

/// One of two guards is enough.
///
/// A process that has just started does not have the leader's epoch yet.
#[test]
fn with_check_and_open_on_two_connections() {
    let two_connections = Admission { one_connection: false, terms: 1, ..Admission::new(1, true) };
    holds("check and open on two connections, guarded by the epoch", two_connections.clone());
    violated("check and open on two connections", Admission { epoch: false, ..two_connections });
}

#[test]
fn without_any_one_rule_a_process_votes_too_early() {
    each_violated([
        ("the predecessor's death is not confirmed", Admission { confirms_death: false, ..voting() }),
        ("a node is known by its name alone", Admission { tells_machines_apart: false, ..voting() }),
        ("the count runs while the predecessor may live", Admission { counts_from_death: false, ..voting() }),
        ("a frozen leader is not kept from opening", Admission { epoch: false, ..Admission::new(2, true) }),
        ("the wait is one tick short", Admission { delay: 1, ..voting() }),
    ]);
}
