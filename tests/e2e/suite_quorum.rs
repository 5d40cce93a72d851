//! The life of a RedisQuorum: fences, updates, drift, deletion.

mod deletion;
mod drift;
mod expose;
mod fences;
mod helpers;
mod lost_node;
mod network_policy;
mod refusals;
mod rejoin;
mod rollout;
mod rotation;
mod tls;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere rollout::members_are_updated_one_at_a_time_and_no_lock_is_lost,
    anywhere rollout::a_bad_image_stops_at_the_first_member_and_is_undone,
    anywhere rollout::a_paused_update_waits_and_goes_on,
    anywhere drift::whatever_is_deleted_is_made_again,
    anywhere drift::whatever_is_edited_or_added_is_mended,
    anywhere drift::secrets_are_mended_without_new_passwords,
    anywhere refusals::objects_of_others_are_refused_and_kept,
    anywhere refusals::the_operator_may_delete_no_other_pods,
    anywhere network_policy::only_the_operator_and_clients_reach_redis,
    anywhere fences::a_deleted_pod_is_fenced_and_no_lock_is_lost,
    local fences::all_members_restarted_at_once_wait_and_come_back,
    local fences::a_restart_without_an_operator_stays_fenced,
    local fences::every_restart_within_a_delay_starts_it_again,
    local lost_node::a_pod_forced_off_a_lost_node_waits_for_a_persons_word,
    anywhere deletion::a_quorum_made_again_under_its_name_gives_larger_tokens,
    anywhere rotation::passwords_are_rotated_and_no_lock_is_lost,
    local expose::node_ports_are_reached_from_outside_the_cluster_with_the_certificate_checked,
    local tls::a_managed_certificate_is_checked_by_name_and_plain_tcp_is_refused,
    anywhere tls::a_certificate_that_is_replaced_is_served_without_a_restart,
    anywhere tls::tls_is_switched_on_and_off_and_no_lock_is_lost,
    local rejoin::ten_restarts_rejoin_within_a_second_after_the_delay,
];
