//! A quorum goes, and one of the same name follows.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use redlock_operator::api::RedisQuorum;

use super::helpers::held_lock;
use crate::{
    bench::Bench,
    locks::{SOON, is_held, status, token},
    quorums::{Quorum, manifest},
};

const MAX_TTL: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) async fn a_quorum_made_again_under_its_name_gives_larger_tokens(bench: Bench) -> anyhow::Result<()> {
    let quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = held_lock(&bench, TTL).await?;
    let before = token(&lock.recorder.last()?.object)?;
    bench.delete::<RedisQuorum>("q").await?;
    let gone = quorum.recorder.until_gone(LIMIT).await?;
    // The lock was still held when its quorum went: it must have run out, not been cut short or handed on.
    bench.create::<RedisQuorum>(manifest(&bench, "q", MAX_TTL)).await?;
    let again = |v: &crate::record::Version<_>| {
        v.at > gone.at && is_held(&v.object) && token(&v.object).is_ok_and(|now| now != before)
    };
    let next = lock.recorder.until(LIMIT, "held again, of the new quorum", again).await?;
    ensure!(token(&next.object)? > before, "{} after {before}", token(&next.object)?);
    let versions = lock.recorder.versions();
    let old = versions.iter().filter(|v| token(&v.object).is_ok_and(|now| now == before));
    let ended = old.filter_map(|v| status(&v.object).valid_until).max().context("no validUntil")?;
    let acquired = status(&next.object).acquired_at.context("no acquiredAt")?;
    ensure!(acquired >= ended, "acquired at {acquired}, but the hold before was valid until {ended}");
    lock.remove().await?;
    // Its namespace's deletion ends too, which `close` sees to.
    tokio::time::sleep(SOON / 10).await;
    Ok(())
}
