//! Controllers with client-go's own unchanged election.
//!
//! Their Lease goes to the pod that holds a lock.

pub(crate) mod controllers;
mod lease_writes;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    local controllers::an_unchanged_controller_leads_and_is_followed_within_seconds,
    local controllers::an_unchanged_manager_leads_and_is_followed_within_seconds,
    local controllers::a_leader_from_before_the_lock_is_followed_after_its_stop,
    local controllers::without_the_operator_a_leader_stops_before_its_validity_ends,
    local controllers::a_leader_that_hangs_is_followed,
    local controllers::a_lock_gates_its_lease_from_its_first_moment_to_its_last,
    local controllers::random_faults_never_make_two_leaders,
    local lease_writes::ten_thousand_locks_do_not_slow_the_writes_of_leases,
];
