//! The rule that is broken in this process.
//!
//! `dev/mutants.sh` builds all patches that name a rule with `on` together, and the variable `MUTANT` selects one.

use std::sync::OnceLock;

static MUTANT: OnceLock<String> = OnceLock::new();

/// Whether the rule `name` is broken in this process.
pub fn on(name: &str) -> bool {
    MUTANT.get_or_init(|| std::env::var("MUTANT").unwrap_or_default()) == name
}
