//! Reads the holder of a lock, and acquires nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::builder::CONNECT;
use super::error::BuildError;
use super::member_endpoints::{TlsSettings, endpoints, parsed};
use super::secret_entries::SecretEntries;
use super::{POLL_INTERVAL, locked};
use crate::redlock::{
    Answers, BoxFuture, Command, Drift, KeyState, LockKey, LockMember, MemberError, MemberName, MemberReading, Owner,
    Reading, Reply, reading,
};
use crate::time::SystemClock;
use crate::voting::{Access, Endpoint, Link, Machine, RedisMember};

/// Minimum wait for the other members after a majority has the value.
///
/// One of them can have a later renewal.
const MIN_GRACE: Duration = Duration::from_millis(2);

/// Reads the holder of a lock and its validity.
///
/// It uses the Secret of a client that only reads (`access: Read`), or of any other client of an operator.
///
/// It takes nothing and changes nothing.
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
    trust: Mutex<TlsSettings>,
    state: Mutex<State>,
}

/// The state of a lock, and members without a valid answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ReadResult {
    /// The state of the lock from all answers.
    pub reading: Reading,
    /// Members that failed, with the reason.
    pub failures: Vec<(MemberName, MemberError)>,
}

/// The settings of a [`Reader`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `connect` or `build`"]
pub struct ReaderBuilder {
    secret: SecretEntries,
    trust: TlsSettings,
}

#[derive(Clone)]
struct State {
    members: Vec<Arc<RedisMember>>,
    /// Positions in `members` of the voters, and during a change of the former voters.
    lists: Vec<Vec<usize>>,
    max_ttl: Duration,
    drift: Drift,
    node_timeout: Duration,
}

impl ReaderBuilder {
    /// The TLS configuration for members with `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.trust.tls = Some(config);
        self
    }

    /// The maximum time of one reading.
    ///
    /// The default is the Secret's timeout of one command.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.secret.node_timeout = timeout;
        self
    }

    /// Makes the reader and waits until it reaches a majority, at most one second.
    ///
    /// # Errors
    /// If the settings are invalid. Unreachable members are no error: the reader tries again.
    ///
    /// # Cancel safety
    /// Dropping the future drops the reader.
    pub async fn connect(self) -> Result<Reader, BuildError> {
        let reader = self.build()?;
        let reached = async {
            while !locked(&reader.state).is_connected() {
                sleep(POLL_INTERVAL).await;
            }
        };
        let _ = timeout(CONNECT, reached).await;
        Ok(reader)
    }

    /// Makes the reader, which connects in the background.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn build(self) -> Result<Reader, BuildError> {
        self.build_on(Machine::from(Arc::new(SystemClock)))
    }

    /// Makes the reader like [`ReaderBuilder::build`] on another clock and network, for tests.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn build_on(self, machine: Machine) -> Result<Reader, BuildError> {
        tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let state = State::new(&self.secret, &self.trust, &machine, &[])?;
        Ok(Reader { machine, trust: Mutex::new(self.trust), state: Mutex::new(state) })
    }
}

impl State {
    /// Makes the state, and keeps connections to members that have stayed.
    fn new(
        secret: &SecretEntries,
        trust: &TlsSettings,
        machine: &Machine,
        current: &[Arc<RedisMember>],
    ) -> Result<Self, BuildError> {
        let mut wanted = endpoints(&parsed(&secret.urls)?, trust)?;
        let mut lists = vec![(0..wanted.len()).collect()];
        if !secret.former_urls.is_empty() {
            let former = endpoints(&parsed(&secret.former_urls)?, trust)?;
            let position = |(name, endpoint): (MemberName, Endpoint)| {
                let found = wanted.iter().position(|(other, _)| *other == name);
                found.unwrap_or_else(|| {
                    wanted.push((name, endpoint));
                    wanted.len() - 1
                })
            };
            lists.push(former.into_iter().map(position).collect());
        }
        let of_name = |name: &MemberName| current.iter().find(|member| member.name() == name);
        let missing = wanted.iter().filter(|(name, _)| of_name(name).is_none()).cloned().collect();
        let mut made = RedisMember::all(missing, machine.clone(), Access::Reader).into_iter().map(Arc::new);
        let member = |(name, endpoint): (MemberName, Endpoint)| {
            let Some(member) = of_name(&name) else { return made.next() };
            member.set_endpoint(endpoint);
            Some(Arc::clone(member))
        };
        let members = wanted.into_iter().filter_map(member).collect();
        let SecretEntries { max_ttl, drift, node_timeout, .. } = *secret;
        Ok(Self { members, lists, max_ttl, drift, node_timeout })
    }

    fn is_connected(&self) -> bool {
        let is_open = |position: &&usize| {
            let member = self.members.get(**position);
            member.is_some_and(|member| matches!(*member.link().borrow(), Link::Open(_)))
        };
        self.lists.iter().all(|list| list.iter().filter(is_open).count() > list.len() / 2)
    }

    fn by_list(&self, readings: &[MemberReading]) -> Vec<Vec<MemberReading>> {
        let of = |position: &usize| readings.get(*position).cloned().unwrap_or(MemberReading::Silent);
        self.lists.iter().map(|list| list.iter().map(of).collect()).collect()
    }
}

impl Reader {
    /// Reads the Secret that an operator gives to a client.
    ///
    /// # Errors
    /// If an entry is missing or unreadable.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<ReaderBuilder, BuildError> {
        Ok(ReaderBuilder { secret: SecretEntries::read(data)?, trust: TlsSettings::default() })
    }

    /// Applies a changed Secret.
    ///
    /// Call it whenever the Secret has changed, and at least once in the maximum time to live. A reader with former
    /// members can report a lock that its holder has lost among the current ones. Connections to members that have
    /// stayed are kept, also with new passwords.
    ///
    /// # Errors
    /// If an entry is missing or unreadable. The reader keeps its members then.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn update(&self, data: &BTreeMap<String, Vec<u8>>) -> Result<(), BuildError> {
        let secret = SecretEntries::read(data)?;
        let trust = locked(&self.trust).clone();
        let mut state = locked(&self.state);
        *state = State::new(&secret, &trust, &self.machine, &state.members)?;
        Ok(())
    }

    /// Sets the TLS configuration for the next [`Reader::update`].
    ///
    /// The new configuration can have another certificate authority, for example.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, config: Arc<rustls::ClientConfig>) {
        locked(&self.trust).tls = Some(config);
    }

    /// Reads the key on all members, in at most one node timeout, and decides the state of the lock.
    ///
    /// The validity begins before the first request, on a clock that also runs in suspend, less drift. It never exceeds
    /// the maximum time to live of the quorum.
    ///
    /// # Cancel safety
    /// It changes nothing, so it can be dropped and called again.
    pub async fn read(&self, key: impl Into<LockKey>, owner: &Owner) -> ReadResult {
        let state = locked(&self.state).clone();
        let command = [Command::Inspect { key: key.into() }];
        let started = self.machine.clock.boottime();
        let decide = |readings: &[MemberReading]| match reading(&state.by_list(readings), owner, started, state.drift) {
            Reading::Held { value, valid_until } => {
                Reading::Held { value, valid_until: valid_until.min(started + state.max_ttl) }
            }
            other => other,
        };
        let mut pending =
            PendingReads(state.members.iter().map(|member| Some(member.send(command.to_vec()))).collect());
        let mut readings = vec![MemberReading::Silent; state.members.len()];
        let mut failures: Vec<_> = state.members.iter().map(|_| Some(MemberError::TimedOut)).collect();
        let mut end = std::pin::pin!(sleep(state.node_timeout));
        let mut has_grace = false;
        while let Some((index, answer)) = poll_fn(|cx| match pending.poll(cx) {
            Poll::Pending => end.as_mut().poll(cx).map(|()| None),
            ready => ready,
        })
        .await
        {
            match answer.and_then(reading_of) {
                Ok(reading) => (readings[index], failures[index]) = (reading, None),
                Err(error) => failures[index] = Some(error),
            }
            if !has_grace && matches!(decide(&readings), Reading::Held { .. }) {
                has_grace = true;
                let passed = self.machine.clock.boottime().since(started);
                end.set(sleep(passed.max(MIN_GRACE).min(state.node_timeout.saturating_sub(passed))));
            }
        }
        let name =
            |(member, failure): (&Arc<RedisMember>, Option<MemberError>)| Some((member.name().clone(), failure?));
        let failures = state.members.iter().zip(failures).filter_map(name).collect();
        ReadResult { reading: decide(&readings), failures }
    }
}

/// The reading of one member.
///
/// A key without a time to live is no lock.
fn reading_of(answers: Answers) -> Result<MemberReading, MemberError> {
    match answers.replies.into_first() {
        Some(Reply::State(KeyState::String { value, remaining: Some(remaining) })) => {
            Ok(MemberReading::Value(value, remaining))
        }
        Some(Reply::State(_)) => Ok(MemberReading::Nothing),
        Some(Reply::Failed(error)) => Err(error),
        _ => Err(MemberError::Other("unexpected answer".to_owned())),
    }
}

/// Answers that have not arrived.
struct PendingReads(Vec<Option<BoxFuture<'static, Result<Answers, MemberError>>>>);

impl PendingReads {
    /// The next answer with the index of its member.
    ///
    /// `None` when all have answered.
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
        f.debug_struct("Reader").field("members", &locked(&self.state).members).finish_non_exhaustive()
    }
}
