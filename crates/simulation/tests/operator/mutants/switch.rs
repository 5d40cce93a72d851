//! The broken rule that this process has.
//!
//! Patches that name a rule with `on` are built together, and `MUTANT` selects one.

use std::sync::OnceLock;

static MUTANT: OnceLock<String> = OnceLock::new();

/// Whether this process has this broken rule.
pub fn on(name: &str) -> bool {
    MUTANT.get_or_init(|| std::env::var("MUTANT").unwrap_or_default()) == name
}
