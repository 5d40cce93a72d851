//! `redlock release`: the release of a hold, named by its token.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap_complete::engine::ArgValueCompleter;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use tokio::time::timeout;

use crate::cluster::target::{Named, Target};
use crate::cluster::{Cluster, ClusterArgs};
use crate::hold::exit::OWN_ERROR;
use crate::hold::{block_on, send_release};
use crate::{completion, console};
use redlock_api::DistributedLock;
use redlock_api::requests::request;

/// Time limit for the operator to carry out the release.
const RELEASE: std::time::Duration = std::time::Duration::from_secs(10);

/// The hold that ends.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  redlock release shop/deploy --fencing-token \"$token\"")]
pub struct ReleaseArgs {
    /// The lock: `<namespace>/<key>`, or `dlock/<name>` for one object.
    #[arg(value_name = "LOCK", add = ArgValueCompleter::new(completion::locks))]
    lock: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The fencing token of the hold. Another hold is left alone.
    #[arg(long, value_name = "TOKEN")]
    fencing_token: i64,
}

/// Releases the hold, and waits until it has ended.
pub fn run(args: &ReleaseArgs) -> ExitCode {
    match block_on(release(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::report(format_args!("{error:#}"));
            ExitCode::from(OWN_ERROR)
        }
    }
}

async fn release(args: &ReleaseArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let target = Target::parse(&args.lock, args.cluster.namespace.as_deref(), &cluster.namespace)?;
    let client = cluster.client;
    let locks: Api<DistributedLock> = Api::namespaced(client.clone(), &target.namespace);
    let all = request(locks.list(&ListParams::default())).await?;
    let Some(lock) = all.items.into_iter().find(|lock| has_hold(lock, &target.lock, args.fencing_token)) else {
        bail!("lock {target} is not held with token {}: it was released, or it was lost", args.fencing_token);
    };
    send_release(&client, &lock, args.fencing_token).await?;
    let ended =
        |lock: Option<&DistributedLock>| lock.is_none_or(|lock| !has_hold(lock, &target.lock, args.fencing_token));
    let name = lock.name_any();
    timeout(RELEASE, await_condition(locks, &name, ended)).await.with_context(|| {
        format!("dlock {}/{name} is not released yet: with a minHold the operator waits for its end", target.namespace)
    })??;
    console::report(format_args!("lock {target} is released"));
    Ok(())
}

/// Whether a lock is held with this token now.
fn has_hold(lock: &DistributedLock, named: &Named, token: i64) -> bool {
    let status = lock.status.as_ref();
    let has_token = status.is_some_and(|status| status.holder.is_some() && status.fencing_token == Some(token));
    let is_named = match named {
        Named::Key(key) => lock.key() == *key,
        Named::Object(name) => lock.name_any() == *name,
    };
    has_token && is_named
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
        let (key, name) = (|key: &str| Named::Key(key.to_owned()), |name: &str| Named::Object(name.to_owned()));
        assert!(has_hold(&lock, &key("deploy"), 7) && has_hold(&lock, &name("deploy-x"), 7));
        assert!(!has_hold(&lock, &key("deploy"), 8) && !has_hold(&lock, &key("other"), 7));
        assert!(!has_hold(&lock, &name("deploy"), 7));
        let mut free = lock;
        free.status.as_mut().unwrap().holder = None;
        assert!(!has_hold(&free, &key("deploy"), 7));
    }
}
