//! A leader that acts on old lists of locks.
//!
//! Watches lag, and a replica that has just started can get an old list.

use std::time::Duration;

use anyhow::Context as _;
use redlock_operator::api::DistributedLock;
use serde_json::json;

use super::support::{election, with};
use crate::{
    bench::Bench,
    crash::{
        gate::{Gate, SUBJECT},
        replica::Replica,
        world::{self, World},
    },
    history::check_never_lost,
    locks::{Lock, SOON, claim, status},
    poll,
};

/// With this ttl nothing expires during the test, so only a mistake removes a key.
const LONG: Duration = Duration::from_secs(25);
/// The time for which the leader's state is stale.
const STALE: Duration = Duration::from_secs(3);
const LOCKS: &str = "/distributedlocks";

/// Makes a replica with a stale list of locks the leader, and checks that it changes no key.
///
/// Its gate has held events back. After their delivery the replica must renew the lock.
async fn leads_on_old_lists(world: &World, replica: Replica, gate: &Gate, held: &Lock) -> anyhow::Result<()> {
    let nonce = status(&held.recorder.last()?.object).holder.and_then(|holder| holder.nonce);
    world.hand_over_to(&replica).await;
    poll::stays(STALE, "the key of the lock that is held is on all members", async || {
        let mut untouched = nonce.is_some();
        for server in &world.servers {
            let value = server.get(&world.key()).await?;
            untouched &= value.zip(nonce.as_ref()).is_some_and(|(value, nonce)| value.starts_with(nonce.as_str()));
        }
        Ok(untouched)
    })
    .await?;
    gate.deliver_events();
    held.renewed(LONG).await.context("the leader has caught up")?;
    check_never_lost(&held.recorder.versions())?;
    world.keys_agree(&[held]).await?;
    drop(replica);
    world.survivor_leads();
    world.check_steady()
}

/// In the leader's list the lock is free and has a candidate.
///
/// The value on the members looks like that of a dead leader.
pub(crate) async fn a_leader_that_missed_a_grant_does_not_undo_it(bench: Bench) -> anyhow::Result<()> {
    world::within(&bench, async |world| {
        let elected = with(election(SUBJECT, SUBJECT, LONG), json!({"quorumRef": {"name": "q"}}));
        let lock = Lock::create(&world.bench, elected).await?;
        lock.reason("NoCandidate", SOON).await?;
        let (replica, gate) = world.standby().await?;
        gate.hold_back(LOCKS);
        world.pod("subject-0").await?;
        lock.held(SOON).await?;
        leads_on_old_lists(world, replica, &gate, &lock).await
    })
    .await
}

/// In the leader's list the first claim holds the lock, and the next one waits.
pub(crate) async fn a_leader_that_missed_a_release_keeps_the_next_hold(bench: Bench) -> anyhow::Result<()> {
    world::within(&bench, async |world| {
        let _first = Lock::take(&world.bench, claim("subject-a", SUBJECT, Some("q"), LONG)).await?;
        let next = Lock::queue(&world.bench, claim("subject-b", SUBJECT, Some("q"), LONG)).await?;
        let (replica, gate) = world.standby().await?;
        gate.hold_back(LOCKS);
        world.bench.delete::<DistributedLock>("subject-a").await?;
        next.held(SOON).await?;
        leads_on_old_lists(world, replica, &gate, &next).await
    })
    .await
}
