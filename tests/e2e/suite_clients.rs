//! Outside lock clients, each with a library of its own language, on the operator's keys.

mod both_ways;
mod contention;
mod fenced_member;
mod isolation;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    local both_ways::every_library_and_a_claim_exclude_each_other,
    local both_ways::every_library_and_a_claim_exclude_each_other_over_tls,
    local contention::libraries_on_a_key_exclude_each_other_while_members_restart,
    local fenced_member::every_library_continues_while_a_member_is_fenced,
    local isolation::a_client_reaches_nothing_outside_its_prefix,
    anywhere isolation::prefixes_that_carry_rules_are_refused,
];
