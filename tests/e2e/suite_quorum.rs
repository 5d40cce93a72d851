//! The life of a RedisQuorum: fences, updates, drift, deletion.

mod deletion;
mod drift;
mod fences;
mod helpers;
mod lost_node;
mod membership;
mod network_policy;
mod refusals;
mod rejoin;
mod rollout;

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
    anywhere membership::one_member_becomes_three_and_no_lock_is_lost_or_split,
    local membership::three_become_five_then_seven_then_three_though_the_leader_is_killed,
    local rejoin::ten_restarts_rejoin_within_a_second_after_the_delay,
];
