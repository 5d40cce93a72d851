//! Locks of tests, and their statuses.

use std::time::Duration;

use anyhow::Context as _;
use redlock_operator::api::{
    DistributedLock, DistributedLockStatus,
    conditions::{find_condition, is_true},
};
use serde_json::{Value, json};

use crate::{
    bench::Bench,
    record::{Recorder, Version},
};

/// The timeout for changes that normally take a fraction of a second.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// A claim on `key` by a holder with the name of the object.
///
/// Without a quorum it uses the default one.
pub(crate) fn claim(name: &str, key: &str, quorum: Option<&str>, ttl: Duration) -> Value {
    let mut lock = json!({
        "metadata": {"name": name},
        "spec": {"key": key, "ttl": format!("{}ms", ttl.as_millis()), "claim": {"identity": name}},
    });
    if let Some(quorum) = quorum {
        lock["spec"]["quorumRef"] = json!({"name": quorum});
    }
    lock
}

/// A lock of a test, watched since before it was created.
pub(crate) struct Lock {
    pub(crate) bench: Bench,
    pub(crate) name: String,
    pub(crate) recorder: Recorder<DistributedLock>,
}

impl Lock {
    /// Creates it.
    pub(crate) async fn create(bench: &Bench, manifest: Value) -> anyhow::Result<Self> {
        let name = manifest["metadata"]["name"].as_str().context("a lock without a name")?.to_owned();
        let recorder = bench.record::<DistributedLock>(&name).await?;
        bench.create::<DistributedLock>(manifest).await?;
        Ok(Self { bench: bench.clone(), name, recorder })
    }

    /// The first version in which it is held.
    pub(crate) async fn held(&self, limit: Duration) -> anyhow::Result<Version<DistributedLock>> {
        self.recorder.until(limit, "Held", |version| is_held(&version.object)).await
    }

    /// The first version in which the condition Held has this reason.
    pub(crate) async fn reason(&self, reason: &str, limit: Duration) -> anyhow::Result<Version<DistributedLock>> {
        let what = format!("Held with reason {reason}");
        self.recorder.until(limit, &what, |version| reason_of(&version.object, "Held") == Some(reason)).await
    }

    /// Deletes it, and does not wait for its end.
    pub(crate) async fn delete(&self) -> anyhow::Result<()> {
        self.bench.delete::<DistributedLock>(&self.name).await
    }

    /// Deletes it and waits until it is gone.
    pub(crate) async fn remove(&self) -> anyhow::Result<()> {
        self.delete().await?;
        self.recorder.until_gone(SOON).await?;
        Ok(())
    }
}

/// The status of a lock.
pub(crate) fn status(lock: &DistributedLock) -> DistributedLockStatus {
    lock.status.clone().unwrap_or_default()
}

/// Whether the condition Held is true.
pub(crate) fn is_held(lock: &DistributedLock) -> bool {
    lock.status.as_ref().is_some_and(|status| is_true(&status.conditions, "Held"))
}

/// The pod that leads.
pub(crate) fn leader(lock: &DistributedLock) -> Option<String> {
    status(lock).holder?.pod_name
}

/// The reason of a condition.
pub(crate) fn reason_of<'a>(lock: &'a DistributedLock, condition: &'static str) -> Option<&'a str> {
    find_condition(&lock.status.as_ref()?.conditions, condition).map(|condition| condition.reason.as_str())
}

/// The message of a condition.
pub(crate) fn message_of<'a>(lock: &'a DistributedLock, condition: &'static str) -> &'a str {
    let conditions = lock.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    find_condition(conditions, condition).map(|condition| condition.message.as_str()).unwrap_or_default()
}

/// The fencing token.
pub(crate) fn token(lock: &DistributedLock) -> anyhow::Result<i64> {
    status(lock).fencing_token.context("the status has no fencing token")
}
