//! Reads who holds a lock, and takes none.

use super::endpoints::{Trust, endpoints, parsed};
use super::error::BuildError;
use super::secret::Described;
use crate::redlock::{
    Answers, BoxFuture, Command, Drift, KeyState, LockKey, LockMember, MemberError, MemberName, MemberReading, Owner,
    Reading, Reply, reading,
};
use crate::time::SystemClock;
use crate::voting::{Access, Endpoint, Link, Machine, RedisMember};
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// When a majority shows the value, the others are waited for at least so long: one of them may know of a later renewal.
const LEAST_GRACE: Duration = Duration::from_millis(2);
/// How long [`ReaderBuilder::connect`] waits for a majority.
const CONNECT: Duration = Duration::from_secs(1);
/// The pause between two checks for connections.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Reads who holds a lock and for how long, with the Secret of a client that only reads (`access: Read`), or of any
/// other client of an operator. It takes nothing and changes nothing.
///
/// ```no_run
/// use redlock_client::{Reader, Reading, Owner};
///
/// # async fn example(secret: std::collections::BTreeMap<String, Vec<u8>>, nonce: redlock_client::Nonce)
/// # -> Result<(), redlock_client::BuildError> {
/// let reader = Reader::from_secret(&secret)?.connect().await?;
/// // The first reading is by the nonce in the status of a DistributedLock; the next ones are by the value that was found.
/// if let Reading::Held { value, .. } = reader.read("shop/reindex", &Owner::Nonce(nonce)).await.reading {
///     let again = reader.read("shop/reindex", &Owner::Value(value)).await;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    machine: Machine,
    trust: Trust,
    state: Mutex<State>,
}

/// What members said, and who said nothing that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ReadResult {
    /// What they say together.
    pub reading: Reading,
    /// Who failed, and how.
    pub failures: Vec<(MemberName, MemberError)>,
}

/// How to read.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `connect` or `build`"]
pub struct ReaderBuilder {
    described: Described,
    trust: Trust,
}

#[derive(Clone)]
struct State {
    members: Vec<Arc<RedisMember>>,
    /// Positions in `members`: of those that vote, and while they change of those before.
    lists: Vec<Vec<usize>>,
    max_ttl: Duration,
    drift: Drift,
    node_timeout: Duration,
}

impl ReaderBuilder {
    /// How to speak TLS to members with `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.trust.tls = Some(config);
        self
    }

    /// How long one reading may take: what the Secret says for one command.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.described.node_timeout = timeout;
        self
    }

    /// Makes the reader and waits until it reaches a majority, at most one second.
    ///
    /// # Errors
    /// If it cannot work as it is described. Members that are not reached are no error: it goes on trying.
    ///
    /// # Cancel safety
    /// Dropping the future drops the reader.
    pub async fn connect(self) -> Result<Reader, BuildError> {
        let reader = self.build()?;
        let reached = async {
            while !reader.state().is_connected() {
                sleep(POLL_INTERVAL).await;
            }
        };
        let _ = timeout(CONNECT, reached).await;
        Ok(reader)
    }

    /// Makes the reader, which connects in the background.
    ///
    /// # Errors
    /// If it cannot work as it is described.
    pub fn build(self) -> Result<Reader, BuildError> {
        self.build_on(Machine::from(Arc::new(SystemClock)))
    }

    /// The same with another clock and another network than this machine's, for tests.
    ///
    /// # Errors
    /// If it cannot work as it is described.
    pub fn build_on(self, machine: Machine) -> Result<Reader, BuildError> {
        tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let state = State::new(&self.described, &self.trust, &machine, &[])?;
        Ok(Reader { machine, trust: self.trust, state: Mutex::new(state) })
    }
}

impl State {
    /// Keeps the connections of members that are where they were.
    fn new(
        described: &Described,
        trust: &Trust,
        machine: &Machine,
        known: &[Arc<RedisMember>],
    ) -> Result<Self, BuildError> {
        let mut wanted = endpoints(&parsed(&described.urls)?, trust)?;
        let mut lists = vec![(0..wanted.len()).collect()];
        if !described.former_urls.is_empty() {
            let former = endpoints(&parsed(&described.former_urls)?, trust)?;
            let position = |(name, endpoint): (MemberName, Endpoint)| {
                let found = wanted.iter().position(|(known, _)| *known == name);
                found.unwrap_or_else(|| {
                    wanted.push((name, endpoint));
                    wanted.len() - 1
                })
            };
            lists.push(former.into_iter().map(position).collect());
        }
        let of_name = |name: &MemberName| known.iter().find(|member| member.name() == name);
        let missing = wanted.iter().filter(|(name, _)| of_name(name).is_none()).cloned().collect();
        let mut made = RedisMember::all(missing, machine.clone(), Access::Reader).into_iter().map(Arc::new);
        let member = |(name, endpoint): (MemberName, Endpoint)| {
            let Some(member) = of_name(&name) else { return made.next() };
            member.set_endpoint(endpoint);
            Some(Arc::clone(member))
        };
        let members = wanted.into_iter().filter_map(member).collect();
        let Described { max_ttl, drift, node_timeout, .. } = *described;
        Ok(Self { members, lists, max_ttl, drift, node_timeout })
    }

    fn is_connected(&self) -> bool {
        let is_open = |position: &&usize| {
            let member = self.members.get(**position);
            member.is_some_and(|member| matches!(*member.link().borrow(), Link::Open(_)))
        };
        self.lists.iter().all(|list| list.iter().filter(is_open).count() > list.len() / 2)
    }

    fn of_lists(&self, shown: &[MemberReading]) -> Vec<Vec<MemberReading>> {
        let of = |position: &usize| shown.get(*position).cloned().unwrap_or(MemberReading::Silent);
        self.lists.iter().map(|list| list.iter().map(of).collect()).collect()
    }
}

impl Reader {
    /// By the Secret that an operator gives to a client.
    ///
    /// # Errors
    /// If an entry is missing or cannot be read.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<ReaderBuilder, BuildError> {
        Ok(ReaderBuilder { described: Described::read(data)?, trust: Trust::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with the Secret as it is now. Call it whenever the Secret has changed, and at least once in the longest time to live: a
    /// reader with the members of before may see a lock that its holder has lost among those of now. Connections to members that have
    /// stayed are kept, also with new passwords.
    ///
    /// # Errors
    /// If an entry is missing or cannot be read; the reader goes on as before.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn update(&self, data: &BTreeMap<String, Vec<u8>>) -> Result<(), BuildError> {
        let described = Described::read(data)?;
        let mut state = self.state();
        *state = State::new(&described, &self.trust, &self.machine, &state.members)?;
        Ok(())
    }

    /// Asks all members for the key, at most for one node timeout, and decides what they say together. Time counts from before the
    /// question, on a clock that runs on in suspend, less drift, and never beyond the longest lock of the quorum.
    ///
    /// # Cancel safety
    /// It changes nothing, so it can be dropped and called again.
    pub async fn read(&self, key: impl Into<LockKey>, owner: &Owner) -> ReadResult {
        let state = self.state().clone();
        let command = [Command::Inspect { key: key.into() }];
        let asked = self.machine.clock.boottime();
        let decide = |readings: &[MemberReading]| match reading(&state.of_lists(readings), owner, asked, state.drift) {
            Reading::Held { value, valid_until } => {
                Reading::Held { value, valid_until: valid_until.min(asked + state.max_ttl) }
            }
            other => other,
        };
        let mut asking = Asking(state.members.iter().map(|member| Some(member.send(command.to_vec()))).collect());
        let mut readings = vec![MemberReading::Silent; state.members.len()];
        let mut failures: Vec<_> = state.members.iter().map(|_| Some(MemberError::TimedOut)).collect();
        let mut end = std::pin::pin!(sleep(state.node_timeout));
        let mut has_grace = false;
        while let Some((index, answer)) = poll_fn(|cx| match asking.poll(cx) {
            Poll::Pending => end.as_mut().poll(cx).map(|()| None),
            ready => ready,
        })
        .await
        {
            match answer.and_then(of_member) {
                Ok(reading) => (readings[index], failures[index]) = (reading, None),
                Err(error) => failures[index] = Some(error),
            }
            if !has_grace && matches!(decide(&readings), Reading::Held { .. }) {
                has_grace = true;
                let passed = self.machine.clock.boottime().since(asked);
                end.set(sleep(passed.max(LEAST_GRACE).min(state.node_timeout.saturating_sub(passed))));
            }
        }
        let name =
            |(member, failure): (&Arc<RedisMember>, Option<MemberError>)| Some((member.name().clone(), failure?));
        let failures = state.members.iter().zip(failures).filter_map(name).collect();
        ReadResult { reading: decide(&readings), failures }
    }
}

/// What a member said of the key. One without a time to live is no lock.
fn of_member(answers: Answers) -> Result<MemberReading, MemberError> {
    match answers.replies.into_first() {
        Some(Reply::State(KeyState::String { value, remaining: Some(remaining) })) => {
            Ok(MemberReading::Value(value, remaining))
        }
        Some(Reply::State(_)) => Ok(MemberReading::Nothing),
        Some(Reply::Failed(error)) => Err(error),
        _ => Err(MemberError::Other("unexpected answer".to_owned())),
    }
}

/// Answers that are still to come.
struct Asking(Vec<Option<BoxFuture<'static, Result<Answers, MemberError>>>>);

impl Asking {
    /// The next answer and whose it is; `None` when all have answered.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<Answers, MemberError>)>> {
        for (index, waiting) in self.0.iter_mut().enumerate() {
            if let Some(answer) = waiting
                && let Poll::Ready(answer) = answer.as_mut().poll(cx)
            {
                *waiting = None;
                return Poll::Ready(Some((index, answer)));
            }
        }
        if self.0.iter().all(Option::is_none) { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("members", &self.state().members).finish_non_exhaustive()
    }
}
