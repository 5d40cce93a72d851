//! The end of an installation, with and without the hook that checks first.
//!
//! Some versions of Argo CD do not run hooks.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    believers::{check_apart, check_tokens},
    bench::Bench,
    history::check_held_throughout,
    locks::{Lock, claim},
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
    let first = Lock::take(&bench, claim("first", "job", Some("q"), TTL)).await?;
    let test = async {
        let uninstall = ["uninstall", operators::NAME, "--no-hooks", "--wait"];
        bench.cluster.helm(&bench.cluster.operator_namespace, &uninstall).await?;
        // A replica that ends renews its holds while no other one leads.
        let is_gone = async || Ok(operators::pods(&bench.cluster).await?.is_empty().then_some(()));
        poll::until(NEXT_LIMIT, "the operator's pods are gone", is_gone).await?;
        let second = Lock::create(&bench, claim("second", "job", Some("q"), TTL)).await?;
        // After this time every promise has expired, but without an operator no claim is granted.
        tokio::time::sleep(2 * TTL).await;
        ensure!(!second.was_held(), "granted without an operator");
        bench.cluster.deploy().await?;
        operators::all_available(&bench.cluster).await?;
        second.held(NEXT_LIMIT).await?;
        check_tokens(&check_apart(&[&first, &second], &[])?)?;
        second.remove().await?;
        first.remove().await
    };
    operators::then_as_before(&bench.cluster, test).await
}

pub(crate) async fn the_check_before_an_uninstallation_names_held_locks(bench: Bench) -> anyhow::Result<()> {
    let _quorum = Quorum::ready(&bench, "q", MAX_TTL).await?;
    let lock = Lock::take(&bench, claim("job", "job", Some("q"), TTL)).await?;
    let (namespace, uninstall) = (&bench.cluster.operator_namespace, ["uninstall", operators::NAME, "--wait"]);
    let (is_done, text) = bench.cluster.try_helm(namespace, &uninstall).await?;
    ensure!(!is_done, "uninstalled while a lock was held: {text}");
    for part in ["1 locks are held", "nothing was removed", "run helm uninstall again"] {
        ensure!(text.contains(part), "{part:?} is not in: {text}");
    }
    let command = format!("kubectl delete dlock -n {} job", bench.namespace);
    ensure!(text.contains(&command), "{command:?} is not in: {text}");
    operators::all_available(&bench.cluster).await?;
    check_held_throughout(&lock.recorder.versions())?;
    // The instructions in its message are sufficient.
    let test = async {
        let arguments: Vec<&str> = command.split(' ').skip(1).collect();
        bench.cluster.kubectl(&arguments).await?;
        bench.cluster.helm(namespace, &uninstall).await.map(drop)
    };
    operators::then_as_before(&bench.cluster, test).await
}
