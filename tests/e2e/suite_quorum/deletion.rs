//! A quorum goes, and one of the same name follows.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::RedisQuorum;

use super::helpers::held_lock;
use crate::{
    bench::Bench,
    locks::{Lock, SOON, claim, status, token},
    quorums::Quorum,
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) async fn a_quorum_made_again_under_its_name_gives_larger_tokens(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = held_lock(&bench, TTL).await?;
    let before = token(&lock.recorder.last()?.object)?;
    bench.delete::<RedisQuorum>("q").await?;
    quorum.recorder.until_gone(LIMIT).await?;
    let versions = lock.recorder.versions();
    let ended = versions.iter().filter_map(|v| status(&v.object).valid_until).max().context("no validUntil")?;
    Quorum::ready(&bench, "q", MAX_TTL).await?;
    let next = Lock::create(&bench, claim("next", "job", Some("q"), TTL)).await?;
    let held = next.held(SOON).await?.object;
    ensure!(token(&held)? > before, "token {} after {before}", token(&held)?);
    let acquired = status(&held).acquired_at.context("no acquiredAt")?;
    ensure!(acquired >= ended, "acquired at {acquired}, but the hold before was valid until {ended}");
    next.remove().await?;
    lock.remove().await
}
