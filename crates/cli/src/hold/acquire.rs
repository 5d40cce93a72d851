//! `redlock acquire`: takes a lock for a later step, which gives it back with `redlock release`.

use std::process::ExitCode;

use anyhow::bail;

use crate::console;
use crate::hold::exit::{self, Outcome};
use crate::hold::{LockArgs, Signals, block_on, take_detached};
use redlock_api::GoDuration;

/// Maximum wait without `--wait`.
///
/// A claim of this command has no heartbeat, so the operator cannot detect the death of a waiting process.
const LONGEST_WAIT: GoDuration = GoDuration::from_secs(600);

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
    block_on(acquire(args)).unwrap_or_else(Outcome::Failed).report(&args.lock.lock, args.not_acquired_exit_code)
}

async fn acquire(args: &AcquireArgs) -> anyhow::Result<Outcome> {
    if args.lock.direct.direct {
        bail!("nothing renews a lock of --direct after this command has ended: use `redlock run` or `redlock hold`");
    }
    if args.lock.max_hold.is_none() {
        bail!("nothing but --max-hold frees a lock whose later step never comes: set it, for example --max-hold 30m");
    }
    let mut signals = Signals::new()?;
    let args = &AcquireArgs { lock: args.lock.resolved().await?, ..args.clone() };
    let bounded = LockArgs {
        wait: args.lock.wait.or_else(|| (!args.lock.try_once).then_some(LONGEST_WAIT)),
        ..args.lock.clone()
    };
    let taken = match take_detached(&bounded, &mut signals).await {
        Ok(taken) => taken,
        Err(not_held) => return Ok(not_held.into()),
    };
    if let Some(signal) = signals.pending_end() {
        taken.release().await?;
        return Ok(Outcome::Signal(signal));
    }
    let (token, claim, lock) = (taken.token, taken.claim.clone(), &args.lock.lock);
    if let Err(error) = console::print(token) {
        // No later step can release a lock whose token it does not get.
        taken.release().await?;
        bail!("the token was not printed, and the lock is released: {error}");
    }
    console::report(format_args!(
        "lock {lock} is held (dlock/{claim}). Release it: redlock release {lock} --fencing-token {token}"
    ));
    Ok(Outcome::Done)
}
