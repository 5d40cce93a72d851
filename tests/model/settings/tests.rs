//! The configurations: all rules on, then each of them off.

use super::*;

#[test]
fn settings_change_while_locks_are_held() {
    holds("settings", Settings::new());
}

#[test]
fn settings_lowered_at_once() {
    violated("settings, a smaller maxTTL published at once", Settings { lowers_late: false, ..Settings::new() });
}

#[test]
fn settings_lowered_while_a_longer_lock_is_renewed() {
    violated("settings, holds not looked at", Settings { reads_holds: false, ..Settings::new() });
}

/// The model found this fault in the product.
#[test]
fn settings_raised_and_lowered_before_anybody_looks() {
    let rules = Settings { counts_by_specification: false, ..Settings::new() };
    violated("settings, a count continues for another specification", rules);
}

#[test]
fn settings_used_before_they_are_published() {
    violated("settings, a larger maxTTL used at once", Settings { publishes_first: false, ..Settings::new() });
}

#[test]
fn settings_written_without_a_version() {
    violated("settings, writes without resourceVersion", Settings { versions: false, ..Settings::new() });
}
