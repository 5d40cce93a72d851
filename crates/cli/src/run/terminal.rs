//! The foreground process of the terminal: the command while it runs, and `run` before and after.
//!
//! The command has a process group of its own, so the terminal is given to that group. Only a process in the foreground group can do
//! that without being stopped. So `run` gives it away, and a short-lived process in the command's group gives it back.

use std::io::{self, IsTerminal, stdin, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::SELF;
use redlock_engine::time::{Clock, SystemClock};

/// How long the command waits for the terminal before it starts.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);

/// Gives the terminal to a process group.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ForegroundArgs {
    /// The process group.
    #[arg(long)]
    group: i32,
}

/// Whether the command is to get the terminal.
///
/// This process has it, and is not part of a pipeline: the other processes of that would lose the terminal.
pub(super) fn is_ours() -> bool {
    stdin().is_terminal() && stdout().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Whether another process group reads the terminal at the standard input.
///
/// This is so for a job in the background.
pub(super) fn is_of_another_group() -> bool {
    stdin().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group != getpgrp())
}

/// Gives the terminal to the command, which leads its own group.
pub(super) fn give(command: Pid) -> io::Result<()> {
    Ok(tcsetpgrp(stdin(), command)?)
}

/// Waits until the terminal was given to this process.
pub(super) fn wait_for_it() {
    let begun = SystemClock.boottime();
    while tcgetpgrp(stdin()).is_ok_and(|group| group != getpgrp()) && SystemClock.boottime().since(begun) < LONGEST_WAIT
    {
        std::thread::sleep(TICK);
    }
}

/// Gives the terminal back to the group of `run`. The command has ended and was not reaped yet: its group still exists.
pub(super) fn take_back(command: Pid, run_group: i32) {
    let mut helper = Command::new(SELF);
    helper.arg0("redlock").args(["take-terminal", "--group", &run_group.to_string()]);
    // Without it the shell takes the terminal back by itself, if it is one that a person uses.
    let _ = helper.process_group(command.as_raw_nonzero().get()).status();
}

/// The process that gives the terminal back.
pub(super) fn set_foreground(args: ForegroundArgs) -> ExitCode {
    let given = Pid::from_raw(args.group).is_some_and(|group| tcsetpgrp(stdin(), group).is_ok());
    if given { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
