//! Failures made on purpose, and whether each surface names the cause: `kubectl get`, `kubectl describe`, `redlock explain` and `redlock doctor`.
//!
//! Tests of other suites use [`surfaces`] for the failures that they need anyway.

mod admission;
mod alerts;
mod control_plane_process;
mod external;
mod members;
mod pods;
mod policy;
mod prometheus;
pub(crate) mod surfaces;
mod webhook;

use crate::runner::{Test, tests};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/redlock-operator");

pub(crate) const TESTS: &[Test] = tests![
    anywhere pods::a_candidate_whose_image_is_missing_is_named,
    anywhere pods::a_candidate_that_no_node_takes_is_named,
    anywhere pods::a_candidate_that_lacks_a_config_map_is_named,
    anywhere pods::a_candidate_that_is_not_ready_is_named,
    anywhere pods::a_candidate_with_two_containers_needs_the_name_of_one,
    anywhere pods::a_candidate_that_crashes_is_named_with_its_exit_code,
    anywhere pods::a_claim_whose_init_container_runs_is_pointed_to_it,
    anywhere pods::a_holder_that_fails_its_liveness_check_is_named,
    anywhere pods::a_min_hold_that_keeps_the_lock_is_named,
    anywhere pods::a_lock_delay_is_named_with_its_end,
    anywhere members::a_bad_image_of_the_members_is_named,
    anywhere members::a_wrong_pull_secret_of_the_members_is_named,
    anywhere members::members_that_no_node_takes_are_named,
    anywhere members::an_image_without_redis_is_named,
    anywhere members::a_quota_that_refuses_the_members_is_named,
    anywhere members::a_quota_that_refuses_the_passwords_is_named,
    anywhere members::a_missing_priority_class_is_named,
    anywhere members::a_policy_that_refuses_the_objects_is_named,
    local members::a_policy_that_refuses_new_passwords_is_named,
    anywhere members::a_fenced_member_is_named_with_its_time,
    anywhere members::a_quorum_that_starts_is_named_with_its_time,
    anywhere members::a_quorum_without_a_majority_is_named,
    local members::a_member_that_does_not_answer_is_named,
    local members::a_policy_that_refuses_to_delete_a_member_is_named,
    local external::a_name_that_does_not_resolve_is_named,
    local external::a_closed_port_is_named,
    local external::a_wrong_password_is_named,
    local external::a_right_that_is_missing_is_named,
    local external::a_certificate_for_another_name_is_named,
    local external::a_master_that_evicts_is_named,
    local external::a_replica_is_named,
    anywhere admission::a_job_that_is_not_suspended_is_refused,
    anywhere admission::a_job_that_another_controller_runs_is_named,
    local admission::a_policy_that_refuses_the_label_is_named,
    local admission::a_policy_that_refuses_the_start_of_a_job_is_named,
    local admission::a_policy_that_refuses_the_end_of_a_job_is_named,
    local admission::a_policy_that_refuses_metadata_delays_no_renewal,
    local admission::a_webhook_that_removes_the_finalizer_is_named,
    local alerts::a_missing_operator_leader_alerts_and_the_doctor_names_it,
    local alerts::an_election_without_a_leader_alerts,
    local alerts::a_lost_lock_and_a_quorum_that_cannot_grant_alert,
    local alerts::a_member_that_does_not_vote_and_no_reserve_alert,
    local alerts::a_certificate_that_expires_soon_alerts,
    local alerts::a_claim_that_waits_long_alerts,
    local alerts::each_query_of_the_dashboard_returns_data,
];
