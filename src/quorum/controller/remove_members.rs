//! Removes members that are in no list any more. The leader closes them permanently and then removes their objects. The
//! status drops a member when all its promises have expired and no process of it can vote.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;

use super::decommission::{Ending, end_member, end_of};
use super::error::{RESYNC, Result};
use super::observe::Observer;
use super::owned::remove;
use crate::time::Monotonic;

/// The pause between two checks of a member that leaves.
///
/// The controller does not watch the deletion of its objects.
const RECHECK_AFTER: Duration = Duration::from_secs(2);

/// Takes all possible steps for the members that leave, and returns when to check them again.
///
/// They wait for no other member, and no other member waits for them.
pub(super) async fn settle(observer: &Observer<'_>) -> Result<Monotonic> {
    let (sources, plan, cluster) = (&observer.sources, observer.plan, observer.cluster);
    let (closed, mut wake) = (&observer.memory.closed, cluster.after(RESYNC));
    for link in sources.session.links().iter() {
        let name = link.name().as_str();
        if plan.member(name).is_some() {
            // The member was added again before it had left. A later removal starts with its own time.
            closed.lock().remove(&end_of(name));
            continue;
        }
        let standing = end_member(sources, link, Some(plan), false).await?;
        // Only its record names these objects, so they are removed before the record. An external master has none.
        let removed = link.plan().is_external()
            || (remove::<StatefulSet>(sources, plan, name).await? & remove::<Service>(sources, plan, name).await?);
        match standing {
            Ending::Ended if removed => {
                let forget = |member: &crate::api::MemberStatus| member.name != name;
                let quorum = sources.session.quorum();
                cluster.replace(&quorum, |status| status.members.retain(forget)).await?;
                closed.lock().remove(&end_of(name));
                tracing::info!(quorum = %sources.session.reference(), member = name, "the member left the quorum");
            }
            Ending::Ended => wake = wake.min(cluster.after(RECHECK_AFTER)),
            Ending::Unconfirmed(until, _) | Ending::Waits(until, _) => {
                wake = wake.min(until.unwrap_or_else(|| cluster.after(RECHECK_AFTER)));
            }
        }
    }
    Ok(wake)
}
