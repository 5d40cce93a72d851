//! The leader killed after each single write to Redis and to the API server.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::ListParams};
use redlock_operator::api::{DistributedLock, leader_label};
use serde_json::json;

use super::support::{LockVersion, election, finished, led_by, with};
use crate::{
    bench::Bench,
    crash::{
        gate::SUBJECT,
        world::{self, SHORT, World},
    },
    locks::{Lock, claim, status, token},
    record::Recorder,
};

/// A ttl that is far longer than [`CONVERGES`].
///
/// The next leader must recognise the values of a dead leader, and must not wait until they expire.
const LONG: Duration = Duration::from_secs(25);
/// Everything is healthy again within this time after the next leader begins.
const CONVERGES: Duration = Duration::from_secs(8);
/// The time without a leader after every other crash.
///
/// The published validity expires, and the keys do not.
const LEADERLESS: Duration = Duration::from_millis(2500);

/// The maximum number of writes of one action.
const POINTS: usize = 64;

/// An action of a leader with several writes.
trait Scenario: Sized {
    /// Prepares the state before the action.
    async fn prepare(world: &World) -> anyhow::Result<Self>;
    /// Makes the leader write.
    async fn act(&self, world: &World) -> anyhow::Result<()>;
    /// Checks the final state, whichever leader completes the action.
    async fn end(&self, world: &World) -> anyhow::Result<()>;
    fn locks(&self) -> Vec<&Lock>;
}

async fn at_every_write<S: Scenario>(bench: Bench) -> anyhow::Result<()> {
    world::within(&bench, async |world| {
        for writes in 0..POINTS {
            let scene = S::prepare(world).await?;
            let (victim, gate) = world.victim().await?;
            gate.arm(writes);
            scene.act(world).await?;
            let finished = tokio::select! {
                () = gate.until_cut() => false,
                ended = scene.end(world) => ended.map(|()| true)?,
            };
            drop(victim);
            let all = gate.writes();
            let point = format!("killed after {} writes: {}", all.len(), all.join(", "));
            if !finished && writes % 2 == 1 {
                // There is no leader during this time.
                tokio::time::sleep(LEADERLESS).await;
            }
            world.survivor_leads();
            let outcome = async {
                tokio::time::timeout(CONVERGES, scene.end(world)).await.context("it does not converge")??;
                world.keys_agree(&scene.locks()).await?;
                check_history(&scene.locks())?;
                world.check_steady()
            };
            outcome.await.with_context(|| point.clone())?;
            clean(world, &scene.locks()).await.with_context(|| format!("{point}; and at its deletion"))?;
            if finished {
                println!("         killed after each of {} writes", all.len());
                return Ok(());
            }
        }
        anyhow::bail!("the action did not end within {POINTS} writes")
    })
    .await
}

/// Deletes everything.
///
/// Checks that no key is left.
async fn clean(world: &World, locks: &[&Lock]) -> anyhow::Result<()> {
    // The pods end first, so that the operator does not wait for their holders.
    world.end_pods().await?;
    for lock in locks.iter().filter(|lock| lock.recorder.last().is_ok_and(|last| !last.gone)) {
        lock.remove().await?;
    }
    world.delete_pods().await?;
    world.keys_agree(&[]).await
}

/// One hold, as its lock published it.
#[derive(Clone, Debug, Default)]
struct Published {
    acquired_at: i64,
    valid_until: i64,
    ended_at: Option<i64>,
}

/// Checks that no published hold was lost, that tokens rose, and that no two holds overlapped.
fn check_history(locks: &[&Lock]) -> anyhow::Result<()> {
    let mut holds: BTreeMap<i64, Published> = BTreeMap::new();
    for version in locks.iter().flat_map(|lock| lock.recorder.versions()) {
        let status = status(&version.object);
        if let (Some(token), Some(at), Some(until)) = (status.fencing_token, status.acquired_at, status.valid_until) {
            let hold = holds.entry(token).or_default();
            hold.acquired_at = at.as_millis();
            hold.valid_until = hold.valid_until.max(until.as_millis());
        }
        for past in status.history {
            ensure!(past.reason != "Expired", "a held lock was lost: {past:?}");
            holds.entry(past.fencing_token.context("a hold without a token")?).or_default().ended_at =
                Some(past.to.as_millis());
        }
    }
    for (before, after) in holds.values().zip(holds.values().skip(1)) {
        let end = before.ended_at.map_or(before.valid_until, |ended| ended.min(before.valid_until));
        ensure!(after.acquired_at >= end, "two holders: {before:?}, then under a greater token {after:?}");
    }
    Ok(())
}

/// A watch on a lock that does not exist yet.
async fn future_lock(world: &World) -> anyhow::Result<Lock> {
    let recorder = world.bench.record::<DistributedLock>(SUBJECT).await?;
    Ok(Lock { bench: world.bench.clone(), name: SUBJECT.into(), recorder })
}

/// Waits until this pod leads, and only this pod has the label.
async fn leads(world: &World, lock: &Lock, pod: &str) -> anyhow::Result<()> {
    led_by(lock, 0, pod, CONVERGES).await?;
    let selector = format!("{}=true", leader_label(SUBJECT));
    let labelled = Recorder::<Pod>::labelled(world.bench.api(), &selector).await?;
    labelled.until(CONVERGES, &format!("{pod} has the label"), |v| !v.gone && v.object.name_any() == pod).await?;
    let all = world.bench.api::<Pod>().list(&ListParams::default().labels(&selector)).await?;
    ensure!(all.items.len() == 1, "{} pods have the label", all.items.len());
    Ok(())
}

/// The first grant of an election.
struct Grant(Lock);

impl Scenario for Grant {
    async fn prepare(world: &World) -> anyhow::Result<Self> {
        world.pod("subject-0").await?;
        Ok(Self(future_lock(world).await?))
    }

    async fn act(&self, world: &World) -> anyhow::Result<()> {
        let elected = with(election(SUBJECT, SUBJECT, LONG), json!({"quorumRef": {"name": "q"}}));
        world.bench.create::<DistributedLock>(elected).await.map(drop)
    }

    async fn end(&self, world: &World) -> anyhow::Result<()> {
        leads(world, &self.0, "subject-0").await
    }

    fn locks(&self) -> Vec<&Lock> {
        vec![&self.0]
    }
}

pub(crate) async fn a_leader_killed_at_any_write_of_a_grant_leaves_no_orphan(bench: Bench) -> anyhow::Result<()> {
    at_every_write::<Grant>(bench).await
}

/// Two claims on one key, the first of them held.
struct Queue {
    first: Lock,
    next: Lock,
}

impl Queue {
    async fn of(world: &World, ttl: Duration) -> anyhow::Result<Self> {
        let first = Lock::take(&world.bench, claim("subject-a", SUBJECT, Some("q"), ttl)).await?;
        let next = Lock::queue(&world.bench, claim("subject-b", SUBJECT, Some("q"), ttl)).await?;
        Ok(Self { first, next })
    }

    async fn next_holds(&self) -> anyhow::Result<()> {
        let next = token(&self.next.held(CONVERGES).await?.object)?;
        let last = self.first.recorder.versions().iter().filter_map(|v| status(&v.object).fencing_token).max();
        ensure!(Some(next) > last, "the next token {next} is not greater than {last:?}");
        Ok(())
    }
}

/// A holder's release, and the grant of the next claim.
struct Release(Queue);

impl Scenario for Release {
    async fn prepare(world: &World) -> anyhow::Result<Self> {
        Queue::of(world, LONG).await.map(Self)
    }

    async fn act(&self, _world: &World) -> anyhow::Result<()> {
        self.0.first.delete().await
    }

    async fn end(&self, _world: &World) -> anyhow::Result<()> {
        self.0.first.recorder.until_gone(CONVERGES).await?;
        self.0.next_holds().await
    }

    fn locks(&self) -> Vec<&Lock> {
        vec![&self.0.first, &self.0.next]
    }
}

pub(crate) async fn a_leader_killed_at_any_write_of_a_release_leaves_no_orphan(bench: Bench) -> anyhow::Result<()> {
    at_every_write::<Release>(bench).await
}

/// An administrator's break: the leader seals the key, awaits the end, and grants the next claim.
///
/// If it is forced, the leader deletes the key immediately.
struct Break<const FORCED: bool>(Queue);

impl<const FORCED: bool> Scenario for Break<FORCED> {
    async fn prepare(world: &World) -> anyhow::Result<Self> {
        Queue::of(world, if FORCED { LONG } else { SHORT }).await.map(Self)
    }

    async fn act(&self, world: &World) -> anyhow::Result<()> {
        let how = if FORCED { "break-force" } else { "break" };
        world.bench.break_lock(&self.0.first.name, how, "the test").await
    }

    async fn end(&self, _world: &World) -> anyhow::Result<()> {
        finished(&self.0.first, "Broken", CONVERGES).await?;
        self.0.next_holds().await
    }

    fn locks(&self) -> Vec<&Lock> {
        vec![&self.0.first, &self.0.next]
    }
}

pub(crate) async fn a_leader_killed_at_any_write_of_a_break_splits_no_lock(bench: Bench) -> anyhow::Result<()> {
    at_every_write::<Break<false>>(bench).await
}

pub(crate) async fn a_leader_killed_in_a_forced_break_leaves_no_orphan(bench: Bench) -> anyhow::Result<()> {
    at_every_write::<Break<true>>(bench).await
}

/// The elected pod steps down on request.
///
/// The operator seals the key, awaits the end, moves the label, and removes the request.
struct StepDown(Lock);

impl Scenario for StepDown {
    async fn prepare(world: &World) -> anyhow::Result<Self> {
        world.pod("subject-0").await?;
        world.pod("subject-1").await?;
        let elected = with(election(SUBJECT, SUBJECT, SHORT), json!({"quorumRef": {"name": "q"}}));
        let lock = Lock::create(&world.bench, elected).await?;
        leads(world, &lock, "subject-0").await?;
        Ok(Self(lock))
    }

    async fn act(&self, world: &World) -> anyhow::Result<()> {
        let step_down = "redlock-operator.io/step-down=the test";
        world.bench.kubectl(&["annotate", "dlock", SUBJECT, step_down]).await.map(drop)
    }

    async fn end(&self, world: &World) -> anyhow::Result<()> {
        leads(world, &self.0, "subject-1").await?;
        let asked = |v: &LockVersion| v.object.annotations().keys().any(|name| name.contains("step-down"));
        ensure!(!asked(&self.0.recorder.last()?), "the request is still there");
        Ok(())
    }

    fn locks(&self) -> Vec<&Lock> {
        vec![&self.0]
    }
}

pub(crate) async fn a_leader_killed_at_any_write_of_a_step_down_splits_no_lock(bench: Bench) -> anyhow::Result<()> {
    at_every_write::<StepDown>(bench).await
}
