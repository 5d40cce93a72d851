//! The `redlock` command.
// These macros panic when the stream is closed or full. Use `redlock_cli::console` instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use redlock_cli::change::release;
use redlock_cli::hold::{acquire, hold_command};
use redlock_cli::lock_check::{self, LockCheckArgs};
use redlock_cli::{self as cli, UserCommand, agent, run};
use redlock_operator::operator::args::OperatorArgs;
use redlock_operator::operator::uninstall::{self, UninstallArgs};
use redlock_operator::{api, operator};

// With the C library's allocator the leader keeps 50 % more memory after a peak of thousands of locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Distributed locks and leader election for Kubernetes, through Redlock.
#[derive(Debug, Parser)]
#[command(name = "redlock", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    User(UserCommand),
    /// Run the operator.
    #[command(
        hide = true,
        after_help = "Example:\n  redlock operator --namespace redlock-system --pod-name redlock-operator-0"
    )]
    Operator(Box<OperatorArgs>),
    /// Refuse while locks are held; else stop the operator and clear its finalizers.
    /// The chart runs it before an uninstall.
    #[command(hide = true, after_help = "Example:\n  redlock uninstall-check --namespace redlock-system")]
    UninstallCheck(UninstallArgs),
    /// Take a lock, see it held, and give it back (the chart's `helm test`).
    #[command(hide = true, after_help = "Example:\n  redlock lock-check --namespace shop")]
    LockCheck(LockCheckArgs),
    /// Print the CustomResourceDefinitions as YAML.
    #[command(hide = true, after_help = "Example:\n  redlock crds > crds.yaml")]
    Crds,
    /// Run a command under a lock, and end it before the lock ends.
    Run(Box<run::RunArgs>),
    /// Keep a lock until this is stopped, and print its token.
    Hold(Box<hold_command::HoldArgs>),
    /// Take a lock for a later step, and print its token.
    Acquire(Box<acquire::AcquireArgs>),
    /// Release a lock by its token.
    Release(release::ReleaseArgs),
    /// Tell an application on this machine whether it leads, over HTTP.
    Agent(Box<agent::AgentArgs>),
    /// Between `run` and its command.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Guard(run::GuardArgs),
    /// Prepares and becomes the command of `run`.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Become(run::ExecArgs),
    /// Gives the terminal back to `run`.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    TakeTerminal(run::ForegroundArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    if cli::completion::answer(Cli::command)? {
        return Ok(ExitCode::SUCCESS);
    }
    let command = match parse() {
        Ok(cli) => cli.command,
        Err(error) => return Ok(explain(&error)),
    };
    match command {
        Command::User(user) => return Ok(cli::execute(user, Cli::command())),
        Command::Operator(args) => block_on(operator::run(*args)),
        Command::UninstallCheck(args) => block_on(uninstall::run(args)),
        Command::LockCheck(args) => block_on(lock_check::run(args)),
        Command::Crds => print_crds(),
        // These commands start their own runtime, and their exit codes are part of the interface.
        Command::Run(args) => return Ok(run::run(&args)),
        Command::Hold(args) => return Ok(hold_command::run(&args)),
        Command::Acquire(args) => return Ok(acquire::run(&args)),
        Command::Release(args) => return Ok(release::run(&args)),
        Command::Agent(args) => return Ok(agent::run(&args)),
        #[cfg(target_os = "linux")]
        Command::Guard(args) => return Ok(run::guard(&args)),
        #[cfg(target_os = "linux")]
        Command::Become(args) => return Ok(run::become_command(args)),
        #[cfg(target_os = "linux")]
        Command::TakeTerminal(args) => return Ok(run::take_terminal(args)),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the command line. The help has the commands in groups.
fn parse() -> Result<Cli, clap::Error> {
    let mut tree = cli::help::grouped(Cli::command());
    let matches = tree.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut tree))
}

/// Prints help, the version, or the error in the command line.
fn explain(error: &clap::Error) -> ExitCode {
    // A closed stream changes no exit code.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(cli::FAILED) } else { ExitCode::SUCCESS }
}

fn print_crds() -> anyhow::Result<()> {
    for crd in api::crds() {
        cli::console::print(format_args!("---\n{}", serde_yaml::to_string(&crd)?.trim_end()))?;
    }
    Ok(())
}

fn block_on(future: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects every visible command that is not a group, with its full path.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
            let path = format!("{path} {}", child.get_name());
            match child.has_subcommands() {
                true => leaves(child, &path, found),
                false => found.push((path, child.clone())),
            }
        }
    }

    /// The arguments of an example, as a shell passes them.
    fn arguments(example: &str) -> Vec<String> {
        let (_, after) = example.split_once("redlock ").unwrap();
        let call = after.split(" > ").next().unwrap().trim_end_matches(')');
        let call = call.replace("'stuck since noon'", "stuck").replace("\"$token\"", "42");
        ["redlock"].into_iter().chain(call.split_whitespace()).map(str::to_owned).collect()
    }

    #[test]
    fn the_help_of_every_command_has_an_example_that_it_parses() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "redlock", &mut found);
        assert!(found.len() >= 21, "{found:?}");
        for (path, command) in found {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example =
                help.strip_prefix("Example:\n  ").unwrap_or_else(|| panic!("{path} has no example: {help:?}"));
            assert!(example.trim_start_matches("token=$(").starts_with(&path), "{path}: {example}");
            Cli::try_parse_from(arguments(example)).unwrap_or_else(|error| panic!("{example}: {error}"));
        }
    }

    #[test]
    fn the_help_has_each_command_for_users_in_one_group() {
        let tree = Cli::command();
        let help = cli::help::grouped(tree.clone()).render_help().to_string();
        for child in tree.get_subcommands() {
            let begins = format!("  {} ", child.get_name());
            let lines = help.lines().filter(|line| line.starts_with(&begins)).count();
            assert_eq!(lines, usize::from(!child.is_hide_set()), "{begins}: {help}");
        }
        assert!(help.contains("--version"), "{help}");
    }

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }
}
