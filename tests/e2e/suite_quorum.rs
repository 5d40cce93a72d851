//! The life of a RedisQuorum: fences, updates, drift, deletion.

mod deletion;
mod drift;
mod expose;
mod external;
mod external_changes;
mod fences;
mod grants;
pub(crate) mod helpers;
mod lost_node;
mod lost_secrets;
mod membership;
mod pods;
mod readers;
mod refusals;
mod rollout;
mod rotation;
mod settings;
mod tls;
mod watches;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere rollout::members_are_updated_one_at_a_time_and_no_lock_is_lost,
    anywhere rollout::a_bad_image_stops_at_the_first_member_and_is_undone,
    anywhere rollout::a_paused_update_waits_and_continues_after_the_pause,
    anywhere drift::deletions_edits_and_additions_are_mended,
    anywhere drift::secrets_are_mended_without_new_passwords,
    anywhere lost_secrets::lost_passwords_are_replaced_and_members_restarted_in_turn,
    anywhere lost_secrets::passwords_lost_during_a_member_change_are_replaced,
    anywhere lost_secrets::a_quorum_whose_passwords_are_lost_can_be_deleted,
    local lost_secrets::a_replica_with_a_copy_of_a_lost_secret_writes_it_back,
    anywhere refusals::foreign_objects_are_refused_and_kept,
    anywhere refusals::the_operator_can_delete_no_other_pods,
    anywhere pods::only_the_operator_and_clients_reach_redis,
    anywhere fences::a_deleted_pod_is_fenced_and_no_lock_is_lost,
    local fences::all_members_restarted_at_once_wait_and_come_back,
    local fences::a_restart_without_an_operator_stays_fenced,
    local fences::an_operator_restarted_during_a_fence_begins_the_count_again,
    local fences::a_leader_frozen_at_an_admission_opens_nothing_afterwards,
    local fences::a_restart_at_the_moment_of_admission_is_never_open,
    local lost_node::a_reconnected_member_votes_without_a_new_fence,
    local lost_node::a_pod_forced_off_a_lost_node_waits_for_a_confirmed_death,
    local lost_node::a_pod_forced_off_a_node_waits_for_the_out_of_service_taint,
    local lost_node::a_pod_forced_off_a_node_waits_until_the_provider_deletes_it,
    local lost_node::a_pod_forced_off_a_lost_node_waits_for_the_nodes_kubelet,
    anywhere settings::max_ttl_is_raised_and_lowered_while_locks_are_held,
    anywhere settings::drift_and_node_timeout_cannot_be_changed,
    local watches::a_member_whose_clock_jumps_or_drifts_is_fenced,
    anywhere watches::a_key_beyond_max_ttl_is_reported,
    anywhere watches::a_script_that_never_ends_is_ended_and_no_lock_is_lost,
    anywhere pods::members_are_spread_over_the_nodes,
    anywhere pods::a_drain_takes_one_member_at_a_time,
    anywhere pods::redis_members_vote_and_are_fenced_like_valkey,
    anywhere deletion::a_quorum_made_again_under_its_name_gives_larger_tokens,
    anywhere membership::a_single_member_becomes_three_and_no_lock_is_lost_or_split,
    local membership::three_become_five_seven_and_three_with_a_killed_leader,
    anywhere deletion::a_deleted_quorum_names_its_held_locks_and_answers_only_ping,
    anywhere deletion::a_quorum_with_a_busy_member_can_be_deleted,
    anywhere deletion::a_namespace_with_held_locks_can_be_deleted,
    local fences::thirty_restarts_rejoin_within_a_second_after_the_delay,
    anywhere rotation::passwords_are_rotated_and_no_lock_is_lost,
    anywhere grants::credentials_and_copies_end_with_their_client,
    anywhere readers::a_reader_reads_a_held_lock_through_all_changes,
    local expose::node_ports_are_reached_from_outside_with_a_valid_certificate,
    anywhere expose::the_address_of_a_load_balancer_is_published_and_certified,
    local external::external_masters_alone_vote_after_their_wait,
    local external::own_and_external_masters_make_one_quorum,
    local external::two_quorums_over_the_same_masters_never_hold_together,
    local external::a_disagreeing_newcomer_is_refused_and_the_quorum_continues,
    local external::a_longer_max_ttl_is_used_when_all_have_it,
    local external::a_master_restarted_during_an_acquisition_does_not_vote,
    local external::two_addresses_of_one_process_have_one_vote,
    local external_changes::an_external_master_is_replaced_with_a_pause,
    local external_changes::two_quorums_change_the_masters_that_they_share,
    local external_changes::own_members_are_replaced_by_external_masters_and_back,
    local external_changes::a_dead_master_is_replaced_once_its_death_is_confirmed,
    local external::tls_to_external_masters_checks_authority_and_name,
    local tls::a_managed_certificate_has_the_name_and_plain_tcp_is_refused,
    anywhere tls::a_certificate_that_is_replaced_is_served_without_a_restart,
    anywhere tls::tls_is_switched_on_and_off_and_no_lock_is_lost,
];
