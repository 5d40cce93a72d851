//! `redlock release`: the release of a hold, named by its token.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap_complete::engine::ArgValueCompleter;
use kube::ResourceExt;
use kube::runtime::wait::await_condition;
use tokio::time::timeout;

use crate::cluster::objects::LockObject;
use crate::cluster::target::Target;
use crate::cluster::{Cluster, ClusterArgs};
use crate::hold::{block_on, exit, send_release};
use crate::{completion, console};
use redlock_api::DistributedLock;

/// Time limit for the API server to accept the release, and then for the operator to carry it out.
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
    exit::of_result(block_on(release(args)))
}

async fn release(args: &ReleaseArgs) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let target = Target::parse(&args.lock, args.cluster.namespace.as_deref(), &cluster.namespace)?;
    end_hold(&cluster, &target, args.fencing_token).await?;
    console::report(format_args!("lock {target} is released"));
    Ok(())
}

/// Sends the release of the hold with this token, and waits until it has ended.
async fn end_hold(cluster: &Cluster, target: &Target, token: i64) -> anyhow::Result<()> {
    let listed: Vec<LockObject> = cluster.list(Some(&target.namespace), "").await?;
    let Some(lock) = listed.into_iter().find(|lock| has_hold(lock, target, token)) else {
        bail!("lock {target} is not held with token {token}: it was released, or it was lost");
    };
    let claim = DistributedLock { metadata: lock.metadata, spec: lock.spec, status: None };
    let name = claim.name_any();
    let Ok(sent) = timeout(RELEASE, send_release(&cluster.client, &claim, token)).await else {
        bail!("the API server has not accepted the release of lock {target} within {RELEASE:?}: run the command again");
    };
    sent?;
    let ended = |lock: Option<&LockObject>| lock.is_none_or(|lock| !has_hold(lock, target, token));
    let locks = cluster.api::<LockObject>(Some(&target.namespace));
    timeout(RELEASE, await_condition(locks, &name, ended)).await.with_context(|| {
        format!("dlock {}/{name} is not released yet: with a minHold the operator waits for its end", target.namespace)
    })??;
    Ok(())
}

/// Whether a lock of the target is held with this token now.
fn has_hold(lock: &LockObject, target: &Target, token: i64) -> bool {
    lock.status.holder.is_some() && lock.status.fencing_token == Some(token) && target.means(lock)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::fake::failure;
    use crate::cluster::objects::fake;

    #[test]
    fn only_the_hold_with_the_token_is_released() {
        let status = "status: {holder: {identity: ci}, fencingToken: 7}";
        let mut lock = fake::lock("deploy-x", &format!("{{spec: {{key: deploy, claim: {{identity: ci}}}}, {status}}}"));
        let has =
            |lock: &LockObject, text: &str, token| has_hold(lock, &Target::parse(text, None, "shop").unwrap(), token);
        assert!(has(&lock, "shop/deploy", 7) && has(&lock, "dlock/deploy-x", 7));
        assert!(!has(&lock, "shop/deploy", 8) && !has(&lock, "shop/other", 7) && !has(&lock, "dlock/deploy", 7));
        lock.status.holder = None;
        assert!(!has(&lock, "shop/deploy", 7));
    }

    fn target() -> Target {
        Target::parse("shop/deploy", None, "shop").unwrap()
    }

    /// A hold by a claim of a newer version.
    fn hold() -> Value {
        json!({
            "metadata": {"name": "deploy-x", "namespace": "shop"},
            "spec": {"key": "deploy", "claim": {"identity": "ci"}, "ttl": "9999999h"},
            "status": {"holder": {"identity": "ci"}, "fencingToken": 7},
        })
    }

    /// A page of a list. `next` is the token of the next page.
    fn page(items: &[Value], next: &str) -> (u16, Value) {
        let metadata = json!({"resourceVersion": "1", "continue": next});
        (200, json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}))
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_of_a_newer_version_on_any_page_is_released() {
        let is_released = AtomicBool::new(false);
        let cluster = Cluster::answering(move |request| {
            let query = request.uri().query().unwrap_or_default();
            if *request.method() == Method::PATCH {
                is_released.store(true, Ordering::SeqCst);
                return (200, hold());
            }
            match is_released.load(Ordering::SeqCst) {
                true => page(&[], ""),
                false if query.contains("continue=") => page(&[hold()], ""),
                false => page(&[json!({"metadata": {"name": "other"}, "spec": {"key": "other"}})], "next"),
            }
        });
        end_hold(&cluster, &target(), 7).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_is_not_accepted_ends_in_an_error() {
        let cluster = Cluster::answering(|request| match *request.method() {
            Method::PATCH => failure(503, "ServiceUnavailable"),
            _ => page(&[hold()], ""),
        });
        let ended = timeout(3 * RELEASE, end_hold(&cluster, &target(), 7)).await.expect("an end");
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("has not accepted the release of lock shop/deploy within 10s"), "{error}");
    }
}
