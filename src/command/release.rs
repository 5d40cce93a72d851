//! `redlock release`: the holder's word, by the token of its hold.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;

use super::exit::OWN_ERROR;
use super::holding::{LockName, block_on, say_release};
use crate::api::DistributedLock;
use crate::runtime::requests::request;

/// For the operator to carry it out.
const RELEASE: std::time::Duration = std::time::Duration::from_secs(10);

/// The hold that ends.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example: redlock release shop/deploy --token \"$token\"")]
pub struct ReleaseArgs {
    /// The lock: `<namespace>/<key>`.
    #[arg(value_name = "LOCK")]
    lock: LockName,
    /// The fencing token of the hold. Another hold is left alone.
    #[arg(long, value_name = "TOKEN")]
    token: i64,
}

/// Releases the hold, and waits until it has ended.
pub fn run(args: &ReleaseArgs) -> ExitCode {
    match block_on(release(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redlock: {error:#}");
            ExitCode::from(OWN_ERROR)
        }
    }
}

async fn release(args: &ReleaseArgs) -> anyhow::Result<()> {
    let (namespace, key) = args.lock.in_cluster()?;
    let client = Client::try_default().await.context("no API server was found: set KUBECONFIG, or run in a pod")?;
    let locks: Api<DistributedLock> = Api::namespaced(client.clone(), namespace);
    let all = request(locks.list(&ListParams::default())).await?;
    let Some(lock) = all.items.into_iter().find(|lock| has_hold(lock, key, args.token)) else {
        bail!("lock {} is not held with token {}: it was released, or it was lost", args.lock, args.token);
    };
    say_release(&client, &lock, args.token).await?;
    let ended = |lock: Option<&DistributedLock>| lock.is_none_or(|lock| !has_hold(lock, key, args.token));
    let name = lock.name_any();
    timeout(RELEASE, await_condition(locks, &name, ended)).await.with_context(|| {
        format!("dlock {namespace}/{name} is not released yet: with a minHold the operator waits for its end")
    })??;
    eprintln!("redlock: lock {} is released", args.lock);
    Ok(())
}

/// Whether a lock is held with this token now.
fn has_hold(lock: &DistributedLock, key: &str, token: i64) -> bool {
    let status = lock.status.as_ref();
    let has_token = status.is_some_and(|status| status.holder.is_some() && status.fencing_token == Some(token));
    has_token && lock.key() == key
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_hold_with_the_token_is_released() {
        let lock: DistributedLock = serde_json::from_value(json!({
            "apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock", "metadata": {"name": "deploy-x"},
            "spec": {"key": "deploy", "claim": {"identity": "ci"}},
            "status": {"holder": {"identity": "ci"}, "fencingToken": 7},
        }))
        .unwrap();
        assert!(has_hold(&lock, "deploy", 7));
        assert!(!has_hold(&lock, "deploy", 8) && !has_hold(&lock, "other", 7));
        let mut free = lock;
        free.status.as_mut().unwrap().holder = None;
        assert!(!has_hold(&free, "deploy", 7));
    }
}
