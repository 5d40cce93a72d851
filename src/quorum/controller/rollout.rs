//! Rolling updates carried out: what [`crate::quorum::model::rollout`] decides, one step in each reconciliation.

use std::sync::Arc;
use std::time::Duration;

use super::certificates::{self, Tls};
use super::decide;
use super::error::{Error, RESYNC};
use super::fencing::{close_users, publish_fenced_event, write};
use super::memory::Applied;
use super::observe::Observer;
use crate::api::RedisQuorum;
use crate::fence::{FenceStep, Reason};
use crate::quorum::model::progress::Until;
use crate::quorum::model::rollout::RolloutStep;
use crate::quorum::session::{ActError, MemberLink};
use crate::time::Monotonic;

/// How often a waiting update checks the locks.
/// The controller gets no notification of their renewals.
const LOCKS_PERIOD: Duration = Duration::from_secs(1);

/// Gives members their desired pods and certificates, and returns when to check again.
pub(super) async fn update(observer: &Observer<'_>, tls: &Tls, applied: &Applied) -> Result<Monotonic, Error> {
    let pause = if tls.obstacle().is_none() { roll(observer).await? } else { None };
    let rolled = observer.cluster.after(pause.unwrap_or(RESYNC));
    // The config Secret must contain the trusted authorities before any member serves a certificate of theirs.
    Ok(if applied.config_kept { rolled.min(certificates::reload(observer, tls).await) } else { rolled })
}

/// Takes one step of an update, if there is one, and returns the pause before the next one.
async fn roll(observer: &Observer<'_>) -> Result<Option<Duration>, Error> {
    let cluster = observer.cluster;
    let step = decide::rollout(&observer.observe());
    let name = match &step {
        RolloutStep::Wait { until: Until::LocksComplete { .. }, .. } => return Ok(Some(LOCKS_PERIOD)),
        RolloutStep::CloseAndReplace(name) | RolloutStep::Replace(name) => name,
        _ => return Ok(None),
    };
    // This reads the API server, because a leader that was frozen must not act on an old state.
    let observed = observer.observe_at(cluster.read().await?);
    let is_still = observed.is_of_plan() && decide::rollout(&observed) == step;
    let Some((link, _)) = observed.link(name) else { return Ok(Some(LOCKS_PERIOD)) };
    if !is_still {
        return Ok(Some(LOCKS_PERIOD));
    }
    if matches!(step, RolloutStep::CloseAndReplace(_)) {
        match close_for_update(observer, link, observed.quorum.clone()).await {
            Ok(true) => {}
            Ok(false) => return Ok(Some(LOCKS_PERIOD)),
            // The record shows it as closed, so it is replaced next, and its successor waits for its death.
            Err(Error::Member(error)) => {
                tracing::info!(member = %name, %error, "not closed before its update");
                return Ok(Some(LOCKS_PERIOD));
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(pod) = observed.pod(name)
        && cluster.delete(pod).await?
    {
        tracing::info!(quorum = %observer.sources.session.reference(), member = %name, "deleted the pod, so that its next one has the newer template");
    }
    Ok(None)
}

/// Closes an admitted member before its pod is replaced. As in the fence, the record comes first.
///
/// Returns false if the fence needs another step for it.
async fn close_for_update(
    observer: &Observer<'_>,
    link: &Arc<MemberLink>,
    quorum: Arc<RedisQuorum>,
) -> Result<bool, Error> {
    let snapshot = observer.sources.observe(link, quorum).await?;
    if snapshot.step() != FenceStep::Nothing {
        return Ok(false);
    }
    if snapshot.process.is_none() {
        return Err(ActError::OtherProcess.into());
    }
    // The time alone does not bring it back. Its successor gets a time.
    let step = FenceStep::WriteFenced { reason: Reason::Updating, rejoin_at: None, close: true };
    write(observer, &snapshot, step).await?;
    publish_fenced_event(observer, &snapshot, Reason::Updating, None).await;
    close_users(observer, &snapshot).await?;
    Ok(true)
}
