//! The foreground process of the terminal: the command while it runs, and `run` before and after.
//!
//! The command has its own process group, which becomes the foreground group of the terminal. Only a process in the foreground group can
//! change that group without being stopped. So `run` gives the terminal to the command, and a short-lived process in the foreground group
//! returns it.

use std::io::{self, IsTerminal, stdin, stdout};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, getpgrp, waitid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::{SELF, process_tree};
use redlock_engine::time::{Clock, SystemClock};

/// How long the command waits for the terminal before it starts.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);
/// The bounds of the time in which the terminal is returned. Only a slow machine reaches them.
const LEAST_RETURN: Duration = Duration::from_millis(20);
const LONGEST_RETURN: Duration = Duration::from_secs(1);

/// Gives the terminal to a process group.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ForegroundArgs {
    /// The process group.
    #[arg(long)]
    group: i32,
}

/// Whether the command must get the terminal.
///
/// This process has the terminal, and is not part of a pipeline. The other processes of a pipeline would lose the terminal.
pub(super) fn is_ours() -> bool {
    stdin().is_terminal() && stdout().is_terminal() && tcgetpgrp(stdin()).is_ok_and(|group| group == getpgrp())
}

/// Whether the standard input is a terminal of another foreground process group.
///
/// If it is, this process is a background job.
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

/// Returns the terminal to the group of `run`, within about the time that is left.
///
/// The command ended and was not reaped yet, so its group still exists.
pub(super) fn take_back(command: Pid, run_group: i32, left: Duration) {
    let Some(group) = foreground_below(command) else { return };
    let mut helper = Command::new(SELF);
    helper.arg0("redlock").args(["take-terminal", "--group", &run_group.to_string()]);
    // If this fails, an interactive shell takes the terminal back itself.
    let Ok(mut helper) = helper.process_group(group.as_raw_nonzero().get()).spawn() else { return };
    let (pid, begun) = (Pid::from_child(&helper), SystemClock.boottime());
    let longest = left.clamp(LEAST_RETURN, LONGEST_RETURN);
    while matches!(helper.try_wait(), Ok(None)) && !is_stopped(pid) && SystemClock.boottime().since(begun) < longest {
        std::thread::sleep(TICK);
    }
    // Neither call affects a helper that was already reaped.
    let _ = helper.kill();
    let _ = helper.wait();
}

/// The foreground group, if it belongs to the command or to a descendant of this process.
///
/// An interactive shell gives the terminal to a group for each job. A shell outside `run` keeps its terminal.
fn foreground_below(command: Pid) -> Option<Pid> {
    let Ok(group) = tcgetpgrp(stdin()) else { return Some(command) };
    let is_below = group == command || process_tree::is_descendant(group) || process_tree::has_child_in(group);
    is_below.then_some(group)
}

/// Whether a child was stopped, as the kernel stops a process outside the foreground group.
fn is_stopped(child: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    waitid(WaitId::Pid(child), options).is_ok_and(|status| status.is_some())
}

/// Makes a process group the foreground group, in the short-lived process of `take_back`.
pub fn set_foreground(args: ForegroundArgs) -> ExitCode {
    let given = Pid::from_raw(args.group).is_some_and(|group| tcsetpgrp(stdin(), group).is_ok());
    if given { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
