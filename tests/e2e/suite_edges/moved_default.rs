//! The default quorum changes while locks without a quorum are held.

use std::time::Duration;

use anyhow::ensure;
use redlock_operator::api::DEFAULT_QUORUM_ANNOTATION;

use super::support::{LockVersion, SLACK, renewed_from_now, restart_operator, suspend};
use crate::{
    believers::check_followed,
    bench::Bench,
    history::check_never_lost,
    locks::{Lock, SOON, claim, status},
    operators, poll,
    quorums::Quorum,
};

const MAX_TTL: Duration = Duration::from_secs(20);
/// A ttl that is longer than the operator's downtime.
const TTL: Duration = Duration::from_secs(18);
/// The chart's default quorum.
const INSTALLED: &str = "main";

fn quorum_of(version: &LockVersion) -> Option<String> {
    status(&version.object).holder?.quorum.map(|quorum| quorum.name)
}

pub(crate) async fn a_moved_default_and_a_restarted_operator_split_no_lock(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    // An annotation of a user on a quorum does not make it the default.
    bench.kubectl(&["annotate", "rq", "q", &format!("{DEFAULT_QUORUM_ANNOTATION}=true")]).await?;
    let before = operators::then_as_before(&bench.cluster, while_moved(&bench)).await?;
    // The first default is the older quorum, whose counters are lower.
    let after = token_on(&bench, INSTALLED).await?;
    ensure!(after > before, "the token fell from {before} to {after}");
    Ok(())
}

/// Moves the default to the quorum `q` while a lock is held, and returns the token of a lock on it.
async fn while_moved(bench: &Bench) -> anyhow::Result<i64> {
    let first = Lock::create(bench, claim("first", "job", None, TTL)).await?;
    let held = first.held(SOON).await?;
    ensure!(quorum_of(&held).as_deref() == Some(INSTALLED), "{:?}", held.object.status);
    let next = Lock::queue(bench, claim("next", "job", None, TTL)).await?;

    let namespace = format!("defaultQuorum.namespace={}", bench.namespace);
    bench.cluster.deploy_with(&[&namespace, "defaultQuorum.name=q"]).await?;
    restart_operator(bench).await?;
    renewed_from_now(&first).await?;
    check_never_lost(&first.recorder.versions())?;
    ensure!(!next.was_held(), "granted on the new default while another claim held the lock");
    ensure!(quorum_of(&first.recorder.last()?).as_deref() == Some(INSTALLED), "the held lock was moved");

    // The earlier default is in force until its last hold ends. The operator seals that hold there, and awaits its end.
    suspend(&first, true).await?;
    let after = next.held(TTL + SOON).await?;
    check_followed(&[&first, &next], &after, SLACK)?;
    next.remove().await?;
    first.remove().await?;
    token_on(bench, "q").await
}

/// Takes a lock when this default quorum is in force, and returns its token.
async fn token_on(bench: &Bench, quorum: &str) -> anyhow::Result<i64> {
    let granted = async || {
        let other = Lock::create(bench, claim("other", "other", None, TTL)).await?;
        let granted = other.held(SOON).await?;
        other.remove().await?;
        Ok(status(&granted.object).fencing_token.filter(|_| quorum_of(&granted).as_deref() == Some(quorum)))
    };
    poll::until(SOON * 3, "the default is in force", granted).await
}
