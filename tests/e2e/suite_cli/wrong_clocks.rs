//! `redlock run` with claims while the wall clock of the operator or of its own machine is wrong.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use serde_json::json;

use super::{running::claims, support::quorum_with_reader};
use crate::{
    administrator::{Administrator, since_boot},
    bench::Bench,
    operators, pods, poll,
    quorums::Quorum,
    shifted::led_by_shifted,
};

/// The minimum ttl for the default skew of a second, which is eight times the skew.
const TTL: Duration = Duration::from_secs(8);
const MAX_TTL: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(90);
/// The errors of clocks in milliseconds, with their names.
const WRONG: [(&str, i64); 2] = [("ahead", 30_000), ("behind", -30_000)];
/// The node of the replica with the wrong clock.
const NODE: &str = "node1";
/// The exit code of `redlock run` if the lock was lost or never held.
const LOST: i32 = 123;
const REFUSED: i32 = 125;

/// The command ignores SIGTERM, and records when it runs.
const WORK: &str =
    "trap '' TERM; echo token $REDLOCK_TOKEN; while :; do read up rest </proc/uptime; echo beat $up; sleep 0.05; done";

/// A pod in which `redlock run` works under the lock with the pod's name.
struct Run<'a> {
    bench: &'a Bench,
    name: String,
}

impl<'a> Run<'a> {
    /// Starts it.
    ///
    /// `offset` is the error of `redlock`'s wall clock in milliseconds. With `has_secret` it has the members' Secret.
    async fn start(bench: &'a Bench, name: String, offset: i64, has_secret: bool) -> anyhow::Result<Self> {
        let (lock, ttl) = (format!("{}/{name}", bench.namespace), format!("{}s", TTL.as_secs()));
        let secret = if has_secret { "--members-secret /client" } else { "" };
        // The image has a library that shifts the clock of a program.
        let script = format!(
            "echo {offset} >/tmp/clock; export CLOCK_OFFSET_FILE=/tmp/clock LD_PRELOAD=/usr/lib/shifted_clock.so
             exec /redlock/redlock run --lock {lock} --ttl {ttl} --quorum q {secret} -- sh -c \"$WORK\""
        );
        let main = json!({
            "image": bench.cluster.redis_clock_image, "command": ["sh", "-c", script],
            "env": [{"name": "WORK", "value": WORK}],
        });
        let mut pod = pods::with_command(bench, &name, "q-client-look", main).await?;
        pod["spec"]["serviceAccountName"] = json!("app");
        bench.create::<Pod>(pod).await?;
        Ok(Self { bench, name })
    }

    async fn log(&self) -> anyhow::Result<String> {
        // A container that has not started yet has no log.
        let output = self.bench.kubectl_output(&["logs", &self.name, "-c", "main"], "").await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The first and the last record of the work, in milliseconds since boot.
    async fn worked(&self) -> anyhow::Result<Option<(u64, u64)>> {
        let log = self.log().await?;
        // The last line can be incomplete.
        let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let beats: Vec<_> = whole.lines().filter_map(|line| since_boot(line.strip_prefix("beat ")?)).collect();
        Ok(beats.first().copied().zip(beats.last().copied()))
    }

    /// Waits until the work has lasted for longer than two ttls.
    ///
    /// This needs renewals that `redlock run` has observed.
    async fn goes_on(&self) -> anyhow::Result<()> {
        let goes_on = async || {
            ensure!(self.ended().await?.is_none(), "{} has ended: {}", self.name, self.log().await?);
            let worked = self.worked().await?.filter(|(first, last)| last - first > millis(2 * TTL));
            Ok(worked.map(drop))
        };
        poll::until(LONG, &format!("{} works for more than two ttls", self.name), goes_on).await
    }

    async fn ended(&self) -> anyhow::Result<Option<ContainerStateTerminated>> {
        let status = self.bench.api::<Pod>().get(&self.name).await?.status.unwrap_or_default();
        let main = status.container_statuses.unwrap_or_default().into_iter().next();
        Ok(main.and_then(|main| main.state?.terminated))
    }

    async fn ends_with(&self, code: i32) -> anyhow::Result<()> {
        let ended = poll::until(LONG, &format!("{} ends", self.name), || self.ended()).await?;
        ensure!(ended.exit_code == code, "{} ended with {}: {}", self.name, ended.exit_code, self.log().await?);
        Ok(())
    }

    /// Checks that after the last renewal the work ends while a majority of the members still has the key.
    async fn ends_before_the_lock(&self, quorum: &Quorum) -> anyhow::Result<()> {
        let (administrator, key) =
            (Administrator::of(quorum).await?, format!("{}/{}", self.bench.namespace, self.name));
        let kept = Mutex::new(BTreeMap::new());
        let look = async || {
            for member in 0..3 {
                if let Some(until) = administrator.keeps_until(member, &key).await? {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let known = kept.entry(member).or_insert(until);
                    *known = until.max(*known);
                }
            }
            self.ended().await
        };
        let ended = poll::until(LONG, &format!("{} ends", self.name), look).await?;
        ensure!(ended.exit_code == LOST, "{} ended with {}: {}", self.name, ended.exit_code, self.log().await?);
        let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut kept: Vec<u64> = kept.into_values().collect();
        kept.sort_unstable();
        let end = kept.iter().rev().nth(1).with_context(|| format!("{kept:?} is no majority"))?;
        let (_, last) = self.worked().await?.context("it never worked")?;
        ensure!(last <= *end, "{} worked {} ms after a majority had lost the key", self.name, last - end);
        let left = Duration::from_millis(end - last);
        self.bench.figures.add(&format!("redlock run {} without renewals: the lock outlived it by", self.name), left);
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An operator with a wrong clock changes no command's end.
///
/// Commands that use the status, and commands that read the members, continue to work. They end in time when the
/// replica ends.
pub(crate) async fn an_operator_whose_clock_is_wrong_moves_no_end_of_a_command(bench: Bench) -> anyhow::Result<()> {
    let quorum = quorum_with_reader(&bench, MAX_TTL).await?;
    for (how, offset) in WRONG {
        led_by_shifted(&bench, NODE, offset, async |replica| {
            let runs = [("status", false), ("members", true)]
                .map(|(whom, has_secret)| Run::start(&bench, format!("{whom}-{how}"), 0, has_secret));
            let runs = try_join_all(runs).await?;
            try_join_all(runs.iter().map(Run::goes_on)).await?;
            let ended = try_join_all(runs.iter().map(|run| run.ends_before_the_lock(&quorum)));
            try_join(replica.end(), ended).await.map(drop)
        })
        .await?;
    }
    Ok(())
}

pub(crate) async fn a_pod_with_a_wrong_clock_uses_the_members_or_starts_nothing(bench: Bench) -> anyhow::Result<()> {
    let quorum = quorum_with_reader(&bench, MAX_TTL).await?;
    for (how, offset) in WRONG {
        let refused = Run::start(&bench, format!("status-{how}"), offset, false).await?;
        refused.ends_with(REFUSED).await?;
        let text = refused.log().await?;
        ensure!(text.contains("--skew is 1s") && text.contains("--members-secret"), "{text}");
        ensure!(refused.worked().await?.is_none() && claims(&bench).await?.is_empty(), "it has created a claim");
    }
    let runs = WRONG.map(|(how, offset)| Run::start(&bench, format!("members-{how}"), offset, true));
    let runs = try_join_all(runs).await?;
    try_join_all(runs.iter().map(Run::goes_on)).await?;
    let ended = try_join_all(runs.iter().map(|run| run.ends_before_the_lock(&quorum)));
    let ended = try_join(operators::scale(&bench.cluster, 0), ended).await;
    let back = operators::scale(&bench.cluster, operators::REPLICAS).await;
    ended.map(drop).and(back)
}
