//! `redlock run` and `redlock agent` on platforms without support: they refuse with the reason.
//!
//! The names are those of `run` and `agent` on Linux, so that the program uses the same code on every platform.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::console;
use crate::hold::exit::OWN_ERROR;

/// Whatever was written, so that the answer is the reason and not a complaint about an argument.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct AnyArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

fn refuse(why: &str) -> ExitCode {
    console::report(why);
    ExitCode::from(OWN_ERROR)
}

/// `redlock run`.
pub mod run {
    use super::{ExitCode, refuse};

    pub use super::AnyArguments as RunArgs;

    const WHY: &str = "run needs Linux: only there every process of a command ends with the lock, also when redlock itself is killed. \
         Use `redlock hold` beside your program, or run both in a container";

    /// Refuses.
    pub fn run(_: &RunArgs) -> ExitCode {
        refuse(WHY)
    }
}

/// `redlock agent`.
pub mod agent {
    use super::{ExitCode, refuse};

    pub use super::AnyArguments as AgentArgs;

    const WHY: &str = "the agent needs Linux: it is a sidecar for pods, and is tested nowhere else. \
                                  Use `redlock hold`, or run it in a container";

    /// Refuses.
    pub fn run(_: &AgentArgs) -> ExitCode {
        refuse(WHY)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    enum Cli {
        Run(Box<run::RunArgs>),
    }

    #[test]
    fn whatever_is_asked_of_it_the_answer_is_the_reason() {
        for asked in [
            &["test", "run"][..],
            &["test", "run", "--help"],
            &["test", "run", "--lock", "shop/a", "--ttl=10s", "--", "sh", "-c", "true"],
        ] {
            let Cli::Run(args) = Cli::try_parse_from(asked).unwrap();
            assert_eq!(args.arguments.len(), asked.len() - 2, "{args:?}");
            assert_eq!(run::run(&args), ExitCode::from(OWN_ERROR));
            assert_eq!(agent::run(&args), ExitCode::from(OWN_ERROR));
        }
    }
}
