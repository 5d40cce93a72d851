//! The configurations: all rules on, then each of them off.

use super::*;

#[test]
fn a_hold_goes_on_by_the_members_and_does_not_come_back() {
    holds("continuity, all members up", Continuity::new());
}

#[test]
fn members_that_restart_do_not_revive_a_hold() {
    holds("continuity, one member at a time restarts", Continuity { most_out: 1, ..Continuity::short() });
}

#[test]
fn without_a_last_moment_of_the_attempt() {
    violated("an attempt sets its key at any time", Continuity { last_set: None, ..Continuity::new() });
}

#[test]
fn without_a_last_moment_of_a_repair() {
    violated("a repair sets its key at any time", Continuity { last_repair: None, ..Continuity::short() });
}

#[test]
fn with_a_repair_until_the_end_of_the_validity() {
    violated("a repair can arrive until its validity ends", Continuity { last_repair: Some(2), ..Continuity::short() });
}

#[test]
fn with_answers_that_are_too_old() {
    violated("answers from longer ago count", Continuity { window: 1, ..Continuity::short() });
}

#[test]
fn without_a_seal() {
    violated("a hold that ends is not sealed", Continuity { seal: false, ..Continuity::new() });
}

#[test]
fn with_a_seal_that_ends_before_the_answers_are_counted() {
    violated("a seal lives no longer than the key would have", Continuity { least_seal: 1, ..Continuity::new() });
}

#[test]
fn with_a_shorter_fence() {
    let rules = Continuity { most_out: 1, delay: Delay::new(rejoin_ticks(2) - 1), ..Continuity::short() };
    violated("a restarted member is admitted a tick too early", rules);
}
