//! As many locks in one namespace as the chart allows, with the chart's memory limit.

mod restarts;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    local restarts::quiet_locks_outlive_every_restart,
    local restarts::published_locks_outlive_every_restart,
];
