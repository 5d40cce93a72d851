//! Which broken rule this process has: patches that name one with `on` are all built at once, and `MUTANT` chooses.

use std::sync::OnceLock;

static MUTANT: OnceLock<String> = OnceLock::new();

/// Whether this process has this broken rule.
pub fn on(name: &str) -> bool {
    MUTANT.get_or_init(|| std::env::var("MUTANT").unwrap_or_default()) == name
}
