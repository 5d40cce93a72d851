//! Votes that members give to clients outside the operator: every one of them must come from an admitted process.

pub(crate) mod monitor;

use std::{
    collections::BTreeMap,
    fmt,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use redlock_operator::{
    api::{MemberState, MemberStatus, RedisQuorum},
    quorum::auth::Auth,
    redis_member::acl::OPERATOR_USER,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin},
    sync::watch,
    time::timeout,
};

use self::monitor::Target;
use crate::{libraries::Login, locks::SOON, quorums::Quorum, record::Version};

/// A member is closed within this time after the status says that it is fenced: the record comes first.
const CLOSED_LIMIT: i64 = 2_000;

/// One `SET key value NX PX` to one process of a member.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) member: String,
    pub(crate) run_id: String,
    /// Milliseconds of Unix time.
    pub(crate) sent: i64,
    pub(crate) received: i64,
    /// The process voted; else it refused.
    pub(crate) voted: bool,
}

/// A client that asks every member for a vote every 20 ms, in a process of its own on a node's network. It ends with this.
pub(crate) struct VoteMonitor {
    attempts: Arc<Mutex<Vec<Attempt>>>,
    count: watch::Receiver<usize>,
    stdin: ChildStdin,
    _child: Child,
}

impl VoteMonitor {
    /// Starts it as the quorum's client `outside` on this node, and waits until every member has answered.
    pub(crate) async fn start(quorum: &Quorum, node: usize) -> anyhow::Result<Self> {
        let mut command = quorum.bench.cluster.faults.on_node(node)?;
        command.arg(std::env::current_exe()?).arg(monitor::COMMAND);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let (seen, count) = watch::channel(0);
        let kept = attempts.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some(attempt) = monitor::parse(&line) else { continue };
                let mut attempts = kept.lock().unwrap_or_else(PoisonError::into_inner);
                attempts.push(attempt);
                seen.send_replace(attempts.len());
            }
        });
        let mut monitor = Self { attempts, count, stdin, _child: child };
        for target in monitor.follow(quorum).await? {
            monitor.until(SOON, "an answer", |attempt| attempt.member == target).await?;
        }
        Ok(monitor)
    }

    /// Reads the client's Secret and goes on with what it says: new members, passwords or certificates. Gives the names of the
    /// members.
    pub(crate) async fn follow(&mut self, quorum: &Quorum) -> anyhow::Result<Vec<String>> {
        let targets = targets(quorum).await?;
        self.stdin.write_all(format!("{}\n", serde_json::to_string(&targets)?).as_bytes()).await?;
        Ok(targets.into_iter().map(|target| target.member).collect())
    }

    /// Everything so far.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first attempt for which this is true, once there is one.
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
                let fresh = self.attempts().split_off(next);
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
}

async fn targets(quorum: &Quorum) -> anyhow::Result<Vec<Target>> {
    let bench = &quorum.bench;
    let login = Login::of(quorum).await?;
    let secret = bench.api::<Secret>().get(&format!("{}-auth", quorum.name)).await?;
    let auth = Auth::from_data(&secret.data.unwrap_or_default()).context("the auth Secret is not the operator's")?;
    let authorities = login.ca.map(String::from_utf8).transpose()?;
    login.urls.lines().map(|url| target(url, &bench.namespace, &auth, authorities.as_ref())).collect()
}

/// From `redis://user:password@member.namespace.svc:port`.
fn target(url: &str, namespace: &str, auth: &Auth, authorities: Option<&String>) -> anyhow::Result<Target> {
    let parts = || {
        let (scheme, rest) = url.split_once("://")?;
        let (login, address) = rest.split_once('@')?;
        Some((scheme, login.split_once(':')?, address.rsplit_once(':')?))
    };
    // Not with the URL: it has a password.
    let (scheme, (user, password), (host, port)) = parts().context("a URL of another form")?;
    let member = host.split('.').next().unwrap_or(host).to_owned();
    Ok(Target {
        operator_password: auth.password(&member, OPERATOR_USER).expose().to_owned(),
        member,
        host: host.to_owned(),
        port: port.parse()?,
        authorities: authorities.filter(|_| scheme == "rediss").cloned(),
        user: user.to_owned(),
        password: password.to_owned(),
        key_prefix: format!("{namespace}/"),
    })
}

/// What was seen of one process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Count {
    pub(crate) votes: usize,
    pub(crate) refusals: usize,
}

/// Votes and refusals by member and `run_id`.
#[derive(Debug, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<(String, String), Count>);

impl Tally {
    /// The processes of a member that were seen.
    pub(crate) fn processes(&self, member: &str) -> usize {
        self.0.keys().filter(|(name, _)| name == member).count()
    }

    /// Of all processes together.
    pub(crate) fn votes(&self) -> usize {
        self.0.values().map(|count| count.votes).sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.0.iter();
        lines.try_for_each(|((member, run_id), Count { votes, refusals })| {
            writeln!(f, "  {member} {}: {votes} votes, {refusals} refusals", run_id.get(..8).unwrap_or(run_id))
        })
    }
}

/// When one process might vote, by what the status said.
#[derive(Clone, Copy, Debug)]
struct Admission {
    from: i64,
    until: Option<i64>,
}

/// Every vote was given by a process that was admitted: at the answer its admission was on record, and at the question it had
/// not been taken back for longer than closing takes. `versions` must go back to before the first attempt. A process is
/// known by its `run_id`, read on the very connection that the attempt went over.
pub(crate) fn check_votes(versions: &[Version<RedisQuorum>], attempts: &[Attempt]) -> anyhow::Result<Tally> {
    let admissions = admissions(versions);
    let mut tally = Tally::default();
    for attempt in attempts {
        let process = (attempt.member.clone(), attempt.run_id.clone());
        let known = admissions.get(&process).map(Vec::as_slice).unwrap_or_default();
        let admitted = |admission: &Admission| {
            attempt.received >= admission.from && admission.until.is_none_or(|until| attempt.sent <= until)
        };
        ensure!(
            !attempt.voted || known.iter().any(admitted),
            "a vote was given by a process that was not admitted: {attempt:?}; its admissions: {known:?}"
        );
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
                (MemberState::Admitted, Some(at)) if known.last().is_none_or(|last| last.from < at.as_millis()) => {
                    known.push(Admission { from: at.as_millis(), until: None });
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
