//! Texts that a user reads about a lock or a quorum, and the check that each names a cause.

use std::time::Duration;

use parking_lot::Mutex;

use crate::{bench::Bench, poll, suite_cli::support};

/// The limit until a surface names the cause.
const NAMED: Duration = Duration::from_secs(60);

/// Output and error of `redlock` in the test's namespace.
async fn redlock(bench: &Bench, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = support::redlock(bench, &[arguments, &["-n", &bench.namespace]].concat()).await?;
    Ok(ran.out + &ran.err)
}

/// Waits until a command prints each text, and does not report that all is well.
///
/// The command is one of `redlock`, or the arguments of kubectl.
async fn names(bench: &Bench, command: &[&str], cause: &[&str]) -> anyhow::Result<()> {
    let last = Mutex::new(String::new());
    let attempt = async || {
        let text = match command {
            ["redlock", arguments @ ..] => redlock(bench, arguments).await?,
            arguments => bench.kubectl(arguments).await?,
        };
        // The output wraps lines, so the search joins them.
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_named = cause.iter().all(|part| joined.contains(*part)) && !joined.contains("All is well");
        *last.lock() = text;
        Ok(is_named.then_some(()))
    };
    let named = poll::until(NAMED, &format!("{command:?} names {cause:?}"), attempt).await;
    named.map_err(|error| error.context(last.into_inner()))
}

/// Checks a lock's reason in `kubectl get`, and its cause in `kubectl describe` and `redlock explain`.
pub(crate) async fn lock_names(bench: &Bench, lock: &str, reason: &str, cause: &[&str]) -> anyhow::Result<()> {
    names(bench, &["get", "dlock", lock], &[reason]).await?;
    names(bench, &["describe", "dlock", lock], cause).await?;
    names(bench, &["redlock", "explain", &format!("dlock/{lock}")], cause).await
}

/// Checks a quorum's reason in `kubectl get`, and its cause in `kubectl describe` and `redlock doctor`.
pub(crate) async fn quorum_names(bench: &Bench, quorum: &str, reason: &str, cause: &[&str]) -> anyhow::Result<()> {
    names(bench, &["get", "rq", quorum], &[reason]).await?;
    names(bench, &["describe", "rq", quorum], cause).await?;
    doctor_names(bench, cause).await
}

/// Checks that `redlock doctor` names the cause.
pub(crate) async fn doctor_names(bench: &Bench, cause: &[&str]) -> anyhow::Result<()> {
    names(bench, &["redlock", "doctor"], cause).await
}

/// Checks that the Events of the object have each text.
pub(crate) async fn event_names(bench: &Bench, object: &str, cause: &[&str]) -> anyhow::Result<()> {
    let field = format!("involvedObject.name={object}");
    names(bench, &["get", "events", "--field-selector", &field], cause).await
}
