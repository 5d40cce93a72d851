//! The last step before the command: a process that prepares itself and becomes the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

use super::terminal;
use crate::console;
use crate::hold::exit;

/// Becomes a command that ends with the guard.
#[derive(Clone, Debug, clap::Args)]
pub struct ExecArgs {
    /// The process ID of the guard.
    #[arg(long)]
    guard: i32,
    /// The command gets the terminal.
    #[arg(long)]
    terminal: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the command, or reports why it cannot.
pub fn run(args: ExecArgs) -> ExitCode {
    if let Err(error) = prepare(&args) {
        return exit::failed(format_args!("the command was not started: {error}"));
    }
    let Some((program, arguments)) = args.command.split_first() else { return ExitCode::from(exit::OWN_ERROR) };
    // `exec` returns only after a failure.
    let error = Command::new(program).args(arguments).exec();
    console::report(format_args!("{}: {error}", program.display()));
    ExitCode::from(exit::of_exec(error.kind()))
}

/// Makes the kernel kill this process with the guard, and separates it from the processes of `run`.
fn prepare(args: &ExecArgs) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // If the guard ended before that call, the kernel sends no signal.
    if getppid() != Pid::from_raw(args.guard) {
        return Err(io::Error::other("its guard has ended"));
    }
    if args.terminal {
        terminal::wait_for_it();
    } else {
        setsid()?;
    }
    Ok(())
}
