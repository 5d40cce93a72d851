//! The exit codes of the commands that hold a lock, which are part of their interface.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::console;
use crate::hold::{End, LockName, NotHeld};

/// Another holder has the lock.
pub(crate) const NOT_ACQUIRED: u8 = 122;
/// The lock was lost, and the command was ended.
pub(crate) const LOST: u8 = 123;
/// `--max-hold` was reached, and the command was ended.
pub(crate) const MAX_HOLD: u8 = 124;
/// An error of `redlock` itself.
pub(crate) const OWN_ERROR: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNAL: i32 = 128;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CommandStatus {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// How `redlock run`, `hold` or `acquire` ended after it had the lock.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// `redlock hold` or `acquire` succeeded.
    Done,
    /// The command ended, and `redlock run` did not end it.
    Command(CommandStatus),
    /// The hold ended, and before it the command, if there was one.
    Ended { end: End, has_command: bool },
}

impl Outcome {
    /// The outcome after all processes of a command ended.
    ///
    /// # Errors
    /// Without a status, because then the guard died and `run` killed the other processes.
    pub(crate) fn of(why: Option<End>, status: Option<CommandStatus>) -> anyhow::Result<Self> {
        match (why, status) {
            (Some(end), _) => Ok(Self::Ended { end, has_command: true }),
            (None, Some(status)) => Ok(Self::Command(status)),
            (None, None) => bail!("the guard of the command was killed, and the command with it"),
        }
    }
}

/// Writes one line about the outcome, except for a command's own end or a signal.
pub(crate) fn report(outcome: Result<Outcome, NotHeld>, lock: &LockName, not_acquired: u8) -> ExitCode {
    let (code, line) = code_and_line(outcome, &lock.to_string(), not_acquired);
    if let Some(line) = line {
        console::report(line);
    }
    ExitCode::from(code)
}

fn code_and_line(outcome: Result<Outcome, NotHeld>, lock: &str, not_acquired: u8) -> (u8, Option<String>) {
    match outcome {
        Ok(Outcome::Done) => (0, None),
        Ok(Outcome::Command(status)) => (of_command(status), None),
        Ok(Outcome::Ended { end: End::Lost(why), has_command }) => {
            let command = if has_command { ". The command was ended before the lock was" } else { "" };
            (LOST, Some(format!("lock {lock} was lost: {why}{command}")))
        }
        Ok(Outcome::Ended { end: End::MaxHold, has_command }) => {
            let command = if has_command { ". The command was ended" } else { "" };
            (MAX_HOLD, Some(format!("lock {lock} was held for --max-hold{command}")))
        }
        Err(NotHeld::Signal(signal)) => (of_command(CommandStatus::Signal(signal)), None),
        Err(NotHeld::NotAcquired(why)) => (not_acquired, Some(why)),
        Err(NotHeld::NotAnswered(why)) => (OWN_ERROR, Some(why)),
        Err(NotHeld::Failed(error)) => (OWN_ERROR, Some(format!("{error:#}"))),
    }
}

/// Reports an error of `redlock` itself.
pub(crate) fn failed(why: impl Display) -> ExitCode {
    console::report(why);
    ExitCode::from(OWN_ERROR)
}

/// Reports the error of a command, if there is one.
pub(crate) fn of_result(result: anyhow::Result<()>) -> ExitCode {
    result.map_or_else(|error| failed(format_args!("{error:#}")), |()| ExitCode::SUCCESS)
}

/// The exit code of env(1) for a failed exec.
pub(crate) fn of_exec(error: io::ErrorKind) -> u8 {
    if error == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// The exit code of the command, or 128 plus the number of the signal.
pub(crate) fn of_command(status: CommandStatus) -> u8 {
    let code = match status {
        CommandStatus::Code(code) => code,
        CommandStatus::Signal(signal) => SIGNAL + signal,
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_command_and_of_env() {
        assert_eq!(
            [CommandStatus::Code(0), CommandStatus::Code(7), CommandStatus::Signal(9)].map(of_command),
            [0, 7, 137]
        );
        assert_eq!(of_exec(io::ErrorKind::NotFound), 127);
        assert_eq!(of_exec(io::ErrorKind::PermissionDenied), 126);
    }

    /// `redlock hold` has no command.
    #[test]
    fn only_the_end_of_a_command_is_reported_as_one() {
        let line = |end, has_command| code_and_line(Ok(Outcome::Ended { end, has_command }), "shop/a", 122);
        let lost = || End::Lost("by alice".into());
        assert_eq!(line(lost(), false), (123, Some("lock shop/a was lost: by alice".into())));
        assert_eq!(line(End::MaxHold, false), (124, Some("lock shop/a was held for --max-hold".into())));
        for end in [lost(), End::MaxHold] {
            assert!(line(end, true).1.is_some_and(|line| line.contains(". The command was ended")));
        }
    }

    /// A CronJob with `--not-acquired-exit-code 0` must not hide that it can never acquire the lock.
    #[test]
    fn only_another_holder_has_the_code_for_it() {
        let code = |not_held| code_and_line(Err(not_held), "shop/a", 0).0;
        assert_eq!(code(NotHeld::NotAcquired("taken".into())), 0);
        assert_eq!(code(NotHeld::NotAnswered("no member answers".into())), OWN_ERROR);
    }
}
