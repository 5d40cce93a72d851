//! All features of locks.
//!
//! The tests cover queues, times, death and doubt, elections, requests of users, failover of the operator, and many
//! locks at once.

mod containers;
mod crash_points;
mod elections;
mod face;
mod failover;
mod foreign_keys;
mod health;
mod labels;
mod lost_nodes;
mod many;
mod namespaces;
mod outage;
mod pod_claims;
mod queue;
mod requests;
mod slots;
mod stale_lists;
pub(crate) mod support;
mod times;
mod transitions;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere queue::a_queue_goes_by_priority_and_then_by_age,
    anywhere queue::claims_that_cannot_hold_do_not_block_the_queue,
    anywhere queue::a_claim_that_waited_too_long_gives_up,
    local pod_claims::a_pod_claim_ends_with_its_container_instance,
    anywhere pod_claims::a_claim_whose_pod_vanished_leaves_the_queue,
    anywhere pod_claims::a_pod_deleted_by_force_is_in_doubt_and_not_dead,
    anywhere pod_claims::a_pod_being_deleted_is_renewed_for_until_it_has_ended,
    anywhere pod_claims::deleting_a_job_does_not_cut_its_pod_short,
    anywhere times::a_lock_is_kept_for_min_hold,
    anywhere times::a_pod_that_finishes_fast_keeps_its_lock_for_min_hold,
    anywhere times::a_lock_is_not_renewed_beyond_max_hold,
    anywhere times::lock_delay_holds_back_the_next_holder_after_a_loss,
    anywhere times::lock_delay_does_not_slow_down_a_clean_release,
    anywhere times::a_finished_claim_is_deleted_after_its_time,
    anywhere times::a_suspended_claim_passes_the_lock_on_and_queues_again,
    anywhere slots::two_of_three_claims_share_two_slots,
    anywhere transitions::a_held_lock_with_transitions_costs_no_write,
    anywhere transitions::a_grant_costs_two_writes_and_a_release_two,
    anywhere transitions::a_lock_with_transitions_is_not_cut_short,
    anywhere requests::a_leader_steps_down_on_request,
    anywhere requests::a_broken_lock_expires_and_history_names_user_and_reason,
    anywhere requests::a_forced_break_frees_the_lock_at_once_and_is_in_the_history,
    anywhere health::a_holder_whose_heartbeat_stops_loses_its_lock,
    anywhere health::a_waiting_claim_without_a_heartbeat_is_passed_over,
    anywhere health::a_leader_that_fails_its_liveness_check_is_followed_in_time,
    local health::a_frozen_leader_with_a_liveness_check_is_followed_in_time,
    anywhere elections::each_preference_picks_its_candidate_and_keeps_the_leader,
    anywhere elections::pods_that_are_not_ready_or_being_deleted_do_not_lead,
    anywhere elections::readiness_alone_never_hands_over,
    local elections::a_leader_whose_node_is_cordoned_steps_down_once,
    anywhere labels::a_leader_label_set_by_a_user_is_removed_within_a_second,
    anywhere labels::a_pod_that_leads_two_locks_has_both_labels,
    local containers::a_pod_with_two_containers_leads_with_the_one_that_is_named,
    local containers::a_restarted_container_leads_only_with_a_larger_token,
    anywhere containers::a_container_in_a_crash_loop_does_not_keep_leadership_by_name,
    anywhere foreign_keys::foreign_keys_that_never_end_are_reported_and_never_deleted,
    local failover::a_frozen_leader_that_comes_back_harms_no_lock,
    local failover::a_leader_cut_off_from_the_api_server_harms_no_lock,
    local failover::a_leader_cut_off_from_the_members_harms_no_lock,
    local failover::a_leader_that_cannot_grant_lets_another_one_lead,
    anywhere failover::a_rolling_update_of_the_operator_harms_no_lock,
    anywhere times::lock_delay_holds_back_the_next_leader_after_a_loss,
    anywhere health::a_tcp_check_has_to_fail_as_often_as_specified,
    local lost_nodes::a_leader_on_a_node_that_is_cut_off_is_followed,
    anywhere namespaces::claims_of_two_namespaces_contend_for_one_verbatim_key,
    anywhere face::metrics_have_every_family_and_no_lock_name,
    anywhere face::the_operator_has_no_unnecessary_rights,
    anywhere face::editors_use_locks_and_do_not_write_their_status,
    local outage::held_locks_outlive_two_minutes_without_an_api_server,
    local outage::changes_to_claims_during_a_cut_are_settled_afterwards,
    local crash_points::a_leader_killed_at_any_write_of_a_grant_leaves_no_orphan,
    local crash_points::a_leader_killed_at_any_write_of_a_release_leaves_no_orphan,
    local crash_points::a_leader_killed_at_any_write_of_a_break_splits_no_lock,
    local crash_points::a_leader_killed_in_a_forced_break_leaves_no_orphan,
    local crash_points::a_leader_killed_at_any_write_of_a_step_down_splits_no_lock,
    local stale_lists::a_leader_that_missed_a_grant_does_not_undo_it,
    local stale_lists::a_leader_that_missed_a_release_keeps_the_next_hold,
    anywhere many::two_thousand_locks_are_held_and_renewed_at_once,
];
