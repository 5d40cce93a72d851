//! `redlock acquire`: takes a lock for a later step, which gives it back with `redlock release`.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use kube::ResourceExt as _;

use crate::console;
use crate::hold::exit::{self, Outcome};
use crate::hold::{LockArgs, NotHeld, Signals, block_on, take_detached};
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
    exit::report(block_on(acquire(args)), &args.lock.lock, args.not_acquired_exit_code)
}

/// Refuses a lock that nothing renews, or that nothing frees.
fn refuse_endless_hold(args: &LockArgs) -> anyhow::Result<()> {
    if args.direct.direct {
        bail!("nothing renews a lock of --direct after this command has ended: use `redlock run` or `redlock hold`");
    }
    if args.max_hold.is_none() {
        bail!("nothing but --max-hold frees a lock whose later step never comes: set it, for example --max-hold 30m");
    }
    Ok(())
}

async fn acquire(args: &AcquireArgs) -> Result<Outcome, NotHeld> {
    refuse_endless_hold(&args.lock)?;
    let mut signals = Signals::new()?;
    let mut args = args.lock.resolved().await?;
    args.wait = args.wait.or_else(|| (!args.try_once).then_some(LONGEST_WAIT));
    let (release, watched) = take_detached(&args, &mut signals).await?;
    if let Some(signal) = signals.pending_end() {
        release.send(watched).await?;
        return Err(NotHeld::Signal(signal));
    }
    let (token, claim, lock) = (release.token, release.claim.name_any(), &args.lock);
    if let Err(error) = console::print(token) {
        // No later step can release a lock whose token it does not get.
        release.send(watched).await?;
        return Err(anyhow!("the token was not printed, and the lock is released: {error}").into());
    }
    console::report(format_args!(
        "lock {lock} is held (dlock/{claim}). Release it: redlock release {lock} --fencing-token {token}"
    ));
    Ok(Outcome::Done)
}
