//! Completion of command lines in shells, with the names of locks from the API server.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches as _};
use clap_complete::CompleteEnv;
use clap_complete::engine::{self, CompletionCandidate};
use clap_complete::env::Shells;
use kube::ResourceExt as _;
use tokio::time::timeout;

use crate::cluster::objects::LockObject;
use crate::cluster::{Cluster, ClusterArgs};

/// The environment variable that a shell's script sets when it calls this program.
const VARIABLE: &str = "REDLOCK_COMPLETE";
/// The program that kubectl calls to complete `kubectl redlock`.
const OF_KUBECTL: &str = "kubectl_complete-redlock";
/// The last line of the output for kubectl. It turns off the completion of file names.
const NO_FILES: &str = ":4\n";
/// Longest wait for the names of locks.
const NAMES_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers a shell or kubectl that completes a command line. Returns whether one of them called.
///
/// # Errors
/// If the answer cannot be written.
pub fn answer(tree: impl Fn() -> Command) -> anyhow::Result<bool> {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    if Path::new(&program).file_stem() == Some(OsStr::new(OF_KUBECTL)) {
        let text = for_kubectl(&mut tree(), words.collect())?;
        std::io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(true);
    }
    Ok(CompleteEnv::with_factory(tree).var(VARIABLE).try_complete(std::env::args_os(), None)?)
}

/// The script that makes a shell complete the command line of `redlock`.
///
/// # Errors
/// If the script cannot be made.
pub fn script(shell: &str) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells.completer(shell).ok_or_else(|| std::io::Error::other(format!("unknown shell {shell}")))?;
    completer.write_registration(VARIABLE, "redlock", "redlock", "redlock", &mut script)?;
    Ok(script)
}

/// The words that can follow, one on each line with its help.
fn for_kubectl(tree: &mut Command, words: Vec<OsString>) -> std::io::Result<String> {
    let words: Vec<OsString> = std::iter::once("redlock".into()).chain(words).collect();
    let last = words.len() - 1;
    // Like kubectl, this offers options only for a word that begins with a dash.
    let wants_options = words[last].to_string_lossy().starts_with('-');
    let is_wanted =
        |candidate: &&CompletionCandidate| wants_options || !candidate.get_value().to_string_lossy().starts_with('-');
    let line = |candidate: &CompletionCandidate| {
        let help = candidate.get_help().map(|help| format!("\t{help}")).unwrap_or_default();
        format!("{}{help}\n", candidate.get_value().to_string_lossy())
    };
    let found = engine::complete(tree, words, last, None)?;
    Ok(found.iter().filter(is_wanted).map(line).collect::<String>() + NO_FILES)
}

/// The locks that the last word of the command line can name.
///
/// There are none if the cluster does not answer.
pub fn locks(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let args = cluster_args(&command_line(std::env::args_os().collect()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let names = runtime.ok().and_then(|runtime| {
        runtime.block_on(async { timeout(NAMES_TIMEOUT, listed(&args, current)).await.ok().flatten() })
    });
    names.unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

async fn listed(args: &ClusterArgs, current: &str) -> Option<BTreeSet<String>> {
    let cluster = Cluster::connect(args).await.ok()?;
    let flag = cluster.named_namespace.as_deref();
    let namespace = match current.split_once('/') {
        Some((namespace, _)) if flag.is_none() && namespace != "dlock" => namespace,
        _ => &cluster.namespace,
    };
    let locks: Vec<LockObject> = cluster.list(Some(namespace), "").await.ok()?;
    Some(names(current, flag.is_some(), namespace, &locks))
}

/// Pure: the names that begin with a text, in the form that [`crate::cluster::target::Target`] parses.
fn names(current: &str, is_key: bool, namespace: &str, locks: &[LockObject]) -> BTreeSet<String> {
    let keys = locks.iter().map(LockObject::key);
    let objects = locks.iter().map(|lock| format!("dlock/{}", lock.name_any()));
    let found: Vec<String> = match is_key {
        _ if current.starts_with("dlock/") => objects.collect(),
        true => keys.collect(),
        // `Target` would parse a bare key with a slash as a namespace and a key.
        false => keys
            .flat_map(|key| {
                let bare = (!key.contains('/')).then(|| key.clone());
                bare.into_iter().chain([format!("{namespace}/{key}")])
            })
            .collect(),
    };
    found.into_iter().filter(|name| name.starts_with(current)).collect()
}

/// The words of the incomplete command line, including its program.
fn command_line(arguments: Vec<OsString>) -> Vec<OsString> {
    let program = arguments.first().map(|program| Path::new(program).file_stem() == Some(OsStr::new(OF_KUBECTL)));
    match arguments.iter().position(|argument| argument == "--") {
        Some(start) if program == Some(false) => arguments.into_iter().skip(start + 1).collect(),
        _ => arguments,
    }
}

/// Pure: the options of an incomplete command line that select the cluster.
fn cluster_args(words: &[OsString]) -> ClusterArgs {
    let own = ClusterArgs::augment_args(Command::new("redlock").no_binary_name(true));
    let mut kept = Vec::new();
    let mut words = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        let is_it = |argument: &&clap::Arg| {
            argument.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long))
                || argument.get_short().is_some_and(|short| option == format!("-{short}"))
        };
        let Some(argument) = own.get_arguments().find(is_it) else { continue };
        kept.push(word);
        if argument.get_action().takes_values() && value.is_none() {
            kept.extend(words.next());
        }
    }
    let read = own.ignore_errors(true).try_get_matches_from(kept);
    read.ok().and_then(|matches| ClusterArgs::from_arg_matches(&matches).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::objects::fake::lock;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_name_is_completed_as_it_is_read() {
        let locks = [lock("first", "{spec: {key: reindex}}"), lock("second", "{spec: {key: jobs/a}}")];
        let names = |current: &str, is_key| names(current, is_key, "shop", &locks).into_iter().collect::<Vec<_>>();
        assert_eq!(names("", false), ["reindex", "shop/jobs/a", "shop/reindex"]);
        assert_eq!(names("shop/r", false), ["shop/reindex"]);
        assert_eq!(names("", true), ["jobs/a", "reindex"], "with -n all of it is the key");
        assert_eq!(names("dlock/", true), ["dlock/first", "dlock/second"]);
        assert!(names("x", false).is_empty());
    }

    #[test]
    fn the_cluster_is_that_of_the_options_that_are_complete() {
        let args = cluster_args(&words("redlock explain -n shop --context=prod --unknown x --as bob re"));
        assert_eq!((args.namespace.as_deref(), args.context.as_deref()), (Some("shop"), Some("prod")));
        assert_eq!(args.as_user.as_deref(), Some("bob"));
        assert_eq!(cluster_args(&words("redlock run --lock a -- x -n other")).namespace, None);
        assert_eq!(cluster_args(&words("redlock list -n")).namespace, None);
    }

    #[test]
    fn the_command_line_begins_with_the_completed_command() {
        assert_eq!(command_line(words("redlock -- redlock run -- a")), words("redlock run -- a"));
        assert_eq!(command_line(words("/bin/kubectl_complete-redlock run -- a")).len(), 4);
    }
}
