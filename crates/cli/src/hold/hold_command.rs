//! `redlock hold`: has a lock until it is stopped.

use std::process::ExitCode;

use crate::console;
use crate::hold::exit::{self, Outcome};
use crate::hold::{End, LONGEST_SLEEP, LockArgs, NotHeld, Signals, block_on, take};
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// The lock that is held.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  redlock hold --lock shop/maintenance --max-hold 1h")]
pub struct HoldArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// Exit code when the lock was not acquired.
    #[arg(long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    not_acquired_exit_code: u8,
}

/// Takes the lock, prints its token, and releases it after a signal.
pub fn run(args: &HoldArgs) -> ExitCode {
    exit::report(block_on(hold(args)), &args.lock.lock, args.not_acquired_exit_code)
}

/// Holds the lock until a signal, and releases it.
async fn hold(args: &HoldArgs) -> Result<Outcome, NotHeld> {
    let mut signals = Signals::new()?;
    let args = &HoldArgs { lock: args.lock.resolved().await?, ..args.clone() };
    let mut held = take(&args.lock, &mut signals).await?;
    if let Err(error) = console::print(held.token) {
        // Without its token, a reader cannot use the lock.
        held.release().await?;
        return Err(anyhow::Error::new(error).context("the token was not printed, and the lock is released").into());
    }
    console::report(format_args!(
        "lock {} is held by {} with token {} until this is stopped",
        held.lock, held.holder, held.token
    ));
    let ends_at = args.lock.max_hold.map(|most| SystemClock.boottime() + most.get());
    let ended = tokio::select! {
        biased;
        end = held.lost() => Some(end),
        _ = signals.ending() => None,
        () = sleep_until(ends_at) => Some(End::MaxHold),
    };
    let released = held.release().await;
    match ended {
        Some(end) => Ok(Outcome::Ended { end, has_command: false }),
        None => released.map(|()| Outcome::Done).map_err(NotHeld::Failed),
    }
}

/// Sleeps until this time, or without an end. A suspend of the machine counts.
async fn sleep_until(end: Option<Boottime>) {
    let Some(end) = end else { return std::future::pending().await };
    loop {
        let left = end.since(SystemClock.boottime());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// During a suspend tokio's clock and the boot clock differ, as in this test.
    #[tokio::test(start_paused = true)]
    async fn the_longest_hold_is_measured_by_the_boot_clock() {
        let end = SystemClock.boottime() + Duration::from_millis(30);
        sleep_until(Some(end)).await;
        assert!(SystemClock.boottime() >= end);
    }
}
