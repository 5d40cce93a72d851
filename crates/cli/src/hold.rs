//! A lock that this process holds: by a claim, which an operator grants and renews, or straight from the members.
//!
//! `redlock run`, `hold` and `acquire` and the agent use it.

pub mod acquire;
mod arguments;
mod claim;
mod direct;
pub(super) mod exit;
mod held_lock;
pub mod hold_command;
mod identity;
mod lock_response;
mod mounted_secret;
mod progress;
mod signals;

use std::io;

use crate::cluster;
use anyhow::{Context as _, bail};
use arguments::NEEDS_DIRECT;
pub use arguments::{DirectArgs, LockArgs, LockName};
pub(super) use arguments::{ENTRY_PREFIX, Members, Wait};
pub(super) use claim::{
    HoldState, Holding, UNREAD, ValiditySource, Watched, check_wall_clock, is_taken, own_pod, send_release,
    take_detached,
};
pub(super) use held_lock::{End, HeldLock, LONGEST_SLEEP, NotHeld, Renewal, Source, Validity, reserve};
pub(super) use identity::{of_process, whoami};
pub(super) use lock_response::{LockResponse, millis};
pub(super) use progress::Progress;
use serde::{Deserialize, Serialize};
pub(super) use signals::Signals;

/// The source of locks: claims or members.
pub(super) enum LockSource {
    /// Claims. If there is a way to the members, they give the remaining validity of a hold.
    Claims { members: Option<Members> },
    /// The members. One client takes all locks.
    Direct(direct::Direct),
}

impl LockSource {
    /// # Errors
    /// If options are missing, or exclude each other.
    pub(super) async fn new(args: &LockArgs) -> anyhow::Result<Self> {
        expected_source(args).refuse_short_ttl(args.ttl)?;
        let members = args.direct.members(environment());
        if !args.direct.direct {
            refuse_urls(members.as_ref())?;
            return Ok(Self::Claims { members });
        }
        args.refuse_queue()?;
        let members = members.context(
            "--direct needs the members: --members URL,URL,URL, or the Secret of a client by --members-secret DIRECTORY",
        )?;
        Ok(Self::Direct(direct::Direct::connect(args, &members).await?))
    }

    /// Waits until the releases have reached the members.
    pub(super) async fn close(&self) {
        if let Self::Direct(direct) = self {
            direct.close().await;
        }
    }

    /// Takes the lock from the operator or from the members.
    pub(super) async fn take(
        &self,
        args: &LockArgs,
        signals: &mut Signals,
        progress: &mut Progress,
    ) -> Result<HeldLock, NotHeld> {
        match self {
            Self::Claims { members } => claim::take(args, members.clone(), signals, progress).await,
            Self::Direct(direct) => direct::take(direct, args, signals, progress).await,
        }
    }
}

/// Refuses URLs of members for a claim or an election, which need the Secret of a client.
///
/// # Errors
/// If the members are URLs.
pub(super) fn refuse_urls(members: Option<&Members>) -> anyhow::Result<()> {
    if matches!(members, Some(Members::Urls(_))) {
        bail!(NEEDS_DIRECT);
    }
    Ok(())
}

/// Takes one lock, for a process that takes no other.
pub(super) async fn take(args: &LockArgs, signals: &mut Signals) -> Result<HeldLock, NotHeld> {
    let source = LockSource::new(args).await?;
    let taken = source.take(args, signals, &mut Progress::new(&args.lock)).await;
    if taken.is_err() {
        source.close().await;
    }
    taken
}

/// The source of the remaining validity.
pub(super) fn expected_source(args: &LockArgs) -> Source {
    let has_members = args.direct.direct || args.direct.members(environment()).is_some();
    if has_members { Source::Members } else { Source::Status { skew: args.skew.get() } }
}

/// The place of a lock. Locks with the same name at different places do not exclude each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Location {
    /// A claim in a cluster.
    Cluster { server: String, quorum: Option<String> },
    /// The members themselves, without Kubernetes.
    Members { addresses: String },
    /// The agent that listens at this address.
    Agent { address: String },
}

impl Location {
    pub(super) async fn of(args: &LockArgs) -> anyhow::Result<Self> {
        if args.direct.direct {
            let members = args.direct.members(environment());
            let addresses = members.map(|members| direct::addresses(&members)).transpose()?;
            return Ok(Self::Members { addresses: addresses.unwrap_or_default() });
        }
        let server = cluster::settings(&args.cluster).await?.cluster_url.to_string();
        Ok(Self::Cluster { server, quorum: args.quorum.clone() })
    }

    /// Whether both are the same place. `None` if that is not certain.
    pub(super) fn is(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            _ if self == other => Some(true),
            (Self::Members { .. }, Self::Members { .. }) => Some(false),
            (Self::Cluster { server: one, .. }, Self::Cluster { server: two, .. }) if one != two => Some(false),
            (Self::Cluster { quorum: Some(_), .. }, Self::Cluster { quorum: Some(_), .. }) => Some(false),
            _ => None,
        }
    }
}

/// The environment variables, without those that are not UTF-8, which cannot describe members.
pub(super) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Runs a future on this thread.
///
/// A thread that exists until the end of the process must start the guard of a command.
pub(super) fn block_on<T, E: From<io::Error>>(future: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // This does not wait for a DNS lookup that still runs.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason why a source of locks is refused.
    async fn refused(options: &[&str]) -> String {
        let args = arguments::tests::parsed(&[&["--lock", "a/b"], options].concat());
        let Err(error) = LockSource::new(&args).await else { panic!("refused") };
        error.to_string()
    }

    #[tokio::test]
    async fn no_lock_is_taken_with_a_ttl_that_the_skew_uses_up() {
        let error = refused(&["--ttl", "5s"]).await;
        assert!(error.contains("a ttl of 8s or more"), "{error}");
    }

    #[tokio::test]
    async fn no_claim_is_created_with_urls_of_the_members() {
        let error = refused(&["--members", "redis://a"]).await;
        assert!(error.contains("REDLOCK_MEMBERS") && error.contains("--members-secret"), "{error}");
    }
}
