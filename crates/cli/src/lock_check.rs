//! `redlock lock-check` for `helm test`: it takes a lock as a user would, by creating a claim, and releases it.
//!
//! It stops no process, and no other lock has its key. It deletes its claim after success and failure. If this process is killed before that,
//! the operator deletes the claim by `maxHold` and `ttlAfterFinished`.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use redlock_api::conditions::{LockCondition, is_true};
use redlock_api::requests::without_secrets;
use redlock_api::{DistributedLock, QuorumRef};
use redlock_engine::time::{Clock as _, SystemClock};
use serde_json::json;

use crate::hold::Watched;

/// Maximum time from the deletion of the claim to its end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the lock is taken.
#[derive(Clone, Debug, clap::Args)]
pub struct LockCheckArgs {
    /// Namespace of the lock.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// The RedisQuorum, as name or namespace/name. Left out: the default quorum.
    #[arg(long)]
    pub quorum: Option<String>,
    /// How many seconds the lock can take to be held.
    #[arg(long, default_value_t = 60)]
    pub timeout_seconds: u64,
}

/// Takes a lock and releases it.
///
/// # Errors
/// If the lock is not held in time, or is not released in time. The error has the message of its condition.
pub async fn run(args: LockCheckArgs) -> anyhow::Result<()> {
    let client = Client::try_default().await.map_err(without_secrets).context("failed to find the API server")?;
    let locks: Api<DistributedLock> = Api::namespaced(client, &args.namespace);
    let name = format!("lock-check-{:08x}", rand::random::<u32>());
    let begun = SystemClock.boottime();
    let (claim, params) = (claim(&name, args.quorum.as_deref())?, PostParams::default());
    let creation = locks.create(&params, &claim);
    tokio::time::timeout(REQUEST_TIMEOUT, creation)
        .await
        .context("the API server did not answer in time")?
        .context("the lock could not be created")?;
    let held = until_held(&locks, &name, Duration::from_secs(args.timeout_seconds)).await;
    let took = SystemClock.boottime().since(begun);
    let released = release(&locks, &name).await;
    let (holder, token, votes) = held?;
    let (namespace, millis) = (&args.namespace, took.as_millis());
    let mut out = std::io::stdout();
    writeln!(out, "lock {namespace}/{name}: held by {holder} with token {token} and {votes} votes after {millis} ms")?;
    released?;
    writeln!(out, "released, and deleted")?;
    Ok(())
}

/// The claim, with a key that no other lock has.
fn claim(name: &str, quorum: Option<&str>) -> anyhow::Result<DistributedLock> {
    let mut lock = json!({
        "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": name},
        "spec": {"key": name, "ttl": "2s", "maxHold": "1m", "waitTimeout": "2m", "ttlAfterFinished": "1m",
            "claim": {"identity": "redlock lock-check"}},
    });
    if let Some(quorum) = quorum {
        lock["spec"]["quorumRef"] = json!(QuorumRef::from(quorum));
    }
    Ok(serde_json::from_value(lock)?)
}

/// Waits until the lock is held, and returns its holder, token and votes.
async fn until_held(
    locks: &Api<DistributedLock>,
    name: &str,
    limit: Duration,
) -> anyhow::Result<(String, i64, String)> {
    let (mut last, mut watched) = (None, Watched::new(locks, name));
    let watching = async {
        loop {
            let Some(lock) = watched.event().await? else { continue };
            let status = lock.status.clone().unwrap_or_default();
            if is_true(&status.conditions, LockCondition::Held)
                && let (Some(holder), Some(token)) = (&status.holder, status.fencing_token)
            {
                return Ok((holder.identity.clone(), token, status.votes.clone().unwrap_or_default()));
            }
            last = Some(lock);
        }
    };
    match tokio::time::timeout(limit, watching).await {
        Ok(result) => result,
        Err(_elapsed) => {
            let reported = last.as_ref().map_or_else(|| "nothing".to_owned(), conditions_text);
            bail!("the lock was not held within {} s. The operator reports: {reported}", limit.as_secs())
        }
    }
}

/// The messages of the conditions of a lock.
fn conditions_text(lock: &DistributedLock) -> String {
    let reasons = [LockCondition::Accepted, LockCondition::Held].into_iter().filter_map(|type_| {
        let condition = lock.condition(type_)?;
        Some(format!("{}={} ({}): {}", condition.type_, condition.status, condition.reason, condition.message))
    });
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    if reasons.is_empty() { "nothing yet. Does it run?".to_owned() } else { reasons }
}

async fn release(locks: &Api<DistributedLock>, name: &str) -> anyhow::Result<()> {
    let params = DeleteParams::default();
    let deletion = locks.delete(name, &params);
    let deleted =
        tokio::time::timeout(REQUEST_TIMEOUT, deletion).await.context("the API server did not answer in time")?;
    let uid = deleted?.left().and_then(|lock| lock.metadata.uid).unwrap_or_default();
    let gone = await_condition(locks.clone(), name, kube::runtime::conditions::is_deleted(&uid));
    tokio::time::timeout(RELEASE_TIMEOUT, gone).await.context("the lock was not released in time")??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_has_its_own_key_and_ends_without_help() {
        let of = |quorum: Option<&str>| claim("lock-check-1", quorum).unwrap().spec;
        assert_eq!(of(None).key.as_deref(), Some("lock-check-1"));
        assert!(
            of(None).max_hold.is_some() && of(None).ttl_after_finished.is_some() && of(None).wait_timeout.is_some()
        );
        assert_eq!(of(None).quorum_ref, None);
        let (near, far) = (of(Some("q")).quorum_ref.unwrap(), of(Some("redis/q")).quorum_ref.unwrap());
        assert_eq!((near.name.as_str(), near.namespace), ("q", None));
        assert_eq!((far.name.as_str(), far.namespace.as_deref()), ("q", Some("redis")));
    }
}
