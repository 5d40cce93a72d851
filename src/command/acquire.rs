//! `redlock acquire`: takes a lock for a later step, which gives it back with `redlock release`.

use std::process::ExitCode;

use anyhow::bail;

use super::exit::{self, Outcome};
use super::holding::{LockArgs, Signals, block_on, take_detached};

/// The lock that is taken.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  token=$(redlock acquire --lock shop/deploy --max-hold 30m)")]
pub struct AcquireArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// Exit code when the lock was not acquired.
    #[arg(long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    not_acquired_exit_code: u8,
}

/// Takes the lock and prints its token.
pub fn run(args: &AcquireArgs) -> ExitCode {
    let outcome = block_on(acquire(args)).unwrap_or_else(|error| Some(Outcome::Failed(error)));
    outcome.map_or(ExitCode::SUCCESS, |outcome| outcome.told(&args.lock.lock.to_string(), args.not_acquired_exit_code))
}

async fn acquire(args: &AcquireArgs) -> anyhow::Result<Option<Outcome>> {
    if args.lock.direct.direct {
        bail!("nothing renews a lock of --direct after this command has ended: use `redlock run` or `redlock hold`");
    }
    if args.lock.max_hold.is_none() {
        bail!("nothing but --max-hold frees a lock whose later step never comes: set it, for example --max-hold 30m");
    }
    let mut signals = Signals::new()?;
    let (claim, token) = match take_detached(&args.lock, &mut signals).await {
        Ok(taken) => taken,
        Err(not_held) => return Ok(Some(not_held.into())),
    };
    println!("{token}");
    let lock = &args.lock.lock;
    eprintln!("redlock: lock {lock} is held (dlock/{claim}). Release it: redlock release {lock} --token {token}");
    Ok(None)
}
