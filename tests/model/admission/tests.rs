//! The configurations.

use super::*;

fn two_processes() -> Admission {
    Admission::new()
}

#[test]
fn with_all_rules_a_process_votes_only_after_its_wait() {
    holds("fence, 2 processes, 2 leaders", two_processes());
    if large() {
        holds("fence, 3 processes, 2 leaders", Admission { processes: 3, ..two_processes() });
        holds("fence, 2 processes, 3 terms", Admission { terms: 3, ..two_processes() });
    }
}

#[test]
fn with_check_and_open_on_two_connections() {
    violated("check and open on two connections", Admission { one_connection: false, ..two_processes() });
}

#[test]
fn without_a_confirmed_predecessor() {
    violated("the predecessor's death is not confirmed", Admission { confirms_death: false, ..two_processes() });
}

#[test]
fn with_a_count_that_does_not_start_at_the_predecessors_death() {
    violated("the count runs while the predecessor may live", Admission { counts_from_death: false, ..two_processes() });
}

#[test]
fn without_the_epoch() {
    violated("a frozen leader is not kept from opening", Admission { epoch: false, ..two_processes() });
}

#[test]
fn with_a_wait_one_tick_short() {
    let rules = two_processes();
    violated("the wait is one tick short", Admission { delay: rules.delay - 1, ..rules });
}

#[test]
fn with_uptime_as_evidence() {
    violated("uptime is taken for the time seen", Admission { first_sight: false, ..two_processes() });
}
