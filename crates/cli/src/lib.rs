//! The commands of users and applications.
//!
//! They use the API's types and the library, and never the code that decides about locks and quorums.
//!
//! - [`show`] prints locks and quorums, [`change`] acts on them through the API server, [`top`] does both on a full screen.
//! - [`doctor`] and [`report`] help when something is wrong.
//! - [`hold`] takes a lock for this process. `run` runs a command under it, and `agent` reports to an application whether it leads.
//!
//! `run` and `agent` need Linux and refuse elsewhere. The program compiles for macOS and Windows (`dev/targets.sh`).
//!
//! The decisions and outputs of commands are pure functions of the objects and the time. IO is in `run` of each, and in [`cluster`].

use std::process::ExitCode;

#[cfg(target_os = "linux")]
pub mod agent;
pub mod change;
pub mod cluster;
pub mod completion;
pub mod console;
pub mod doctor;
pub mod help;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, unused_imports, reason = "only `run` and the agent need it"))]
pub mod hold;
pub mod lock_check;
#[cfg(target_os = "linux")]
pub mod loopback;
pub mod output;
pub mod report;
#[cfg(target_os = "linux")]
pub mod run;
pub mod shell;
pub mod show;
pub mod top;
#[cfg(any(test, not(target_os = "linux")))]
pub mod unsupported;

use change::{break_lock, quorum_restart, step_down};
use show::{explain, history, list, quorum, status, version, wait};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{agent, run};

/// The exit code for the answer no: a wait timed out, or doctor found a fault.
const NO: u8 = 1;
/// The exit code if the command itself failed, or its options are wrong.
pub const FAILED: u8 = 125;

/// Commands for users and scripts.
#[derive(Debug, clap::Subcommand)]
pub enum UserCommand {
    /// List locks: who holds them, for how long, and who waits.
    #[command(after_help = "Example:\n  redlock list -A --watch")]
    List(list::ListArgs),
    /// Show one lock: its holder, its queue, and its conditions.
    #[command(after_help = "Example:\n  redlock status shop/reindex")]
    Status(status::LockArgs),
    /// Say in sentences why a lock is held or not, from the quorum to the queue.
    #[command(after_help = "Example:\n  redlock explain shop/reindex")]
    Explain(status::LockArgs),
    /// Show who had a lock, for how long, and how each hold ended.
    #[command(after_help = "Example:\n  redlock history shop/reindex -o wide")]
    History(status::LockArgs),
    /// Show the keys that are contended for most, and the state of the quorums.
    #[command(after_help = "Example:\n  redlock top -A")]
    Top(top::TopArgs),
    /// Ask a holder to pass its lock on. The hold runs out within one ttl.
    #[command(after_help = "Example:\n  redlock step-down shop/scheduler")]
    StepDown(step_down::StepDownArgs),
    /// Take a lock from its holder. The hold runs out within one ttl.
    #[command(after_help = "Example:\n  redlock break shop/reindex --reason 'stuck since noon'")]
    Break(break_lock::BreakArgs),
    /// Wait until a lock is held, free, finished or gone. Exit code 1: not in time.
    #[command(after_help = "Example:\n  redlock wait shop/reindex --for free --timeout 5m")]
    Wait(wait::WaitArgs),
    /// Look at quorums, and restart a member.
    #[command(subcommand)]
    Quorum(QuorumCommand),
    /// Check an installation, and name the remedy for each fault. Exit code 1: there is a fault.
    #[command(after_help = "Example:\n  redlock doctor")]
    Doctor(doctor::DoctorArgs),
    /// Write what a report of a problem needs into a directory, without Secrets.
    #[command(after_help = "Example:\n  redlock report ./redlock-report -A --logs")]
    Report(report::ReportArgs),
    /// Print the versions of this command and of the operators.
    #[command(after_help = "Example:\n  redlock version")]
    Version(version::VersionArgs),
    /// Print the completions for a shell.
    #[command(after_help = "Example:\n  redlock completions bash > /etc/bash_completion.d/redlock")]
    Completions(shell::CompletionsArgs),
    /// Write manual pages into a directory.
    #[command(after_help = "Example:\n  redlock man /usr/local/share/man/man1")]
    Man(shell::DirectoryArgs),
    /// Copy this program into a directory, for example from an init container into a volume.
    #[command(after_help = "Example:\n  redlock install /shared/bin")]
    Install(shell::DirectoryArgs),
}

/// Commands for quorums.
#[derive(Debug, clap::Subcommand)]
pub enum QuorumCommand {
    /// Show the members of quorums: who votes, who is fenced and until when, and how far clocks are apart.
    #[command(after_help = "Example:\n  redlock quorum status -n redlock-system main")]
    Status(quorum::StatusArgs),
    /// Restart one member safely: only while all others vote, and wait until it votes again.
    #[command(after_help = "Example:\n  redlock quorum restart -n redlock-system main-0")]
    Restart(quorum_restart::RestartArgs),
}

/// Executes a command. `tree` has all commands of the program, for the manual pages.
#[must_use]
pub fn execute(command: UserCommand, tree: clap::Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from);
    match runtime.and_then(|runtime| runtime.block_on(dispatch(command, tree))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NO),
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            console::write_error(&format!("error: {error:#}\n"));
            ExitCode::from(FAILED)
        }
    }
}

/// Executes a command. Returns whether the answer is yes.
async fn dispatch(command: UserCommand, tree: clap::Command) -> anyhow::Result<bool> {
    match command {
        UserCommand::List(args) => list::run(args).await?,
        UserCommand::Status(args) => status::run(args).await?,
        UserCommand::Explain(args) => explain::run(args).await?,
        UserCommand::History(args) => history::run(args).await?,
        UserCommand::Top(args) => top::run(args).await?,
        UserCommand::StepDown(args) => step_down::run(args).await?,
        UserCommand::Break(args) => break_lock::run(args).await?,
        UserCommand::Wait(args) => return wait::run(args).await,
        UserCommand::Quorum(QuorumCommand::Status(args)) => quorum::status(args).await?,
        UserCommand::Quorum(QuorumCommand::Restart(args)) => return quorum_restart::run(args).await,
        UserCommand::Doctor(args) => return doctor::run(args).await,
        UserCommand::Report(args) => report::run(args).await?,
        UserCommand::Version(args) => version::run(args).await?,
        UserCommand::Completions(args) => shell::completions(&args)?,
        UserCommand::Man(args) => shell::man(&args, tree)?,
        UserCommand::Install(args) => shell::install(&args)?,
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
