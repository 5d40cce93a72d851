//! Votes of members for outside clients.
//!
//! Every vote must come from an admitted process.

pub(crate) mod monitor;
mod targets;

use std::{collections::BTreeMap, fmt, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use parking_lot::Mutex;
use redlock_operator::api::{MemberState, MemberStatus, RedisQuorum};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
    sync::watch,
    task::{AbortHandle, JoinHandle},
    time::timeout,
};

use crate::{
    bench::Bench,
    locks::SOON,
    quorums::Quorum,
    record::{Recorder, Version},
};

/// The node on whose network the monitor runs.
const NODE: usize = 1;
/// A killed process has an admitted successor within this time.
const ADMITTED_LIMIT: Duration = Duration::from_secs(60);
/// A member is closed within this time after the status with its fence.
///
/// The operator writes the status first.
const CLOSED_LIMIT: i64 = 2_000;

/// The error of the admission time in a status.
///
/// The operator reads the API server's clock from `Date` headers, which have whole seconds. Fences last longer.
const CLOCK_ERROR: i64 = 500;

/// One `SET key value NX PX` to one process of a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) member: String,
    pub(crate) run_id: String,
    /// Milliseconds of Unix time.
    pub(crate) sent: i64,
    pub(crate) received: i64,
    /// Whether the process voted.
    ///
    /// Otherwise it refused.
    pub(crate) voted: bool,
}

/// A client that requests a vote of every member of every quorum in a namespace every 20 ms.
///
/// It is a separate process on a node's network, and the quorum's client `outside`. It follows all changes of the
/// quorums: new quorums, members, passwords, certificates.
pub(crate) struct VoteMonitor {
    attempts: Arc<Mutex<Vec<Attempt>>>,
    count: watch::Receiver<usize>,
    quorums: Arc<Recorder<RedisQuorum>>,
    /// The task that writes the input of the process.
    ///
    /// Its end closes the input, which ends the process.
    follow: AbortHandle,
    reading: Mutex<Option<JoinHandle<()>>>,
    _child: Child,
}

impl Drop for VoteMonitor {
    fn drop(&mut self) {
        self.follow.abort();
    }
}

impl VoteMonitor {
    /// Starts it before any quorum exists.
    pub(crate) async fn start(bench: &Bench) -> anyhow::Result<Self> {
        let quorums = Arc::new(Recorder::labelled(bench.api::<RedisQuorum>(), "").await?);
        let secrets = Recorder::labelled(bench.api::<Secret>(), "").await?;
        let mut command = bench.cluster.faults.on_node(NODE)?;
        command.arg(std::env::current_exe()?).arg(monitor::COMMAND);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let (observed, count) = watch::channel(0);
        let kept = attempts.clone();
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(attempt) = serde_json::from_str::<Attempt>(&line) else { continue };
                let mut attempts = kept.lock();
                attempts.push(attempt);
                observed.send_replace(attempts.len());
            }
        });
        let follow = tokio::spawn(targets::follow(quorums.clone(), secrets, stdin)).abort_handle();
        Ok(Self { attempts, count, quorums, follow, reading: Mutex::new(Some(reading)), _child: child })
    }

    /// All attempts up to now.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.attempts_after(0)
    }

    fn attempts_after(&self, mark: usize) -> Vec<Attempt> {
        self.attempts.lock().get(mark..).unwrap_or_default().to_vec()
    }

    /// Waits for the first attempt that matches.
    pub(crate) async fn until(
        &self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Attempt) -> bool,
    ) -> anyhow::Result<Attempt> {
        let found = async {
            let (mut count, mut next) = (self.count.clone(), 0);
            loop {
                count.borrow_and_update();
                let fresh = self.attempts_after(next);
                next += fresh.len();
                if let Some(attempt) = fresh.into_iter().find(&is_so) {
                    return Ok(attempt);
                }
                if count.changed().await.is_err() {
                    bail!("the vote monitor ended");
                }
            }
        };
        let found = timeout(limit, found).await;
        found.with_context(|| format!("the vote monitor has not seen within {limit:?}: {what}"))?
    }

    /// Waits for a vote of the member's process that is admitted now, or next.
    pub(crate) async fn until_it_votes(&self, quorum: &Quorum, member: usize) -> anyhow::Result<()> {
        let mark = quorum.recorder.mark().saturating_sub(1);
        let admitted = |m: &MemberStatus| m.state == MemberState::Admitted;
        let (_, status) = quorum.member_until(mark, member, ADMITTED_LIMIT, "is admitted", admitted).await?;
        let run_id = status.run_id.context("no runID")?;
        let votes = |attempt: &Attempt| attempt.voted && attempt.run_id == run_id;
        self.until(SOON, "a vote of the admitted process", votes).await.map(drop)
    }

    /// Ends it, and checks all of its attempts.
    ///
    /// The operator writes an admission into the status before the admission has an effect. Therefore the recorded versions
    /// have all admissions when they have reached the current state of the API server.
    pub(crate) async fn end(&self, bench: &Bench) -> anyhow::Result<Tally> {
        self.follow.abort();
        let reading = self.reading.lock().take();
        if let Some(reading) = reading {
            timeout(SOON, reading).await.context("the vote monitor does not end")??;
        }
        for quorum in bench.api::<RedisQuorum>().list(&ListParams::default()).await? {
            let is_it = |observed: &RedisQuorum| {
                observed.metadata.uid == quorum.metadata.uid && version(observed) >= version(&quorum)
            };
            self.quorums.until(SOON, "what the API server has", |observed| is_it(&observed.object)).await?;
        }
        let (versions, attempts) = (self.quorums.versions(), self.attempts());
        let votes = |version: &Version<RedisQuorum>| {
            let known = version.object.spec.clients.iter().any(|client| client.name == targets::CLIENT);
            let members = version.object.status.iter().flat_map(|status| &status.members);
            known && members.into_iter().any(|member| member.state == MemberState::Admitted)
        };
        let blind = attempts.is_empty() && versions.iter().any(votes);
        ensure!(!blind, "the vote monitor made no attempt on a quorum that votes");
        check_votes(&versions, &attempts)
    }
}

fn version(quorum: &RedisQuorum) -> Option<u64> {
    quorum.metadata.resource_version.as_ref()?.parse().ok()
}

/// Counters of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) votes: usize,
    pub(crate) refusals: usize,
}

/// Votes and refusals by member and `run_id`.
#[derive(Debug, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<(String, String), Count>);

impl Tally {
    /// The sum over all processes.
    pub(crate) fn all(&self) -> Count {
        let sum = |of: fn(&Count) -> usize| self.0.values().map(of).sum();
        Count { votes: sum(|count| count.votes), refusals: sum(|count| count.refusals) }
    }
}

/// Only [`check_votes`] makes one.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { votes, refusals } = self.all();
        let (tries, processes) = (votes + refusals, self.0.len());
        write!(f, "{tries} tries on {processes} processes: {votes} votes, none between a start and its admission")
    }
}

/// The time in which one process could vote, by the status.
#[derive(Clone, Copy, Debug)]
struct Admission {
    from: i64,
    until: Option<i64>,
}

/// Checks that an admitted process gave every vote.
///
/// The status must have the admission before the reply. At the request the admission must not have been withdrawn for
/// longer than closing takes. `versions` must begin before the first attempt. The `run_id` identifies a process, and
/// comes from the connection of the attempt.
pub(crate) fn check_votes(versions: &[Version<RedisQuorum>], attempts: &[Attempt]) -> anyhow::Result<Tally> {
    let admissions = admissions(versions);
    let mut tally = Tally::default();
    for attempt in attempts {
        let process = (attempt.member.clone(), attempt.run_id.clone());
        let known = admissions.get(&process).map(Vec::as_slice).unwrap_or_default();
        let admitted = |admission: &Admission| {
            attempt.received >= admission.from && admission.until.is_none_or(|until| attempt.sent <= until)
        };
        let is_admitted = known.iter().any(admitted);
        ensure!(!attempt.voted || is_admitted, "voted and was not admitted: {attempt:?}, admissions: {known:?}");
        let count = tally.0.entry(process).or_default();
        if attempt.voted {
            count.votes += 1;
        } else {
            count.refusals += 1;
        }
    }
    Ok(tally)
}

fn admissions(versions: &[Version<RedisQuorum>]) -> BTreeMap<(String, String), Vec<Admission>> {
    let mut admissions: BTreeMap<_, Vec<Admission>> = BTreeMap::new();
    for version in versions {
        let members = version.object.status.as_ref().map(|status| status.members.as_slice()).unwrap_or_default();
        for MemberStatus { name, run_id, state, admitted_at, .. } in members {
            let Some(run_id) = run_id else { continue };
            let known = admissions.entry((name.clone(), run_id.clone())).or_default();
            match (state, admitted_at) {
                (MemberState::Admitted, Some(at))
                    if known.last().is_none_or(|last| last.from < at.as_millis() - CLOCK_ERROR) =>
                {
                    known.push(Admission { from: at.as_millis() - CLOCK_ERROR, until: None });
                }
                (MemberState::Fenced, _) => {
                    if let Some(last) = known.last_mut().filter(|last| last.until.is_none()) {
                        last.until = Some(version.wall.0 + CLOSED_LIMIT);
                    }
                }
                _ => {}
            }
        }
    }
    admissions
}
