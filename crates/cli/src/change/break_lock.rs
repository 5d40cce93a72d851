//! `redlock break`: takes a lock from its holder.

use std::io::{self, IsTerminal as _};

use super::annotation::{AnnotatedHold, annotate, held};
use crate::cluster::Problem;
use crate::cluster::objects::LockObject;
use crate::console;
use crate::output::Printer;
use crate::show::status::LockArgs;
use redlock_api::{BREAK_ANNOTATION, BREAK_FORCE_ANNOTATION};

/// Arguments of `redlock break`.
#[derive(Debug, clap::Args)]
pub struct BreakArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// Why. The history of the lock and Events show it, with your name.
    #[arg(long, required = true)]
    reason: String,
    /// Delete the key at once. The holder can still work, so this gives up exclusion.
    #[arg(long)]
    force: bool,
    /// Do not ask whether --force is meant.
    #[arg(long, requires = "force")]
    yes: bool,
}

/// Takes a lock from its holder.
///
/// # Errors
/// If the lock is not held, the user does not confirm `--force`, or the API server refuses the request.
pub async fn run(args: BreakArgs) -> anyhow::Result<()> {
    if args.reason.trim().is_empty() {
        return Err(Problem::new("--reason is empty", "Say why: the history of the lock shows it.").into());
    }
    let (cluster, lock) = held(&args.lock).await?;
    if args.force && !args.yes {
        confirm(&lock)?;
    }
    let annotation = if args.force { BREAK_FORCE_ANNOTATION } else { BREAK_ANNOTATION };
    annotate(&cluster, &lock, annotation, &args.reason).await?;
    let (who, ttl) = (lock.who(), lock.spec.ttl);
    let then = match args.force {
        true => format!("the key is deleted at once, and {who:?} can still work. Make sure that it has stopped."),
        false => format!(
            "{who:?} loses the lock: the hold runs out within {ttl}. Make sure that {who:?} has stopped by then."
        ),
    };
    let act = if args.force { "break-force" } else { "break" };
    Printer::new(args.lock.output).show(&AnnotatedHold { lock, act, then })
}

fn confirm(lock: &LockObject) -> Result<(), Problem> {
    let stop = |what: &str| Problem::new(what, "Use --force --yes if you are sure that the holder has stopped.");
    if !io::stdin().is_terminal() {
        return Err(stop("--force gives up exclusion, and there is no terminal to ask at"));
    }
    let (holder, lock) = (lock.who(), lock.lock());
    console::write_error(&format!(
        "{holder:?} can still work, and another holder would get {lock} at once. Break it? [y/N] "
    ));
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    match (read, answer.trim()) {
        (Ok(_), "y" | "Y" | "yes") => Ok(()),
        _ => Err(stop("nothing was broken")),
    }
}
