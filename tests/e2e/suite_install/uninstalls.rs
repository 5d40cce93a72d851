//! The end of an installation, with and without the hook that checks first.
//!
//! Some versions of Argo CD do not run hooks.

use std::time::Duration;

use anyhow::ensure;

use super::{helm, then_as_before};
use crate::{
    believers::{check_apart, check_tokens},
    bench::Bench,
    locks::{Lock, SOON, claim, is_held},
    operators, poll,
    quorums::Quorum,
};

const MAX_TTL: Duration = Duration::from_secs(6);
const TTL: Duration = Duration::from_secs(4);
/// The limit from an installation to the next grant.
///
/// The lost hold must expire and be reported before the grant.
const NEXT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn an_uninstallation_without_hooks_splits_no_lock(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let first = Lock::create(&bench, claim("first", "job", Some("q"), TTL)).await?;
    first.held(SOON).await?;
    let test = async {
        helm(&bench.cluster, &["uninstall", operators::NAME, "--no-hooks", "--wait"]).await?;
        // A replica that ends renews its holds while no other one leads.
        let is_gone = async || Ok(operators::pods(&bench.cluster).await?.is_empty().then_some(()));
        poll::until(NEXT_LIMIT, "the operator's pods are gone", is_gone).await?;
        let second = Lock::create(&bench, claim("second", "job", Some("q"), TTL)).await?;
        // After this time every promise has expired, but without an operator no claim is granted.
        tokio::time::sleep(2 * TTL).await;
        ensure!(
            !second.recorder.versions().iter().any(|version| is_held(&version.object)),
            "granted without an operator"
        );
        bench.cluster.deploy().await?;
        operators::all_available(&bench.cluster).await?;
        second.held(NEXT_LIMIT).await?;
        check_tokens(&check_apart(&[&first, &second], &[])?)?;
        second.remove().await?;
        first.remove().await
    };
    then_as_before(&bench, test).await
}

pub(crate) async fn the_check_before_an_uninstallation_names_held_locks(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = Lock::create(&bench, claim("job", "job", Some("q"), TTL)).await?;
    lock.held(SOON).await?;
    let namespace = &bench.cluster.operator_namespace;
    let arguments = ["uninstall", operators::NAME, "--namespace", namespace, "--wait"];
    let output = bench.cluster.helm(&arguments).await?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(!output.status.success(), "uninstalled while a lock was held: {text}");
    for part in ["1 locks are held", "nothing was removed", "run helm uninstall again"] {
        ensure!(text.contains(part), "{part:?} is not in: {text}");
    }
    let command = format!("kubectl delete dlock -n {} job", bench.namespace);
    ensure!(text.contains(&command), "{command:?} is not in: {text}");
    // The instructions in its message are sufficient.
    let test = async {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        bench.cluster.kubectl(&words).await?;
        helm(&bench.cluster, &["uninstall", operators::NAME, "--wait"]).await.map(drop)
    };
    then_as_before(&bench, test).await
}
