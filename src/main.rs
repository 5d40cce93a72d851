//! The `redlock` command.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use redlock_operator::{
    api,
    command::{self, UserCommand},
    operator::{
        self,
        args::OperatorArgs,
        lock_check::{self, LockCheckArgs},
        uninstall::{self, UninstallArgs},
    },
};

// With the C library's allocator the leader keeps half as much again of what thousands of locks took for a moment.
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
    Operator(Box<OperatorArgs>),
    /// Refuse while locks are held, else stop the operator and clear its finalizers (the chart runs it before an uninstall).
    UninstallCheck(UninstallArgs),
    /// Take a lock, see it held, and give it back (the chart's `helm test`).
    LockCheck(LockCheckArgs),
    /// Print the CustomResourceDefinitions as YAML.
    Crds,
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::User(user) => return Ok(command::execute(user, Cli::command())),
        Command::Operator(args) => block_on(operator::run(*args)),
        Command::UninstallCheck(args) => block_on(uninstall::run(args)),
        Command::LockCheck(args) => block_on(lock_check::run(args)),
        Command::Crds => print_crds(),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn print_crds() -> anyhow::Result<()> {
    for crd in api::crds() {
        println!("---\n{}", serde_yaml::to_string(&crd)?.trim_end());
    }
    Ok(())
}

fn block_on(future: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}
