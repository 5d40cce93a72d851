//! Other processes take over: newer ones, and all at once.

use std::time::Duration;

use anyhow::ensure;
use futures::future::{join_all, try_join_all};
use kube::ResourceExt;
use redlock_operator::api::{MemberState, RedisQuorum};
use serde_json::json;

use super::support::{LockVersion, OPERATOR_LIMIT, SLACK, led_by, ordered, renewed_from_now, run_pair, suspend, with};
use crate::{
    believers::{check_apart, check_followed, check_no_promise_beyond_ttl, check_tokens},
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, is_held, leader, status},
    operators,
    quorums::{Quorum, is_ready},
    record::Version,
};

const MAX_TTL: Duration = Duration::from_secs(15);
const TTL: Duration = Duration::from_secs(12);

/// Held locks of several kinds, and waiting claims.
struct Scene {
    bench: Bench,
    quorum: Quorum,
    held: Lock,
    waiting: Lock,
    quiet: Lock,
    after_quiet: Lock,
    slot: Lock,
    elected: Lock,
}

impl Scene {
    async fn set(bench: &Bench) -> anyhow::Result<Self> {
        let quorum = Quorum::ready(bench, "q", MAX_TTL).await?;
        run_pair(bench, "app", ["app-0", "app-1"]).await?;
        let quiet = with(claim("quiet", "quiet", Some("q"), TTL), json!({"validity": "Transitions"}));
        let slot = with(claim("slot", "slots", Some("q"), TTL), json!({"slots": 3}));
        let scene = Self {
            bench: bench.clone(),
            quorum,
            held: Lock::create(bench, claim("held", "job", Some("q"), TTL)).await?,
            quiet: Lock::create(bench, quiet).await?,
            slot: Lock::create(bench, slot).await?,
            elected: Lock::create(bench, ordered("app", "app", TTL, Some("q"))).await?,
            waiting: Lock::create(bench, claim("waiting", "job", Some("q"), TTL)).await?,
            after_quiet: Lock::create(bench, claim("after-quiet", "quiet", Some("q"), TTL)).await?,
        };
        for lock in scene.holders() {
            lock.held(SOON).await?;
        }
        for lock in scene.waiters() {
            lock.reason("Queued", SOON).await?;
        }
        Ok(scene)
    }

    fn holders(&self) -> [&Lock; 4] {
        [&self.held, &self.quiet, &self.slot, &self.elected]
    }

    fn waiters(&self) -> [&Lock; 2] {
        [&self.waiting, &self.after_quiet]
    }

    /// Checks that no two holders of a key overlapped, and that tokens rose.
    fn check_apart(&self) -> anyhow::Result<()> {
        let keys =
            [&[&self.held, &self.waiting][..], &[&self.quiet, &self.after_quiet], &[&self.slot], &[&self.elected]];
        for locks in keys {
            check_tokens(&check_apart(locks, &[])?)?;
        }
        self.holders().iter().try_for_each(|lock| check_no_promise_beyond_ttl(lock, TTL))
    }

    /// Checks that all holds continue, and that each lock can be passed on.
    async fn goes_on(&self) -> anyhow::Result<()> {
        for lock in [&self.held, &self.slot, &self.elected] {
            renewed_from_now(lock).await?;
        }
        for lock in self.holders() {
            check_never_lost(&lock.recorder.versions())?;
        }
        for lock in self.waiters() {
            ensure!(!lock.was_held(), "{} was granted while another claim held the lock", lock.name);
        }
        for (lock, next) in [(&self.held, &self.waiting), (&self.quiet, &self.after_quiet)] {
            suspend(lock, true).await?;
            let after = next.held(TTL + SOON).await?;
            let until = status(&lock.reason("Ending", SOON).await?.object).valid_until;
            ensure!(until.is_none_or(|until| after.wall.0 >= until.as_millis()), "granted before {until:?}");
        }
        check_followed(&[&self.held, &self.waiting], &self.waiting.held(SOON).await?, SLACK)?;
        let mark = self.elected.recorder.mark();
        self.bench.kubectl(&["annotate", "dlock", "app", "redlock-operator.io/step-down=the test"]).await?;
        let next = led_by(&self.elected, mark, "app-1", TTL + SOON).await?;
        check_followed(&[&self.elected], &next, SLACK)?;
        self.check_apart()
    }
}

/// An upgrade to another image with other settings and other pods.
pub(crate) async fn an_upgrade_replica_by_replica_splits_no_lock(bench: Bench) -> anyhow::Result<()> {
    let test = async {
        let scene = Scene::set(&bench).await?;
        let leases = operators::watch_leader(&bench.cluster).await?;
        let leader = operators::current(&leases)?;
        bench.cluster.deploy_next().await?;
        operators::all_available(&bench.cluster).await?;
        operators::until_next_term(&leases, &leader).await?;
        scene.goes_on().await
    };
    operators::then_as_before(&bench.cluster, test).await
}

/// All members lose their data, and all replicas lose their state, while the holders continue to work.
pub(crate) async fn a_restart_of_all_members_and_replicas_at_once_splits_no_lock(bench: Bench) -> anyhow::Result<()> {
    operators::all_available(&bench.cluster).await?;
    let scene = Scene::set(&bench).await?;
    let mark = scene.quorum.recorder.mark();
    let (faults, operator) = (&bench.cluster.faults, &bench.cluster.operator_namespace);
    let replicas: Vec<_> = operators::pods(&bench.cluster).await?.iter().map(ResourceExt::name_any).collect();
    let members = ["q-0-0", "q-1-0", "q-2-0"];
    let start = bench.now();
    let killed = replicas.iter().map(|pod| faults.kill_container(operator, pod, "operator"));
    let restarted = members.iter().map(|pod| faults.kill_container(&bench.namespace, pod, "redis"));
    let (killed, restarted) = tokio::join!(join_all(killed), try_join_all(restarted));
    killed.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    restarted?;

    let recorder = &scene.quorum.recorder;
    let fenced = |v: &Version<RedisQuorum>| {
        v.object.status.iter().flat_map(|status| &status.members).any(|member| member.state == MemberState::Fenced)
    };
    recorder.until_after(mark, OPERATOR_LIMIT, "a member is fenced", fenced).await?;
    recorder.until_after(recorder.mark(), MAX_TTL + OPERATOR_LIMIT, "Ready", is_ready).await?;
    for lock in scene.waiters() {
        lock.held(MAX_TTL + OPERATOR_LIMIT).await?;
    }
    bench.figures.add("all members and replicas killed -> next claim Held (maxTTL 15 s)", bench.now().since(start));
    // After the loss a candidate becomes the leader again.
    let again = |v: &LockVersion| is_held(&v.object) && leader(&v.object).is_some() && v.at > start;
    let elected = &scene.elected.recorder;
    elected.until_after(elected.mark() - 1, MAX_TTL + OPERATOR_LIMIT, "led", again).await?;
    renewed_from_now(&scene.elected).await?;
    scene.check_apart()?;
    operators::all_ready(&bench.cluster).await
}
