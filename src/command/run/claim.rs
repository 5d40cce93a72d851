//! A lock by a claim, which the operator grants and renews.

use super::{
    arguments::{LockArgs, Members},
    held::{Held, NotHeld},
    signals::Signals,
};

/// A hold that the operator renews.
#[derive(Debug)]
pub(super) struct ClaimHold;

impl ClaimHold {
    pub(super) async fn release(self) -> anyhow::Result<()> {
        Ok(())
    }
}

pub(super) async fn take(_args: &LockArgs, _members: Option<Members>, _signals: &mut Signals) -> Result<Held, NotHeld> {
    Err(anyhow::anyhow!("not yet").into())
}
