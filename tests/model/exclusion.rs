//! Definitions that the models of exclusion share.
//!
//! They cover keys that expire, members that are fenced by age, and the violations of two clients.

use super::core::admits;

/// The owner of a key that no client's [`number`] owns.
pub(crate) const NOBODY: u8 = 0;

/// A member's fence: admitted, restarted and not observed, or observed this number of ticks ago plus 2.
pub(crate) const ADMITTED: u8 = 0;
pub(crate) const UNSEEN: u8 = 1;
pub(crate) const OBSERVED: u8 = 2;

/// The progress of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Acquiring,
    Held,
    Extending,
}

/// The number of a client in the owner of a key.
pub(crate) fn number(client: usize) -> u8 {
    u8::try_from(client + 1).unwrap()
}

/// Advances a member by one tick.
///
/// Its key can expire, and the age of its process grows up to `delay`.
pub(crate) fn tick(owner: &mut u8, ttl: &mut u8, fence: &mut u8, delay: u8) {
    *ttl = ttl.saturating_sub(1);
    if *ttl == 0 {
        *owner = NOBODY;
    }
    if *fence >= OBSERVED {
        *fence = (*fence + 1).min(OBSERVED + delay);
    }
}

/// Whether a process is admitted, by ticks since the first observation.
pub(crate) fn admissions(delay: u8) -> Vec<bool> {
    (0..=delay).map(|seen_for| admits(seen_for, delay)).collect()
}

/// The rule that two clients violate, if there is one.
///
/// Each client has its ticks of validity, and whether another client was granted the lock during them.
pub(crate) fn violation(clients: [(u8, bool); 2]) -> Option<&'static str> {
    let holds = |(valid, _): &(u8, bool)| *valid > 0;
    if clients.iter().all(holds) {
        Some("two clients are inside their validity")
    } else if clients.iter().any(|client| holds(client) && client.1) {
        Some("a holder is valid again although another was granted the lock in between")
    } else {
        None
    }
}

/// Prints a member's key and its fence.
pub(crate) fn show_member(owner: u8, ttl: u8, fence: u8) -> String {
    let owner = ["-", "A", "B", "?"][usize::from(owner)];
    let ttl = if ttl > 0 { ttl.to_string() } else { String::new() };
    let fence = match fence {
        ADMITTED => String::new(),
        UNSEEN => "!new".into(),
        seen => format!("!{}", seen - OBSERVED),
    };
    format!("{owner}{ttl}{fence}")
}

/// Prints a validity.
pub(crate) fn show_valid(valid: u8) -> String {
    if valid > 0 { format!(", valid for {valid}") } else { String::new() }
}
