//! One tenant cannot stop another one.
//!
//! The tests also check rights: those of the operator's own account, and those of users and pods of one namespace on
//! the holders of another.

mod attacks;
mod holders;
mod hostile;
pub(crate) mod installations;
mod members;
mod requests;
mod rights;
pub(crate) mod shares;
mod unreadable;
mod victim;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere unreadable::unreadable_stored_claims_do_not_affect_other_claims,
    anywhere unreadable::values_that_fit_the_schema_are_read,
    anywhere rights::the_operators_account_has_only_the_documented_rights,
    anywhere rights::the_operators_account_writes_only_objects_of_a_quorum,
    anywhere requests::a_neighbour_cannot_free_a_working_holders_lock,
    anywhere requests::a_user_who_breaks_a_lock_needs_the_permission_and_is_named,
    anywhere holders::an_application_changes_only_its_own_claims,
    anywhere holders::a_foreign_secret_is_sent_to_no_address,
    anywhere shares::thousands_of_waiting_claims_cost_few_writes_and_no_delay,
    anywhere shares::creations_and_deletions_in_a_loop_harm_no_other_tenant,
    local    shares::pods_that_do_not_answer_delay_only_their_own_locks,
    anywhere shares::a_thousand_published_locks_delay_no_other_tenants_writes,
    anywhere attacks::churn_of_large_locks_and_pods_harms_no_other_tenant,
    anywhere attacks::a_thousand_elections_on_one_key_harm_no_other_tenant,
    anywhere attacks::frequent_heartbeats_and_renewals_harm_no_other_tenant,
    local    members::endless_scripts_that_have_written_harm_no_other_tenant,
    local    members::a_hundred_endless_scripts_at_once_harm_no_other_tenant,
    local    members::scripts_that_build_long_texts_harm_no_other_tenant,
    local    members::thousands_of_loaded_scripts_harm_no_other_tenant,
    local    members::unread_answers_harm_no_other_tenant,
    local    members::a_large_announced_argument_harms_no_other_tenant,
    local    members::many_idle_connections_to_every_member_harm_no_other_tenant,
    local    hostile::masters_with_endless_answers_harm_no_other_tenant,
    local    hostile::masters_that_fall_silent_move_the_leadership_rarely,
    local    hostile::connections_to_the_operators_port_harm_no_other_tenant,
    anywhere hostile::a_quorum_that_a_tenant_marks_as_default_is_not_used,
    anywhere installations::two_installations_run_side_by_side_and_each_quorum_has_one,
];
