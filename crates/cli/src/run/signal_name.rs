//! Signals by their names, such as TERM.

use std::str::FromStr;

/// The signals for a command: KILL, and all that it can catch.
const NAMES: [(&str, i32); 18] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("URG", 23),
    ("XCPU", 24),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
];

/// A signal, by its name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalName(pub i32);

impl FromStr for SignalName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        let known = NAMES.iter().find(|(name, number)| *name == bare || number.to_string() == bare);
        known.map(|(_, number)| Self(*number)).ok_or("use the name or number of a signal, for example TERM, INT or 15")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_and_a_number() {
        for text in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(text.parse(), Ok(SignalName(15)), "{text}");
        }
        assert_eq!("SIGWINCH".parse(), Ok(SignalName(28)));
        assert!("STOPP".parse::<SignalName>().is_err());
    }
}
