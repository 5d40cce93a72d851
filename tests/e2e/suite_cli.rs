//! The command `redlock` for users and scripts, against the cluster.

mod acting;
mod agents;
pub(crate) mod clusters;
mod elections;
mod go;
mod jobs;
mod manifests;
mod options;
mod queries;
mod running;
mod setting_up;
pub(crate) mod support;
mod terminal;
mod wrong_clocks;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere queries::locks_are_listed_and_described_in_text_and_json,
    anywhere queries::a_watch_prints_each_change,
    anywhere queries::a_claim_that_waits_is_explained_from_the_quorum_to_the_queue,
    anywhere queries::a_viewer_can_list_locks_and_doctor_names_the_missing_role,
    anywhere acting::a_wait_ends_at_a_held_or_free_lock_or_its_timeout,
    anywhere acting::a_holder_steps_down_on_request,
    anywhere acting::the_history_names_user_and_reason_of_a_broken_hold,
    anywhere acting::a_quorum_shows_its_members_and_restarts_one_at_a_time,
    anywhere setting_up::a_doctor_finds_a_healthy_installation_well,
    anywhere setting_up::a_report_has_the_objects_and_no_secret,
    anywhere setting_up::the_program_installs_itself_and_its_completions,
    anywhere setting_up::errors_name_the_next_step,
    anywhere running::a_command_runs_while_its_claim_is_held,
    anywhere running::a_second_command_waits_or_gives_up,
    anywhere running::a_killed_run_loses_its_claim_soon_after_its_last_heartbeat,
    anywhere running::a_broken_lock_ends_its_command_while_it_is_still_valid,
    anywhere running::a_pod_runs_its_command_with_the_holder_role_alone,
    local wrong_clocks::an_operator_whose_clock_is_wrong_moves_no_end_of_a_command,
    local wrong_clocks::a_pod_with_a_wrong_clock_uses_the_members_or_starts_nothing,
    anywhere terminal::a_terminal_gets_colours_and_a_pipe_does_not,
    anywhere terminal::every_query_has_the_formats_for_programs,
    anywhere terminal::a_terminal_shows_the_progress_of_a_wait,
    anywhere terminal::a_screen_is_drawn_again_until_it_is_left,
    anywhere terminal::a_forced_break_at_a_terminal_needs_a_confirmation,
    anywhere manifests::a_migration_runs_once_from_one_manifest,
    anywhere manifests::a_cron_singleton_works_in_one_of_two_jobs,
    anywhere manifests::a_single_pod_of_a_deployment_leads_from_a_manifest,
    local manifests::a_lock_is_free_at_once_when_a_container_was_killed,
    anywhere options::as_many_commands_run_at_a_time_as_there_are_slots,
    anywhere options::a_claim_has_the_options_of_its_command,
    anywhere options::a_pod_takes_locks_from_the_members_with_rising_tokens,
    anywhere options::a_release_hands_over_locks_of_pods,
    local agents::an_application_that_is_killed_gets_a_token_of_its_own,
    local agents::an_application_leads_through_an_outage_and_no_successor_does,
    local agents::an_application_outlives_its_agent_and_leads_again,
    anywhere elections::agents_name_the_leader_of_an_election,
    anywhere running::a_lock_is_acquired_in_one_step_and_released_in_another,
    anywhere running::a_lock_is_held_until_the_command_is_stopped,
    anywhere jobs::jobs_on_one_key_run_one_after_the_other,
    anywhere jobs::a_claim_that_names_a_job_starts_it,
    anywhere jobs::a_job_whose_pod_is_in_doubt_runs_again_with_a_larger_token,
    anywhere jobs::a_job_at_its_max_hold_keeps_the_lock_until_its_pod_ends,
    anywhere jobs::a_job_is_deleted_after_its_wait_timeout_only_on_request,
    anywhere jobs::a_job_with_another_manager_is_left_alone,
    anywhere jobs::a_job_that_another_client_suspends_is_left_alone,
    anywhere jobs::the_operator_can_change_no_other_field_of_jobs,
    local clusters::a_cron_job_in_two_clusters_runs_in_one_of_them,
    anywhere go::controllers_in_go_lead_one_after_the_other,
];
