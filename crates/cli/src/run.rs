//! `redlock run`: a command that runs only while a lock is held.
//!
//! There are three processes. `run` holds the lock and uses the network, the `guard` enforces a deadline, and `exec` becomes the command.
//! If any of them is killed or stopped, the command still ends before the lock expires. `run` releases the lock when all processes of the
//! command ended.

mod command_env;
mod exec;
mod guard;
mod guard_handle;
mod guard_protocol;
mod guard_state;
mod limits;
mod outer_locks;
mod outside;
mod process_tree;
mod signal_name;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use command_env::{CommandEnv, Directory};
pub use exec::{ExecArgs, run as become_command};
pub use guard::{GuardArgs, run as guard};
use guard_handle::{GuardHandle, GuardTask};
use guard_protocol::{GuardCommand, GuardEvent};
use limits::Limits;
use outer_locks::{HELD, OuterLocks};
pub use signal_name::SignalName;
pub use terminal::{ForegroundArgs, set_foreground as take_terminal};
use tokio::time::sleep;

use crate::console;
use crate::hold::exit::{self, Outcome};
use crate::hold::{
    End, HeldLock, Location, LockArgs, LockResponse, NotHeld, Signals, Validity, block_on, expected_source, take,
};
use crate::loopback::Place;
use redlock_api::GoDuration;
use redlock_engine::time::{Boottime, Clock, SystemClock};

/// This program, even if its file was replaced.
const SELF: &str = "/proc/self/exe";
/// Longest pause between two readings of the clock, because tokio's clock stops during a suspend.
const TICK: Duration = Duration::from_millis(100);
/// Minimum pause, while a killed guard has not closed its connection yet.
const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// The lock, and the command that needs it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  redlock run --lock shop/reindex --ttl 10s --wait 1m -- ./reindex --all")]
pub struct RunArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// From the signal that asks the command to end to SIGKILL. Default: half of the longest that is possible.
    #[arg(long, value_name = "DURATION")]
    grace: Option<GoDuration>,
    /// The signal that asks the command to end.
    #[arg(long, value_name = "SIGNAL", default_value = "TERM")]
    signal: SignalName,
    /// Exit code when the lock was not acquired, for example 0 in a cron job.
    #[arg(long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    not_acquired_exit_code: u8,
    /// Where a `redlock agent` listens that has the lock: `127.0.0.1:<port>` or `unix:<path>`.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["direct", "members", "members_secret"])]
    agent: Option<Place>,
    /// The command and its arguments, after --.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Takes the lock, runs the command, releases the lock.
pub fn run(args: &RunArgs) -> ExitCode {
    exit::report(block_on(run_async(args)), &args.lock.lock, args.not_acquired_exit_code)
}

async fn run_async(args: &RunArgs) -> Result<Outcome, NotHeld> {
    let mut signals = Signals::new()?;
    // The lock of an agent with `--direct` can have no namespace, and such an agent needs no cluster.
    let is_agents = args.agent.is_some() && args.lock.cluster.namespace.is_none();
    let lock = if is_agents { args.lock.clone() } else { args.lock.resolved().await? };
    let args = &RunArgs { lock, ..args.clone() };
    let lock = args.lock.lock.to_string();
    let around = OuterLocks::of(std::env::var_os(HELD))?;
    let place = match &args.agent {
        Some(agent) => Location::Agent { address: agent.to_string() },
        None => Location::of(&args.lock).await?,
    };
    let outer = around.shared(&place, &lock)?;
    if outer.is_none() && args.agent.is_none() {
        // This comes before `run` takes the lock.
        refuse_impossible_limits(args)?;
    }
    let directory = Directory::new()?;
    let held = match (outer, &args.agent) {
        (Some(socket), _) => outside::take_from_outer_run(socket, lock).await?,
        (None, Some(place)) => outside::take_from_agent(place, &args.lock, &mut signals).await?,
        (None, None) => take(&args.lock, &mut signals).await?,
    };
    let answer = LockResponse::new(held.lock.clone(), held.holder.clone(), held.token);
    let environment = CommandEnv::new(directory, answer, place, around);
    let outcome = run_command(args, environment, &held, &mut signals).await;
    if let Err(error) = held.release().await {
        console::report(format_args!("lock {}: {error:#}", args.lock.lock));
    }
    Ok(outcome?)
}

/// Refuses a `ttl` or a grace that leaves no time to end the command.
fn refuse_impossible_limits(args: &RunArgs) -> anyhow::Result<()> {
    let source = expected_source(&args.lock);
    // With a short `ttl` no grace is possible.
    source.refuse_short_ttl(args.lock.ttl)?;
    Limits::new(args.grace, args.lock.ttl, source)?;
    Ok(())
}

/// Runs the command until all its processes ended.
async fn run_command(
    args: &RunArgs,
    environment: CommandEnv,
    held: &HeldLock,
    signals: &mut Signals,
) -> anyhow::Result<Outcome> {
    let limits = Limits::new(args.grace, args.lock.ttl, held.source)?;
    let task = GuardTask {
        command: args.command.clone(),
        environment: environment.environment(),
        signal: args.signal.0,
        grace: limits.grace,
    };
    let guard = GuardHandle::start(&task).await.context("the guard of the command could not be started")?;
    let now = SystemClock.boottime();
    let max_hold = args.lock.max_hold.map(|most| now + most.get());
    let supervision = Supervision { guard, environment, limits, max_hold, kill: now, why: None, status: None };
    supervision.run(held, signals).await
}

/// The supervision of a running command.
struct Supervision {
    guard: GuardHandle,
    environment: CommandEnv,
    limits: Limits,
    max_hold: Option<Boottime>,
    /// The time at which the guard kills the command.
    kill: Boottime,
    /// Why the command is being ended.
    why: Option<End>,
    status: Option<exit::CommandStatus>,
}

impl Supervision {
    async fn run(mut self, held: &HeldLock, signals: &mut Signals) -> anyhow::Result<Outcome> {
        let mut validity = held.validity.clone();
        validity.mark_changed();
        let mut is_followed = true;
        loop {
            let pause = self.pause();
            tokio::select! {
                biased;
                event = self.guard.next() => match event {
                    Some(GuardEvent::Empty) => {
                        self.guard.await_exit().await;
                        return Outcome::of(self.why, self.status);
                    }
                    Some(GuardEvent::Ending) => self.lose(),
                    // `why` distinguishes a command that `run` ended.
                    Some(GuardEvent::Ended(status)) => self.status = Some(status),
                    Some(GuardEvent::Started(_)) => {}
                    None => {
                        let left = self.kill.since(SystemClock.boottime());
                        self.guard.kill_descendants(left).await;
                        return Outcome::of(self.why, self.status);
                    }
                },
                changed = validity.changed(), if is_followed => {
                    is_followed = changed.is_ok();
                    let current = validity.borrow_and_update().clone();
                    self.apply(current).await;
                }
                signal = signals.next() => self.guard.send(GuardCommand::Forward(signal)).await,
                () = sleep(pause) => self.tick().await,
            }
        }
    }

    /// Applies a new validity of the hold.
    async fn apply(&mut self, validity: Validity) {
        let (ask, kill) = self.limits.deadlines(validity.until);
        if let Some(end) = validity.end {
            self.end(end).await;
        } else if self.why.is_none() && kill > self.kill {
            self.kill = kill;
            self.environment.set_deadline(kill);
            self.guard.send(GuardCommand::Until { ask, kill }).await;
        }
    }

    /// Requests the end of the command. If the command has already exited, its status is kept.
    async fn end(&mut self, why: End) {
        if self.why.is_some() || self.status.is_some() {
            return;
        }
        self.why = Some(why);
        let kill = (SystemClock.boottime() + self.limits.grace).min(self.kill);
        self.guard.send(GuardCommand::End { kill }).await;
        self.kill = kill;
        self.environment.set_deadline(kill);
    }

    /// Time until the next reading of the clock.
    fn pause(&self) -> Duration {
        let takes_over = self.limits.takes_over_at(self.kill).since(SystemClock.boottime());
        takes_over.clamp(SHORTEST_TICK, TICK)
    }

    async fn tick(&mut self) {
        let now = SystemClock.boottime();
        self.guard.reap_orphans();
        if self.max_hold.is_some_and(|end| end <= now) {
            self.end(End::MaxHold).await;
        }
        if self.limits.takes_over_at(self.kill) <= now {
            self.lose();
            self.guard.kill();
        }
    }

    fn lose(&mut self) {
        self.why.get_or_insert_with(|| End::Lost("it was not renewed in time".to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::parsed;

    /// Why a command with this `ttl` and a grace of 2 s is refused.
    fn refused(ttl: &str) -> String {
        let args = parsed(&["--lock", "shop/a", "--ttl", ttl, "--grace", "2s", "--", "true"]).unwrap();
        refuse_impossible_limits(&args).unwrap_err().to_string()
    }

    #[test]
    fn a_short_ttl_is_named_rather_than_its_grace() {
        let text = refused("5s");
        assert!(text.contains("a ttl of 8s or more") && text.contains("--skew"), "{text}");
        assert!(refused("10s").contains("at most 1s"));
    }
}
