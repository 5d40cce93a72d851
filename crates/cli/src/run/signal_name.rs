//! Signals by their names, such as TERM.

use std::str::FromStr;

/// The names of signals, from number 1: KILL, and all that a command can catch. Faults, stops and SIGCHLD have none.
const NAMES: [&str; 30] = [
    "HUP", "INT", "QUIT", "", "", "ABRT", "", "", "KILL", "USR1", "", "USR2", "PIPE", "ALRM", "TERM", "", "", "CONT",
    "", "", "", "", "URG", "XCPU", "", "VTALRM", "PROF", "WINCH", "IO", "PWR",
];

/// A signal, by its name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalName(pub i32);

impl FromStr for SignalName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        let is_meant = |number: i32, name: &str| !name.is_empty() && (name == bare || number.to_string() == bare);
        let meant = (1..).zip(NAMES).find(|(number, name)| is_meant(*number, name));
        meant.map(|(number, _)| Self(number)).ok_or("use the name or number of a signal, for example TERM, INT or 15")
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
        assert_eq!(["KILL", "12", "PWR"].map(str::parse), [Ok(SignalName(9)), Ok(SignalName(12)), Ok(SignalName(30))]);
        for wrong in ["STOPP", "STOP", "19", "SIG", "", "0", "31"] {
            assert!(wrong.parse::<SignalName>().is_err(), "{wrong}");
        }
    }
}
