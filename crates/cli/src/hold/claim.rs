//! A lock by a claim, which the operator grants and renews.

mod follow;
mod grant;
mod heartbeat;
mod object;
mod pod;
mod status;
mod validity_source;

use std::time::Duration;

use anyhow::{Context as _, bail};
use follow::Follower;
pub(crate) use follow::Watched;
use futures::future::BoxFuture;
use grant::{GrantedClaim, grant};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use object::Purpose;
pub(crate) use pod::own as own_pod;
use serde_json::json;
use status::ClaimState;
pub(crate) use status::{Holding, is_taken};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
pub(crate) use validity_source::{HoldState, UNREAD, ValiditySource, check_wall_clock};

use super::arguments::{LockArgs, Members};
use super::held_lock::{HeldLock, NotHeld, Renewal, Validity};
use super::progress::Progress;
use super::signals::Signals;
use crate::cluster::Problem;
use crate::cluster::objects::LockObject;
use redlock_api::requests::{self, RequestError, request};
use redlock_api::{DistributedLock, RELEASE_ANNOTATION};

/// Time limit for the operator to confirm a release.
const RELEASE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(500);

/// A claim that the operator renews for this process.
///
/// A drop, for example by a panic, ends its tasks, so that the heartbeat stops.
pub(crate) struct ClaimHold {
    release: Release,
    /// Stops the follower, which then returns the watch.
    stop: oneshot::Sender<()>,
    follower: AbortOnDropHandle<Watched>,
    heartbeat: AbortOnDropHandle<()>,
}

/// Takes the lock, and keeps it until this process ends.
pub(super) async fn take(
    args: &LockArgs,
    members: Option<Members>,
    signals: &mut Signals,
    progress: &mut Progress,
) -> Result<HeldLock, NotHeld> {
    let GrantedClaim { client, claim, holding, watched, server_time, heartbeat } =
        grant(args, Purpose::Attended, members.is_none(), signals, progress).await?;
    let release = Release { client, claim, token: holding.token };
    let first = async {
        let mut trust = ValiditySource::new(members, server_time, args.skew.get(), &holding).await?;
        let until = trust.first(&holding, args.ttl.get()).await?;
        Ok::<_, NotHeld>((trust, until))
    };
    let (trust, until) = match signals.unless_ending(first).await {
        Ok(first) => first,
        Err(not_held) => {
            // The caller gets the first error. If this release fails, the lock becomes free after the end of the heartbeat.
            let _ = release.send(watched).await;
            return Err(not_held);
        }
    };
    let (published, validity) = watch::channel(Validity { until, end: None });
    let (stop, stopped) = oneshot::channel();
    let source = trust.source();
    let follower = Follower { watched, trust, holding: holding.clone(), published };
    let follower = AbortOnDropHandle::new(tokio::spawn(follower.run(stopped, args.ttl.get())));
    let renewal = Box::new(ClaimHold { release, stop, follower, heartbeat });
    let Holding { token, identity, .. } = holding;
    Ok(HeldLock { lock: args.lock.to_string(), token, holder: identity, validity, source, renewal })
}

impl Renewal for ClaimHold {
    /// Sends the release, and waits until the operator has carried it out.
    fn release(self: Box<Self>) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(async move {
            // An error means that the follower has ended. It returns the watch all the same.
            let _ = self.stop.send(());
            let result = self.release.send(self.follower.await?).await;
            drop(self.heartbeat);
            result
        })
    }
}

/// The release of one hold.
pub(crate) struct Release {
    client: Client,
    pub(crate) claim: DistributedLock,
    pub(crate) token: i64,
}

impl Release {
    pub(crate) async fn send(self, mut watched: Watched) -> anyhow::Result<()> {
        match timeout(RELEASE, send_release(&self.client, &self.claim, self.token)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.context(LAPSES)),
            Err(_) => bail!("the API server does not answer. {LAPSES}"),
        }
        // The operator accepts the release, and frees the lock after the minimum hold.
        if self.claim.spec.min_hold.is_some() {
            return Ok(());
        }
        let freed = async { while let ClaimState::Held(_) = status::read(watched.next().await.as_ref(), None) {} };
        timeout(RELEASE, freed)
            .await
            .context("the operator has not confirmed the release within 5s; it frees the lock when it comes to it")
    }
}

const LAPSES: &str = "the lock could not be released: it becomes free one ttl after the last heartbeat";

/// Sends the release of a hold.
///
/// It sets the annotation. If the API server refuses that, it deletes the claim, but only one with an identity as free text.
/// It repeats a request without an answer until the caller drops the future.
pub(crate) async fn send_release(client: &Client, claim: &DistributedLock, token: i64) -> anyhow::Result<()> {
    // The answer to a patch can be an object of a newer version.
    let locks: Api<LockObject> = Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let release = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: token.to_string()}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(release));
    loop {
        match request(locks.patch(&claim.name_any(), &params, &patch)).await {
            // Without the claim there is no hold.
            Ok(_) | Err(RequestError::Gone) => return Ok(()),
            Err(RequestError::Unknown(_) | RequestError::Conflict) => sleep(RETRY).await,
            Err(error @ RequestError::Refused(_)) => {
                let is_free = claim.spec.claim.as_ref().is_some_and(|claim| claim.identity.is_some());
                let refused = |error: &RequestError| Problem::of_holder("the API server refuses the release", error);
                if !is_free {
                    return Err(refused(&error).into());
                }
                requests::delete(client, claim).await.map_err(|error| refused(&error))?;
                return Ok(());
            }
        }
    }
}

/// Takes the lock for a later step, which releases it by its token.
///
/// Before the release only `--max-hold` ends the hold. This process needs the returned release only if no later step gets the token.
pub(crate) async fn take_detached(args: &LockArgs, signals: &mut Signals) -> Result<(Release, Watched), NotHeld> {
    let GrantedClaim { client, claim, holding, watched, .. } =
        grant(args, Purpose::Detached, false, signals, &mut Progress::new(&args.lock)).await?;
    Ok((Release { client, claim, token: holding.token }, watched))
}
