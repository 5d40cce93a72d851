//! The protocol between `run` and its guard: lines of text over one socket.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::hold::exit::CommandStatus;
use redlock_engine::time::Boottime;

/// A command of `run` to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuardCommand {
    /// The command can run until `ask`, and none of its processes runs after `kill`.
    Until { ask: Boottime, kill: Boottime },
    /// Pass a signal on to the command.
    Forward(i32),
    /// End the command: its signal now, SIGKILL at that time.
    End { kill: Boottime },
}

/// An event of the guard for `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuardEvent {
    /// The command has this process ID.
    Started(i32),
    /// The deadline has passed, so the guard ends the command.
    Ending,
    /// The command ended. Its descendants can still run.
    Ended(CommandStatus),
    /// All processes of the command ended.
    Empty,
}

impl fmt::Display for GuardCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until { ask, kill } => write!(f, "until {} {}", nanos(*ask), nanos(*kill)),
            Self::Forward(signal) => write!(f, "forward {signal}"),
            Self::End { kill } => write!(f, "end {}", nanos(*kill)),
        }
    }
}

impl fmt::Display for GuardEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(pid) => write!(f, "started {pid}"),
            Self::Ending => f.write_str("ending"),
            Self::Ended(CommandStatus::Code(code)) => write!(f, "code {code}"),
            Self::Ended(CommandStatus::Signal(signal)) => write!(f, "signal {signal}"),
            Self::Empty => f.write_str("empty"),
        }
    }
}

/// The error for an unknown line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

impl FromStr for GuardCommand {
    type Err = Unreadable;

    fn from_str(line: &str) -> Result<Self, Unreadable> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["until", ask, kill] => Ok(Self::Until { ask: moment(ask)?, kill: moment(kill)? }),
            ["forward", signal] => Ok(Self::Forward(number(signal)?)),
            ["end", kill] => Ok(Self::End { kill: moment(kill)? }),
            _ => Err(Unreadable),
        }
    }
}

impl FromStr for GuardEvent {
    type Err = Unreadable;

    fn from_str(line: &str) -> Result<Self, Unreadable> {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["started", pid] => Ok(Self::Started(number(pid)?)),
            ["ending"] => Ok(Self::Ending),
            ["code", code] => Ok(Self::Ended(CommandStatus::Code(number(code)?))),
            ["signal", signal] => Ok(Self::Ended(CommandStatus::Signal(number(signal)?))),
            ["empty"] => Ok(Self::Empty),
            _ => Err(Unreadable),
        }
    }
}

/// Nanoseconds of boot time. All processes of one kernel share this clock.
pub(super) fn nanos(at: Boottime) -> u64 {
    u64::try_from(at.since_boot().as_nanos()).unwrap_or(u64::MAX)
}

fn moment(text: &str) -> Result<Boottime, Unreadable> {
    Ok(Boottime::new(Duration::from_nanos(text.parse().map_err(|_| Unreadable)?)))
}

fn number(text: &str) -> Result<i32, Unreadable> {
    text.parse().map_err(|_| Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_guard_are_parsed() {
        let at = |millis| Boottime::new(Duration::from_millis(millis));
        for order in [
            GuardCommand::Until { ask: at(1), kill: at(70_000) },
            GuardCommand::Forward(15),
            GuardCommand::End { kill: at(5) },
        ] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for report in [
            GuardEvent::Started(77),
            GuardEvent::Ending,
            GuardEvent::Ended(CommandStatus::Code(3)),
            GuardEvent::Ended(CommandStatus::Signal(9)),
            GuardEvent::Empty,
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("until 5".parse::<GuardCommand>(), Err(Unreadable));
        assert_eq!("code".parse::<GuardEvent>(), Err(Unreadable));
    }
}
