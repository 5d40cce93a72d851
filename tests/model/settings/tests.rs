//! The configurations: all rules on, then each of them off.

use super::*;

#[test]
fn settings_change_while_locks_are_held() {
    holds("settings", Settings::new());
}

#[test]
fn without_any_one_rule_a_process_is_admitted_early() {
    // The model found this fault in the product.
    let other_count = Settings { counts_by_specification: false, ..Settings::new() };
    each_violated([
        ("settings, a smaller maxTTL published at once", Settings { lowers_late: false, ..Settings::new() }),
        ("settings, holds not looked at", Settings { reads_holds: false, ..Settings::new() }),
        ("settings, a count continues for another specification", other_count),
        ("settings, a larger maxTTL used at once", Settings { publishes_first: false, ..Settings::new() }),
        ("settings, writes without resourceVersion", Settings { versions: false, ..Settings::new() }),
    ]);
}
