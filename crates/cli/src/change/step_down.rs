//! `redlock step-down`: requests that a holder passes its lock on.

use super::annotation::{AnnotatedHold, annotate, held};
use crate::output::Printer;
use crate::show::status::LockArgs;
use redlock_api::STEP_DOWN_ANNOTATION;

/// Arguments of `redlock step-down`.
#[derive(Debug, clap::Args)]
pub struct StepDownArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// Why. The history of the lock and an Event show it, with your name.
    #[arg(long, default_value = "redlock step-down")]
    reason: String,
}

/// Asks a holder to pass its lock on.
///
/// # Errors
/// If the lock is not held, or the API server refuses.
pub async fn run(args: StepDownArgs) -> anyhow::Result<()> {
    let (cluster, lock) = held(&args.lock).await?;
    annotate(&cluster, &lock, STEP_DOWN_ANNOTATION, &args.reason).await?;
    let then = format!("the hold of {:?} is no longer renewed, and runs out within {}.", lock.who(), lock.spec.ttl);
    Printer::new(args.lock.output).show(&AnnotatedHold { lock, act: "step-down", then })
}
