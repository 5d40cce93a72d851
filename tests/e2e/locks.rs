//! Locks of tests, and their statuses.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{Api, ResourceExt as _, api::PostParams};
use redlock_operator::api::{
    DistributedLock, DistributedLockStatus,
    conditions::{find_condition, is_true},
};
use serde_json::{Value, json};
use tokio::time::timeout;

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

/// Adds fields to the spec of a manifest.
pub(crate) fn with(mut manifest: Value, more: Value) -> Value {
    if let (Some(spec), Value::Object(more)) = (manifest["spec"].as_object_mut(), more) {
        spec.extend(more);
    }
    manifest
}

/// Takes this number of locks with keys of their own, which are named `held-0` and so on.
pub(crate) async fn hold(
    bench: &Bench,
    count: usize,
    quorum: Option<&str>,
    ttl: Duration,
) -> anyhow::Result<Vec<Lock>> {
    let mut locks = Vec::new();
    for number in 0..count {
        let name = format!("held-{number}");
        locks.push(Lock::create(bench, claim(&name, &name, quorum, ttl)).await?);
    }
    for lock in &locks {
        lock.held(SOON).await?;
    }
    Ok(locks)
}

/// Maximum number of concurrent requests to the API server.
pub(crate) const AT_ONCE: usize = 16;

/// Creates this number of locks with the label `e2e=many`, as fast as the API server permits.
pub(crate) async fn create_all(
    locks: &Api<DistributedLock>,
    count: usize,
    lock: impl Fn(usize) -> Value,
) -> anyhow::Result<()> {
    futures::stream::iter(0..count)
        .map(|number| {
            let mut lock = lock(number);
            lock["metadata"]["labels"] = json!({"e2e": "many"});
            async move { anyhow::Ok(locks.create(&PostParams::default(), &serde_json::from_value(lock)?).await?) }
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| std::future::ready(Ok(())))
        .await
}

/// Deletes the locks with these names, as fast as the API server permits.
pub(crate) async fn delete_all(bench: &Bench, names: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let deletion = |name: String| async move { bench.delete::<DistributedLock>(&name).await };
    futures::stream::iter(names).map(deletion).buffer_unordered(AT_ONCE).try_collect().await
}

/// Watches the locks of [`create_all`] in a namespace.
pub(crate) async fn watch_all(bench: &Bench) -> anyhow::Result<Recorder<DistributedLock>> {
    Recorder::labelled(bench.api(), "e2e=many").await
}

/// Waits until the condition was true of each of this number of locks.
pub(crate) async fn until_all(
    recorder: &Recorder<DistributedLock>,
    count: usize,
    within: Duration,
    what: &str,
    is_so: impl Fn(&Version<DistributedLock>) -> bool,
) -> anyhow::Result<()> {
    let (mut next, mut so) = (0, BTreeSet::new());
    let waited = timeout(within, async {
        while so.len() < count {
            let fresh = recorder.after(next).await;
            next += fresh.len();
            so.extend(fresh.iter().filter(|version| is_so(version)).map(|version| version.object.name_any()));
        }
    });
    waited.await.with_context(|| format!("{} of {count} locks are {what} after {within:?}", so.len()))
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

    /// Creates it, and waits until it is held.
    pub(crate) async fn take(bench: &Bench, manifest: Value) -> anyhow::Result<Self> {
        let lock = Self::create(bench, manifest).await?;
        lock.held(SOON).await?;
        Ok(lock)
    }

    /// Creates it, and waits until it is in the queue.
    pub(crate) async fn queue(bench: &Bench, manifest: Value) -> anyhow::Result<Self> {
        let lock = Self::create(bench, manifest).await?;
        lock.reason("Queued", SOON).await?;
        Ok(lock)
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

    /// Waits until all three members have voted, in the last version or a later one.
    pub(crate) async fn fully_voted(&self, limit: Duration) -> anyhow::Result<Version<DistributedLock>> {
        let has_all = |version: &Version<DistributedLock>| status(&version.object).votes.as_deref() == Some("3/3");
        self.recorder.until_after(self.recorder.mark().saturating_sub(1), limit, "votes 3/3", has_all).await
    }

    /// Waits for a renewal after the current time.
    pub(crate) async fn renewed(&self, limit: Duration) -> anyhow::Result<Version<DistributedLock>> {
        let (mark, now) = (self.recorder.mark(), self.bench.wall().0);
        let is_later = |version: &Version<DistributedLock>| {
            status(&version.object).renewed_at.is_some_and(|at| at.as_millis() > now)
        };
        self.recorder.until_after(mark, limit, "renewed", is_later).await
    }

    /// Whether it was held, or named a holder, in any version up to now.
    pub(crate) fn was_held(&self) -> bool {
        let names_holder = |lock: &DistributedLock| is_held(lock) || status(lock).holder.is_some();
        self.recorder.versions().iter().any(|version| names_holder(&version.object))
    }

    /// Deletes it, and does not wait for its end.
    pub(crate) async fn delete(&self) -> anyhow::Result<()> {
        self.bench.delete::<DistributedLock>(&self.name).await
    }

    /// Deletes it and waits until it is gone.
    pub(crate) async fn remove(&self) -> anyhow::Result<()> {
        self.delete().await?;
        self.recorder.until_gone(SOON).await.map(drop)
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
