//! Polls of things that cannot be watched: Redis, logs, commands.
//!
//! Kubernetes objects have a [`Recorder`](crate::record::Recorder).

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::{sleep, timeout};

const PERIOD: Duration = Duration::from_millis(50);

/// Polls until there is an answer, and returns it.
pub(crate) async fn until<T, F: Future<Output = anyhow::Result<Option<T>>>>(
    limit: Duration,
    what: &str,
    ask: impl Fn() -> F,
) -> anyhow::Result<T> {
    let answered = async {
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            sleep(PERIOD).await;
        }
    };
    timeout(limit, answered).await.with_context(|| format!("not within {limit:?}: {what}"))?
}

/// Checks for this time that the condition stays true.
pub(crate) async fn stays<F: Future<Output = anyhow::Result<bool>>>(
    lasts: Duration,
    what: &str,
    is_so: impl Fn() -> F,
) -> anyhow::Result<()> {
    let asked = async {
        loop {
            ensure!(is_so().await?, "no longer: {what}");
            sleep(PERIOD).await;
        }
    };
    timeout(lasts, asked).await.unwrap_or(Ok(()))?;
    // Check once more at the end.
    ensure!(is_so().await?, "no longer: {what}");
    Ok(())
}
