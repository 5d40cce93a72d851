//! Texts that a user reads about a lock or a quorum, and the check that each names a cause.

use std::time::Duration;

use crate::{bench::Bench, poll, suite_cli::support};

/// The limit until each surface names the cause.
pub(super) const NAMED: Duration = Duration::from_secs(90);

/// Output and error of `redlock` in the test's namespace.
pub(super) async fn redlock(bench: &Bench, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = support::redlock(bench, &[arguments, &["-n", &bench.namespace]].concat()).await?;
    Ok(ran.out + &ran.err)
}

/// The texts about an object, each under the command that prints it.
struct Surfaces(Vec<(String, String)>);

impl Surfaces {
    async fn of(bench: &Bench, commands: &[Vec<&str>]) -> anyhow::Result<Self> {
        let mut texts = Vec::new();
        for command in commands {
            let text = match command.split_first() {
                Some((&"kubectl", arguments)) => bench.kubectl(arguments).await?,
                Some((_, arguments)) => redlock(bench, arguments).await?,
                None => String::new(),
            };
            texts.push((command.join(" "), text));
        }
        Ok(Self(texts))
    }

    /// The first surface that lacks one of the texts of the cause, or that reports that nothing is wrong.
    fn lacks(&self, cause: &[&str]) -> Option<String> {
        let lacks = |(command, text): &(String, String)| {
            // The output wraps lines, so the search joins them.
            let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let missing = cause.iter().find(|part| !joined.contains(**part));
            let missing = missing.map(|part| format!("{command} lacks {part:?}:\n{text}"));
            missing.or_else(|| joined.contains("All is well").then(|| format!("{command} reports that all is well")))
        };
        self.0.iter().find_map(lacks)
    }
}

/// Waits until each command prints each text, and until none reports that all is well.
async fn name(bench: &Bench, commands: &[Vec<&str>], cause: &[&str]) -> anyhow::Result<()> {
    let last = std::sync::Mutex::new(String::new());
    let attempt = async || {
        let lacks = Surfaces::of(bench, commands).await?.lacks(cause);
        let is_named = lacks.is_none().then_some(());
        *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = lacks.unwrap_or_default();
        Ok(is_named)
    };
    let named = poll::until(NAMED, "each surface names the cause", attempt).await;
    named.map_err(|error| error.context(last.into_inner().unwrap_or_default()))
}

/// Checks a lock's reason in `kubectl get`, and its cause in `kubectl describe` and `redlock explain`.
pub(super) async fn lock_names(bench: &Bench, lock: &str, reason: &str, cause: &[&str]) -> anyhow::Result<()> {
    let target = format!("dlock/{lock}");
    name(bench, &[vec!["kubectl", "get", "dlock", lock]], &[reason]).await?;
    name(bench, &[vec!["kubectl", "describe", "dlock", lock], vec!["redlock", "explain", &target]], cause).await
}

/// Checks that `kubectl describe`, `redlock doctor` and `redlock explain` name the cause.
///
/// `redlock explain` runs for a lock that needs the quorum.
pub(super) async fn quorum_names(bench: &Bench, quorum: &str, reason: &str, cause: &[&str]) -> anyhow::Result<()> {
    name(bench, &[vec!["kubectl", "get", "rq", quorum]], &[reason]).await?;
    name(bench, &[vec!["kubectl", "describe", "rq", quorum], vec!["redlock", "doctor"]], cause).await
}

/// Checks that `redlock doctor` names the cause, and does not report that all is well.
pub(super) async fn doctor_names(bench: &Bench, cause: &[&str]) -> anyhow::Result<()> {
    name(bench, &[vec!["redlock", "doctor"]], cause).await
}

/// Checks that the Events of the object have each text.
pub(super) async fn event_names(bench: &Bench, object: &str, cause: &[&str]) -> anyhow::Result<()> {
    let field = format!("involvedObject.name={object}");
    name(bench, &[vec!["kubectl", "get", "events", "--field-selector", &field]], cause).await
}
