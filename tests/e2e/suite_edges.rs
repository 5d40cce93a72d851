//! Exclusion at the edge of Kubernetes.
//!
//! Nodes, pods, Jobs and namespaces are deleted while their containers run. Users edit held locks, the operator's
//! clocks are wrong, upgrades happen, and everything restarts at once. Each test checks all beliefs in a key.

mod clocks;
mod departures;
mod gone_nodes;
mod moved_default;
mod namespaces;
mod quorums;
mod run_outs;
mod slots;
mod support;
mod unserved;
mod upgrades;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    local departures::a_holder_whose_node_object_is_deleted_is_not_cut_short,
    anywhere departures::a_job_deleted_during_an_ending_does_not_cut_it_short,
    local departures::job_pods_forced_off_a_node_keep_their_lock_until_it_expires,
    anywhere moved_default::a_moved_default_and_a_restarted_operator_split_no_lock,
    local clocks::an_operator_that_is_an_hour_ahead_cuts_no_holder_short,
    local clocks::a_clock_that_jumps_during_an_ending_admits_no_holder_early,
    anywhere quorums::a_max_ttl_below_a_held_ttl_loses_no_lock_at_a_restart,
    anywhere slots::claims_of_another_shape_neither_block_nor_join_a_holder,
    anywhere quorums::a_quorum_recreated_with_a_smaller_max_ttl_keeps_promises,
    local run_outs::a_failed_first_write_of_an_ending_cuts_no_hold_short,
    anywhere namespaces::a_deleted_namespace_with_a_quorum_keeps_the_leader,
    local upgrades::an_upgrade_replica_by_replica_splits_no_lock,
    local upgrades::a_restart_of_all_members_and_replicas_at_once_splits_no_lock,
    anywhere unserved::a_lock_on_a_quorum_that_is_not_served_is_left_alone,
    local gone_nodes::two_permanently_lost_nodes_do_not_keep_a_lock,
];
