//! The main features: each line of the demo, and what a user tries first.

mod claims;
mod elections;
mod foreign_holders;
pub(crate) mod generated_specs;
mod master_killed;
mod operator_killed;
mod quorum_starts;
mod refused_later;
mod refused_manifests;
mod script;
mod secrets;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere refused_manifests::a_malformed_manifest_is_refused_with_a_correction,
    anywhere refused_manifests::metadata_that_is_too_large_is_refused,
    anywhere generated_specs::generated_specifications_are_judged_as_documented,
    anywhere refused_later::errors_from_other_objects_are_in_the_status_and_heal,
    anywhere quorum_starts::a_quorum_starts_closed_and_opens_late,
    anywhere claims::a_second_claim_waits_for_the_first,
    anywhere script::the_script_of_the_quick_start_works_when_pasted,
    local elections::a_single_pod_leads_and_the_next_follows_in_three_seconds,
    anywhere foreign_holders::a_client_outside_and_a_claim_exclude_each_other,
    local master_killed::a_killed_master_is_fenced_while_the_lock_is_held_throughout,
    anywhere operator_killed::a_lock_outlives_every_operator_pod,
    local operator_killed::a_lock_outlives_sigkill_to_the_leading_operator,
    anywhere secrets::no_secret_is_in_logs_events_or_statuses,
];
