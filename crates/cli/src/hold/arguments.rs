//! The options that describe the lock of a command.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap_complete::engine::ArgValueCompleter;

use super::mounted_secret::{self, Secret};
use crate::cluster::target::is_of_key_characters;
use crate::cluster::{self, ClusterArgs};
use crate::completion;
use redlock_api::GoDuration;

/// Prefix of environment variables with the entries of a client's Secret (`envFrom` with `prefix`).
pub(crate) const ENTRY_PREFIX: &str = "REDLOCK_MEMBERS_";

/// Why a claim or an election refuses URLs of members.
pub(crate) const NEEDS_DIRECT: &str = "--members and REDLOCK_MEMBERS need --direct: give the Secret of a client with access Read by \
     --members-secret instead, or leave them out";

/// A lock in commands: `<namespace>/<key>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockName(String);

impl LockName {
    /// The namespace of the claims and their key.
    ///
    /// # Errors
    /// If there is no namespace.
    pub(crate) fn in_cluster(&self) -> anyhow::Result<(&str, &str)> {
        self.0.split_once('/').with_context(|| {
            format!("lock {self} names no namespace: use <namespace>/<key>, for example default/{self}")
        })
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LockName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_key = text.len() <= 264 && is_of_key_characters(text);
        let has_parts = text.split_once('/').is_none_or(|(namespace, key)| !namespace.is_empty() && !key.is_empty());
        if is_key && has_parts {
            return Ok(Self(text.to_owned()));
        }
        Err("a lock is <namespace>/<key>; a key has letters, digits and . _ : / - only, for example shop/reindex")
    }
}

/// The lock, and how to take it.
#[derive(Clone, Debug, clap::Args)]
pub struct LockArgs {
    /// The lock: `<namespace>/<key>`. A key alone is one of the namespace of -n, of the kubeconfig, or of the agent.
    #[arg(long, value_name = "LOCK", add = ArgValueCompleter::new(completion::locks))]
    pub lock: LockName,
    /// How long the lock outlives its holder at most.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub ttl: GoDuration,
    /// Longest wait for the lock. Default: no limit.
    #[arg(long, value_name = "DURATION", conflicts_with = "try_once")]
    pub wait: Option<GoDuration>,
    /// Do not wait while another holder has the lock.
    #[arg(long = "try")]
    pub try_once: bool,
    /// Longest time to hold the lock. The command is ended then.
    #[arg(long, value_name = "DURATION")]
    pub max_hold: Option<GoDuration>,
    /// Shortest time until the next holder gets the lock, though the command ends earlier.
    #[arg(long, value_name = "DURATION")]
    pub min_hold: Option<GoDuration>,
    /// Number of holders that can have the lock at the same time. All of them have to give the same number.
    #[arg(long, value_name = "NUMBER")]
    pub slots: Option<i32>,
    /// Place in the queue: higher numbers first, then older claims.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// The RedisQuorum, as `<name>` or `<namespace>/<name>`. Default: the default quorum of the operator.
    #[arg(long, value_name = "QUORUM")]
    pub quorum: Option<String>,
    /// Names the holder. Default: the own pod, or `<user>@<host>/<process ID>`.
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,
    /// The container of the own pod that holds the lock, if the pod has several.
    #[arg(long, value_name = "NAME")]
    pub container: Option<String>,
    /// How far the clock of this machine and those of the cluster can be apart. Without --members-secret only.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub skew: GoDuration,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Members.
    #[command(flatten)]
    pub direct: DirectArgs,
}

/// The members themselves.
#[derive(Clone, Debug, clap::Args)]
pub struct DirectArgs {
    /// Take the lock from the members themselves, without Kubernetes.
    #[arg(long)]
    pub direct: bool,
    /// URLs of the members, separated by commas.
    ///
    /// Each is `redis://user:password@host:port`, of which user, password and port can be left out.
    #[arg(long, value_name = "URLS", env = "REDLOCK_MEMBERS", value_delimiter = ',', hide_env_values = true)]
    pub members: Vec<String>,
    /// Directory with the entries of a client's Secret. Without --direct a client with access Read.
    #[arg(long, value_name = "DIRECTORY", env = "REDLOCK_MEMBERS_SECRET", conflicts_with = "members")]
    pub members_secret: Option<PathBuf>,
    /// File with the certificate authority of members with rediss:// URLs.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Members by URL: a process that was not seen before votes when every lock of this length has run out.
    #[arg(long, value_name = "MAX-TTL", conflicts_with = "admit_at_once")]
    pub wait_before_voting: Option<GoDuration>,
    /// Members by URL: every process votes at once. A restarted one can give the lock away twice.
    #[arg(long)]
    pub admit_at_once: bool,
    /// No fencing token, for masters on which the user cannot count. The token is 0.
    #[arg(long)]
    pub without_token: bool,
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    For(Duration),
    Forever,
}

/// The source of the members' URLs and passwords.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Members {
    /// The mounted Secret of a client, which an operator creates.
    Directory(PathBuf),
    /// The entries of such a Secret.
    Entries(Secret),
    Urls(Vec<String>),
}

impl Members {
    /// The current entries of the Secret. `None` for URLs.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn secret(&self) -> anyhow::Result<Option<Secret>> {
        match self {
            Self::Directory(directory) => mounted_secret::read(directory).map(Some),
            Self::Entries(entries) => Ok(Some(entries.clone())),
            Self::Urls(_) => Ok(None),
        }
    }
}

impl LockArgs {
    /// Adds the namespace to the lock.
    ///
    /// Members have no namespaces, so with `--direct` the lock stays the same.
    ///
    /// # Errors
    /// If the namespace must come from a kubeconfig that cannot be read.
    pub(crate) async fn resolved(&self) -> anyhow::Result<Self> {
        let namespace = match &self.cluster.namespace {
            _ if self.direct.direct => return Ok(self.clone()),
            Some(namespace) => namespace.clone(),
            None if self.lock.in_cluster().is_ok() => return Ok(self.clone()),
            None => cluster::settings(&self.cluster).await?.default_namespace,
        };
        let lock = format!("{namespace}/{}", self.lock).parse().map_err(anyhow::Error::msg)?;
        Ok(Self { lock, ..self.clone() })
    }

    pub(crate) fn wait(&self) -> Wait {
        match self.wait {
            _ if self.try_once => Wait::Never,
            Some(wait) => Wait::For(wait.get()),
            None => Wait::Forever,
        }
    }

    /// Refuses options that need an operator.
    ///
    /// # Errors
    /// If one of these options is set.
    pub(crate) fn refuse_queue(&self) -> anyhow::Result<()> {
        let asked = [
            ("--min-hold", self.min_hold.is_some()),
            ("--priority", self.priority.is_some()),
            ("--quorum", self.quorum.is_some()),
            ("--container", self.container.is_some()),
        ];
        if let Some((option, _)) = asked.iter().find(|(_, is_asked)| *is_asked) {
            bail!("{option} needs the operator, and --direct asks the members alone: leave one of them out");
        }
        Ok(())
    }
}

impl DirectArgs {
    /// The source of the members, from the options or else from the environment.
    pub(crate) fn members(&self, environment: impl Iterator<Item = (String, String)>) -> Option<Members> {
        if let Some(directory) = &self.members_secret {
            return Some(Members::Directory(directory.clone()));
        }
        if !self.members.is_empty() {
            return Some(Members::Urls(self.members.clone()));
        }
        let entry = |(name, value): (String, String)| {
            // For a Service `redlock-members` Kubernetes sets variables in capitals. Entries of the Secret begin with a lowercase letter.
            let name =
                name.strip_prefix(ENTRY_PREFIX).filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))?;
            Some((name.to_owned(), value.into_bytes()))
        };
        let entries: BTreeMap<_, _> = environment.filter_map(entry).collect();
        (!entries.is_empty()).then_some(Members::Entries(entries))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Parses a command line.
    pub(in crate::hold) fn parsed(args: &[&str]) -> LockArgs {
        crate::tests::parsed(args).unwrap()
    }

    #[test]
    fn a_lock_is_a_namespace_and_a_key() {
        let name: LockName = "shop/jobs/reindex".parse().unwrap();
        assert_eq!(name.in_cluster().unwrap(), ("shop", "jobs/reindex"));
        let bare: LockName = "reindex".parse().unwrap();
        assert!(bare.in_cluster().unwrap_err().to_string().contains("default/reindex"));
        for wrong in ["", "/a", "shop/", "shop/a b", "shop/a#b"] {
            assert!(wrong.parse::<LockName>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_key_alone_is_one_of_the_chosen_namespace() {
        let lock = async |args: &[&str]| parsed(args).resolved().await.unwrap().lock.to_string();
        assert_eq!(lock(&["--lock", "shop/jobs/reindex"]).await, "shop/jobs/reindex");
        assert_eq!(lock(&["--lock", "reindex", "-n", "shop"]).await, "shop/reindex");
        assert_eq!(lock(&["--lock", "reindex", "-n", "shop", "--direct"]).await, "reindex");
    }

    #[test]
    fn try_and_wait_exclude_each_other() {
        assert_eq!(parsed(&["--lock", "a/b", "--try"]).wait(), Wait::Never);
        assert_eq!(parsed(&["--lock", "a/b", "--wait", "2s"]).wait(), Wait::For(Duration::from_secs(2)));
        assert_eq!(parsed(&["--lock", "a/b"]).wait(), Wait::Forever);
        assert!(crate::tests::parsed::<LockArgs>(&["--lock", "a/b", "--try", "--wait", "2s"]).is_err());
    }

    #[test]
    fn options_that_need_the_operator_are_refused_in_direct_mode() {
        assert!(parsed(&["--lock", "a/b", "--direct", "--identity", "me"]).refuse_queue().is_ok());
        let refused = parsed(&["--lock", "a/b", "--priority", "-3"]).refuse_queue().unwrap_err().to_string();
        assert!(refused.starts_with("--priority needs the operator"), "{refused}");
    }

    #[test]
    fn members_are_urls_or_a_secret_or_environment_variables() {
        let none = std::iter::empty;
        let urls = parsed(&["--lock", "a/b", "--members", "redis://a,redis://b"]).direct.members(none());
        assert!(urls == Some(Members::Urls(vec!["redis://a".to_owned(), "redis://b".to_owned()])));
        let direct = parsed(&["--lock", "a/b"]).direct;
        assert!(direct.members(none()).is_none());
        let service_host = format!("{ENTRY_PREFIX}SERVICE_HOST");
        let variables = [
            ("REDLOCK_MEMBERS_urls", "redis://a"),
            ("REDLOCK_MEMBERS_SECRET", ""),
            (service_host.as_str(), "10.0.0.1"),
            ("HOME", "/"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let Some(Members::Entries(data)) = direct.members(variables.into_iter()) else { panic!("a Secret") };
        assert_eq!(data.into_iter().collect::<Vec<_>>(), [("urls".to_owned(), b"redis://a".to_vec())]);
    }
}
