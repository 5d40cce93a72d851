//! One tenant cannot stop anybody else.

mod unreadable;

use crate::runner::{Test, tests};

pub(crate) const TESTS: &[Test] = tests![
    anywhere unreadable::a_claim_that_the_operator_cannot_read_is_refused,
    anywhere unreadable::claims_that_were_stored_unreadable_harm_only_themselves,
    anywhere unreadable::what_fits_the_schema_is_read,
];
