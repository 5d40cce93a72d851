//! Lock clients in other languages, each with a library of its own.
//!
//! `dev/clients.sh` installs the programs of tests/clients. They run as processes of this machine on a node's network,
//! with the cluster's names. They use only the Secret that the quorum gives its clients.
//!
//! A program reads commands from stdin and answers each with a line. It ends with its input.
//!
//! | command | answer |
//! |---|---|
//! | `acquire KEY TTL` | `held FROM UNTIL`, or `refused` |
//! | `extend TTL` | `held FROM UNTIL`, or `unsupported` |
//! | `release` | `released` |
//! | `example KEY` | `true` or `false`: the example of docs/clients.md took the lock, or not |
//! | `plain KEY TTL` | `ok LOCK`: `acquire` of the library without further checks (redlock-py) |
//! | `raw MEMBER COMMAND...` | `ok ANSWER`: one Redis command, on the library's own connection |
//! | `cycles WORKERS MILLISECONDS` | `cycles COUNT FAILED ACQUIRE50 ACQUIRE99 RELEASE50 RELEASE99`: for `make bench` (crates/bench) |
//!
//! Times are in milliseconds, FROM and UNTIL of Unix time. FROM is the return of the library, and UNTIL the end of the
//! validity that it computed. The answer to a failure is `error` and the library's message.
//!
//! `cycles` makes this number of workers acquire and release until the time has passed. Each has a key of its own,
//! which begins with the library's name, for 10 s and with one try. The answer has the number of cycles, the number of
//! failed attempts, and p50 and p99 of both operations in microseconds. redsync, node-redlock, pottery and Redisson
//! support it.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use crate::{locks::SOON, quorums::Quorum};

/// The node on whose network they run.
const NODE: usize = 1;
/// The timeout of an answer.
///
/// A JVM starts within this time.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A library, and the language of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// Whether it can extend a lock.
    pub(crate) extends: bool,
}

const fn library(name: &'static str, extends: bool) -> Library {
    Library { name, extends }
}

pub(crate) const REDLOCK_PY: Library = library("redlock-py", false);
pub(crate) const NODE_REDLOCK: Library = library("node-redlock", true);
pub(crate) const REDSYNC: Library = library("redsync", true);
/// Redisson, whose locks are hashes.
pub(crate) const REDISSON: Library = library("redisson", false);
pub(crate) const LIBRARIES: [Library; 6] =
    [REDLOCK_PY, library("pottery", true), NODE_REDLOCK, REDSYNC, library("rslock", true), REDISSON];

/// The validity that a client has computed, in milliseconds of Unix time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// A running client.
pub(crate) struct LockClient {
    pub(crate) library: Library,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
    _child: Child,
}

impl LockClient {
    /// Starts it as the quorum's client `outside`.
    pub(crate) async fn start(quorum: &Quorum, library: Library) -> anyhow::Result<Self> {
        let directory = crate::cluster::checkout().join(".local/clients");
        let program = directory.join(library.name).join("run");
        ensure!(program.exists(), "{} does not exist: run dev/clients.sh first", program.display());
        let Login { urls, ca } = Login::of(quorum).await?;
        let log = directory.join(format!("{}.log", library.name));
        let mut command = quorum.bench.cluster.faults.on_node(NODE)?;
        command.arg(&program).env("REDLOCK_URLS", urls);
        if let Some(ca) = ca {
            let file = directory.join(format!("{}.ca.crt", quorum.bench.namespace));
            std::fs::write(&file, ca)?;
            command.env("REDLOCK_CA", file);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?);
        let mut child = command.spawn().context("failed to start a lock client")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let answers = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self { library, stdin, answers, log, _child: child })
    }

    /// Sends one line, and returns the answer.
    pub(crate) async fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await?;
        self.stdin.flush().await?;
        let answer = timeout(ANSWER_LIMIT, self.answers.next_line()).await;
        let answer = answer.with_context(|| format!("{}: no answer to {command}", self.library.name))??;
        answer.with_context(|| format!("{} ended at {command}, see {}", self.library.name, self.log.display()))
    }

    async fn ask_held(&mut self, command: &str) -> anyhow::Result<Option<Held>> {
        let answer = self.ask(command).await?;
        self.held(&answer).with_context(|| command.to_owned())
    }

    fn held(&self, answer: &str) -> anyhow::Result<Option<Held>> {
        match answer.split(' ').collect::<Vec<_>>()[..] {
            ["held", from, until] => Ok(Some(Held { from: from.parse()?, until: until.parse()? })),
            ["refused"] => Ok(None),
            _ => bail!("{}: {answer} (see {})", self.library.name, self.log.display()),
        }
    }

    /// Tries once to take a lock.
    ///
    /// Returns `None` if the lock is refused, or if the library fails.
    pub(crate) async fn attempt(&mut self, key: &str, ttl: Duration) -> anyhow::Result<Option<Held>> {
        let answer = self.ask(&format!("acquire {key} {}", ttl.as_millis())).await?;
        if answer.starts_with("error") { Ok(None) } else { self.held(&answer) }
    }

    /// Tries once to take a lock.
    ///
    /// Returns `None` if the lock is refused.
    pub(crate) async fn acquire(&mut self, key: &str, ttl: Duration) -> anyhow::Result<Option<Held>> {
        self.ask_held(&format!("acquire {key} {}", ttl.as_millis())).await
    }

    /// Retries until it holds the lock.
    pub(crate) async fn acquire_within(&mut self, limit: Duration, key: &str, ttl: Duration) -> anyhow::Result<Held> {
        let name = self.library.name;
        let trying = async {
            loop {
                if let Some(held) = self.acquire(key, ttl).await? {
                    return Ok(held);
                }
                // A client that does not watch the object can only poll.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(limit, trying).await.with_context(|| format!("{name} did not get {key} within {limit:?}"))?
    }

    /// Extends the held lock.
    pub(crate) async fn extend(&mut self, ttl: Duration) -> anyhow::Result<Held> {
        let held = self.ask_held(&format!("extend {}", ttl.as_millis())).await?;
        held.with_context(|| format!("{} has lost its lock", self.library.name))
    }

    /// Releases the held lock.
    pub(crate) async fn release(&mut self) -> anyhow::Result<()> {
        let answer = self.ask("release").await?;
        ensure!(answer == "released", "{}: release: {answer} (see {})", self.library.name, self.log.display());
        Ok(())
    }

    /// Runs the example of docs/clients.md, which takes and releases the lock.
    ///
    /// Returns false if the lock was refused.
    pub(crate) async fn example(&mut self, key: &str) -> anyhow::Result<bool> {
        let answer = self.ask(&format!("example {key}")).await?;
        let log = self.log.display();
        answer.parse().with_context(|| format!("{}: the example: {answer} (see {log})", self.library.name))
    }

    /// The reply to a Redis command.
    pub(crate) async fn raw(&mut self, member: usize, command: &str) -> anyhow::Result<String> {
        self.ask(&format!("raw {member} {command}")).await
    }
}

/// The contents of a client's Secret.
pub(crate) struct Login {
    /// One line per member.
    pub(crate) urls: String,
    /// The authority, with TLS.
    pub(crate) ca: Option<Vec<u8>>,
}

impl Login {
    /// Reads the Secret of the client `outside`, when it exists.
    pub(crate) async fn of(quorum: &Quorum) -> anyhow::Result<Self> {
        let secrets = quorum.bench.record::<Secret>(&format!("{}-client-outside", quorum.name)).await?;
        let secret = secrets.until(SOON, "the client's Secret exists", |version| !version.gone).await?.object;
        let mut data = secret.data.unwrap_or_default();
        let urls = data.remove("urls").context("the client's Secret has no urls")?.0;
        Ok(Self { urls: String::from_utf8(urls)?, ca: data.remove("ca.crt").map(|ca| ca.0) })
    }
}
