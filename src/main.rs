//! The `redlock` command.

use clap::{Parser, Subcommand};
use redlock_operator::{
    api,
    operator::{self, args::OperatorArgs},
};

/// Distributed locks and leader election for Kubernetes, through Redlock.
#[derive(Debug, Parser)]
#[command(name = "redlock", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator.
    Operator(Box<OperatorArgs>),
    /// Print the CustomResourceDefinitions as YAML.
    Crds,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Operator(args) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(operator::run(*args))
        }
        Command::Crds => {
            for crd in api::crds() {
                println!("---\n{}", serde_yaml::to_string(&crd)?.trim_end());
            }
            Ok(())
        }
    }
}
