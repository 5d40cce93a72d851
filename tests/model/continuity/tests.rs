//! The configurations: all rules on, then each of them off.

use super::*;

#[test]
fn a_hold_continues_with_the_members_and_is_never_revived() {
    holds("continuity, all members up", Continuity::new());
}

#[test]
fn members_that_restart_do_not_revive_a_hold() {
    holds("continuity, one member at a time restarts", Continuity { most_out: 1, ..Continuity::short() });
}

#[test]
fn without_any_one_rule_a_hold_comes_back() {
    let early = Continuity { most_out: 1, delay: Delay::new(rejoin_ticks(2) - 1), ..Continuity::short() };
    each_violated([
        ("an attempt sets its key at any time", Continuity { last_set: None, ..Continuity::new() }),
        ("a repair sets its key at any time", Continuity { last_repair: None, ..Continuity::short() }),
        ("a repair can arrive until its validity ends", Continuity { last_repair: Some(2), ..Continuity::short() }),
        ("answers from longer ago count", Continuity { window: 1, ..Continuity::short() }),
        ("a hold that ends is not sealed", Continuity { seal: false, ..Continuity::new() }),
        ("a seal lives no longer than the key would have", Continuity { least_seal: 1, ..Continuity::new() }),
        ("a restarted member is admitted a tick too early", early),
    ]);
}
