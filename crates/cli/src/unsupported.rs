//! `redlock run` and `redlock agent` on platforms without support: they refuse with the reason.
//!
//! The names are those of `run` and `agent` on Linux, so that the program uses the same code on every platform.

use std::ffi::OsString;

/// Whatever was written, so that the answer is the reason and not a complaint about an argument.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct AnyArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

/// `redlock run`.
pub mod run {
    use std::process::ExitCode;

    use crate::hold::exit;

    pub use super::AnyArguments as RunArgs;

    const WHY: &str = "run needs Linux: only there every process of a command ends with the lock, also when redlock itself is killed. \
         Use `redlock hold` beside your program, or run both in a container";

    /// Refuses.
    pub fn run(_: &RunArgs) -> ExitCode {
        exit::failed(WHY)
    }
}

/// `redlock agent`.
pub mod agent {
    use std::process::ExitCode;

    use crate::hold::exit;

    pub use super::AnyArguments as AgentArgs;

    const WHY: &str = "the agent needs Linux: it is a sidecar for pods, and is tested nowhere else. \
                                  Use `redlock hold`, or run it in a container";

    /// Refuses.
    pub fn run(_: &AgentArgs) -> ExitCode {
        exit::failed(WHY)
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::*;
    use crate::hold::exit::OWN_ERROR;
    use crate::tests::parsed;

    #[test]
    fn run_and_agent_refuse_any_arguments_on_other_platforms() {
        for asked in [&[][..], &["--help"], &["--lock", "shop/a", "--ttl=10s", "--", "sh", "-c", "true"]] {
            let args: AnyArguments = parsed(asked).unwrap();
            assert_eq!(args.arguments.len(), asked.len(), "{args:?}");
            assert_eq!(run::run(&args), ExitCode::from(OWN_ERROR));
            assert_eq!(agent::run(&args), ExitCode::from(OWN_ERROR));
        }
    }
}
