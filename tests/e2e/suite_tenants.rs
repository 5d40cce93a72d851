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
    anywhere unreadable::claims_that_were_stored_unreadable_harm_only_themselves,
    anywhere unreadable::values_that_fit_the_schema_are_read,
    anywhere rights::the_operators_account_has_only_the_documented_rights,
    anywhere rights::the_operators_account_writes_only_objects_of_a_quorum,
    anywhere requests::a_neighbour_cannot_free_a_working_holders_lock,
    anywhere requests::a_user_who_breaks_a_lock_needs_the_permission_and_is_named,
    anywhere holders::an_application_changes_only_its_own_claims,
    anywhere holders::a_secret_of_others_is_sent_to_no_address,
    anywhere shares::thousands_that_wait_cost_a_few_writes_and_delay_nobody,
    anywhere shares::a_namespace_that_creates_and_deletes_in_a_loop_harms_nobody,
    local    shares::pods_that_do_not_answer_delay_only_their_own_locks,
    anywhere shares::a_thousand_published_locks_take_nobodys_writes,
    anywhere attacks::large_locks_and_pods_that_come_and_go_harm_nobody,
    anywhere attacks::a_thousand_elections_on_one_key_harm_nobody,
    anywhere attacks::heartbeats_and_renewals_in_quick_succession_harm_nobody,
    local    members::endless_scripts_that_have_written_harm_nobody_else,
    local    members::a_hundred_endless_scripts_at_once_harm_nobody_else,
    local    members::scripts_that_build_long_texts_harm_nobody_else,
    local    members::thousands_of_loaded_scripts_harm_nobody_else,
    local    members::answers_that_are_not_read_harm_nobody_else,
    local    members::a_large_argument_that_is_announced_harms_nobody_else,
    local    members::many_idle_connections_to_every_member_harm_no_other_tenant,
    local    hostile::masters_whose_answers_do_not_end_harm_nobody,
    local    hostile::masters_that_fall_silent_move_the_leadership_rarely,
    local    hostile::connections_to_the_operators_port_harm_nobody,
    anywhere hostile::a_quorum_that_calls_itself_the_default_is_nobodys,
    anywhere installations::two_installations_run_side_by_side_and_each_quorum_has_one,
];
