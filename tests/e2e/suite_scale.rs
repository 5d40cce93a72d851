//! As many locks in a namespace as the chart allows, with the documented memory limit.

pub(crate) mod restarts;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    long restarts::quiet_locks_outlive_every_restart,
    long restarts::published_locks_outlive_every_restart,
    long restarts::two_full_namespaces_outlive_every_restart,
];
