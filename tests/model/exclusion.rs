//! What the models of exclusion have in common: keys that expire, members that are fenced by age, and what must never be true
//! of two clients.

use super::core::admits;

/// The owner of a key, unless it is a client's [`number`].
pub(crate) const NOBODY: u8 = 0;

/// A member's fence: admitted, restarted and not yet seen, or seen for so many ticks and two.
pub(crate) const ADMITTED: u8 = 0;
pub(crate) const UNSEEN: u8 = 1;
pub(crate) const OBSERVED: u8 = 2;

/// How far a client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Acquiring,
    Held,
    Extending,
}

/// What a client's keys have in their place for the owner.
pub(crate) fn number(client: usize) -> u8 {
    u8::try_from(client + 1).unwrap()
}

/// A tick passes at a member: its key may expire, and its process is known for longer, up to `delay`.
pub(crate) fn tick(owner: &mut u8, ttl: &mut u8, fence: &mut u8, delay: u8) {
    *ttl = ttl.saturating_sub(1);
    if *ttl == 0 {
        *owner = NOBODY;
    }
    if *fence >= OBSERVED {
        *fence = (*fence + 1).min(OBSERVED + delay);
    }
}

/// Whether a process is admitted, by ticks since the first sight.
pub(crate) fn admissions(delay: u8) -> Vec<bool> {
    (0..=delay).map(|seen_for| admits(seen_for, delay)).collect()
}

/// What is wrong with two clients, each with its ticks of validity, and whether another was granted the lock while it had it.
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

/// A member's key and its fence, for people.
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

/// A validity, for people.
pub(crate) fn show_valid(valid: u8) -> String {
    if valid > 0 { format!(", valid for {valid}") } else { String::new() }
}
