//! The configurations.

use super::*;

fn fresh() -> Admission {
    Admission::new(2, true)
}

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
fn without_a_confirmed_predecessor() {
    violated("the predecessor's death is not confirmed", Admission { confirms_death: false, ..voting() });
}

#[test]
fn with_a_node_known_by_its_name_alone() {
    violated("a node is known by its name alone", Admission { tells_machines_apart: false, ..voting() });
}

#[test]
fn with_a_count_that_does_not_begin_at_the_predecessors_death() {
    violated("the count runs while the predecessor may live", Admission { counts_from_death: false, ..voting() });
}

#[test]
fn without_the_epoch() {
    violated("a frozen leader is not kept from opening", Admission { epoch: false, ..fresh() });
}

#[test]
fn with_a_wait_one_tick_short() {
    violated("the wait is one tick short", Admission { delay: 1, ..voting() });
}
