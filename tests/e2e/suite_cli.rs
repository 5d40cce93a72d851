//! The commands of people and applications: `redlock run` and what goes with it.

mod running;
mod steps;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere running::a_command_runs_while_its_claim_is_held,
    anywhere running::a_second_command_waits_or_gives_up,
    anywhere running::a_killed_run_loses_its_claim_soon_after_its_last_heartbeat,
    anywhere running::a_broken_lock_ends_its_command_while_it_is_still_valid,
    anywhere running::a_pod_runs_its_command_with_the_holder_role_alone,
    anywhere steps::a_lock_is_acquired_in_one_step_and_released_in_another,
    anywhere steps::a_lock_is_held_until_the_command_is_stopped,
];
