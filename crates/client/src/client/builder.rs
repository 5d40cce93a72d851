//! The settings of a client, and their defaults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Client;
use super::admission::Admission;
use super::error::BuildError;
use super::event::{Event, Observer};
use super::member_endpoints::{TlsSettings, endpoints, parsed};
use super::member_set::Member;
use super::secret_entries::SecretEntries;
use super::url::MemberUrl;
use crate::redlock::{Drift, LockMember, Settings};
use crate::time::SystemClock;
use crate::voting::{Access, Endpoint, Machine, RedisMember};

/// Maximum difference of counters for a client that can only INCR them.
const CLIENT_TOKEN_REACH: u32 = 1_000;
const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// Maximum wait of [`Builder::connect`] and [`super::ReaderBuilder::connect`] for a majority.
pub(super) const CONNECT: Duration = Duration::from_secs(1);

/// The settings of a [`Client`].
///
/// Each method describes its default.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `connect` or `build`"]
pub struct Builder {
    urls: Result<Vec<MemberUrl>, BuildError>,
    /// The entries of the operator's Secret.
    secret: Option<SecretEntries>,
    admission: AdmissionChoice,
    node_timeout: Duration,
    drift: Drift,
    locks: LockSettings,
    trust: TlsSettings,
}

/// The settings of attempts and guards.
#[derive(Clone, Debug)]
pub(super) struct LockSettings {
    pub(super) key_prefix: String,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
    pub(super) retry: Duration,
    pub(super) margin: Duration,
    pub(super) tokens: bool,
    pub(super) observer: Observer,
}

/// The members of a client, by URL.
///
/// The next call chooses their admission.
#[derive(Clone, Debug)]
#[must_use = "choose how members are admitted"]
pub struct Masters(Result<Vec<MemberUrl>, BuildError>);

impl Masters {
    pub(super) fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self(parsed(urls))
    }

    /// Admits a new process after every lock of `max_ttl` or less from its predecessor has expired.
    ///
    /// A restarted master cannot grant a lock that another client still holds.
    ///
    /// The client also waits after its first start. Until then attempts fail with [`super::NotAcquired::Waiting`]. `max_ttl` must be the
    /// maximum time to live of the locks of all programs on these members.
    pub fn wait_before_voting(self, max_ttl: Duration) -> Builder {
        Builder::new(self.0, AdmissionChoice::After(max_ttl))
    }

    /// Admits members as soon as they are connected.
    ///
    /// A master that restarts without its memory can grant a lock to a second holder while the first one has it.
    pub fn admit_at_once(self) -> Builder {
        Builder::new(self.0, AdmissionChoice::AtOnce)
    }
}

/// The chosen admission.
///
/// Its delay depends on drift and node timeout.
#[derive(Clone, Copy, Debug)]
enum AdmissionChoice {
    /// The operator's fence covers locks up to this time to live.
    Fenced(Duration),
    After(Duration),
    AtOnce,
}

/// All settings of a client.
pub(super) struct Config {
    pub(super) members: Vec<Member>,
    pub(super) redis: Vec<Arc<RedisMember>>,
    /// Endpoints of the listeners.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) secret: Option<SecretEntries>,
    pub(super) trust: TlsSettings,
    pub(super) machine: Machine,
    pub(super) runtime: Handle,
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) locks: LockSettings,
    pub(super) longest_ttl: Duration,
    pub(super) token_reach: Option<u32>,
    pub(super) restores: bool,
}

impl Builder {
    fn new(urls: Result<Vec<MemberUrl>, BuildError>, admission: AdmissionChoice) -> Self {
        Self {
            urls,
            secret: None,
            admission,
            node_timeout: Settings::default().node_timeout,
            drift: Drift::default(),
            locks: LockSettings {
                key_prefix: String::new(),
                ttl: Duration::from_secs(10),
                wait: Duration::from_secs(60),
                retry: Duration::from_millis(100),
                margin: Duration::from_millis(10),
                tokens: true,
                observer: Observer::default(),
            },
            trust: TlsSettings::default(),
        }
    }

    pub(super) fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, BuildError> {
        let secret = SecretEntries::read(data)?;
        let SecretEntries { urls, key_prefix, max_ttl, drift, node_timeout, .. } = secret.clone();
        let builder = Self::new(parsed(urls), AdmissionChoice::Fenced(max_ttl));
        let locks = LockSettings { key_prefix, ..builder.locks };
        Ok(Self { locks, drift, node_timeout, secret: Some(secret), ..builder })
    }

    /// The timeout of one command to one member: 50 ms, or the value in the Secret.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// The maximum drift of two clocks: 1 % and 2 ms, or the value in the Secret.
    ///
    /// Each validity is shorter by the drift.
    pub const fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// The time to live of locks without [`super::Lock::ttl`]: 10 s by default.
    ///
    /// If the maximum of this client is less, the default is that maximum.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.locks.ttl = ttl;
        self
    }

    /// The maximum wait of [`super::Lock::acquire`] without [`super::Lock::wait`]: a minute.
    pub const fn wait(mut self, longest: Duration) -> Self {
        self.locks.wait = longest;
        self
    }

    /// The maximum pause between two attempts of [`super::Lock::acquire`]: 100 ms by default.
    ///
    /// Each pause is shorter by a random part of up to a half.
    pub const fn retry(mut self, longest: Duration) -> Self {
        self.locks.retry = longest;
        self
    }

    /// The time before the end of the validity at which a loss is reported: 10 ms.
    ///
    /// [`super::Guard::run_while_held`] ends the future then.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.locks.margin = margin;
        self
    }

    /// Locks without tokens, for masters whose user has no permission to INCR the counter `#token`.
    ///
    /// Every token is then zero.
    pub const fn without_token(mut self) -> Self {
        self.locks.tokens = false;
        self
    }

    /// Sets a callback for events, for example for metrics.
    ///
    /// It must return quickly and must not block.
    pub fn on_event(mut self, observe: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        self.locks.observer = Observer::new(observe);
        self
    }

    /// The TLS configuration for members with `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.trust.tls = Some(config);
        self
    }

    /// Makes the client and waits until it reaches a majority, at most one second.
    ///
    /// # Errors
    /// If the settings are invalid, or a member that answers can never vote for it. Unreachable members are no error, because the client
    /// tries again.
    ///
    /// # Cancel safety
    /// Dropping the future drops the client.
    pub async fn connect(self) -> Result<Client, BuildError> {
        self.connect_on(Machine::from(Arc::new(SystemClock))).await
    }

    /// Makes the client like [`Builder::connect`] on another clock and network, for tests.
    ///
    /// # Errors
    /// As [`Builder::connect`].
    ///
    /// # Cancel safety
    /// As [`Builder::connect`].
    pub async fn connect_on(self, machine: Machine) -> Result<Client, BuildError> {
        let client = self.build_on(machine)?;
        client.reach_majority(CONNECT).await;
        client.check()?;
        Ok(client)
    }

    /// Makes the client, which connects in the background.
    ///
    /// An attempt before the connection fails with [`super::NotAcquired::NoQuorum`].
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn build(self) -> Result<Client, BuildError> {
        let machine = Machine::from(Arc::new(SystemClock));
        self.build_on(machine)
    }

    /// Makes the client like [`Builder::build`] on another clock and network, for tests.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn build_on(self, machine: Machine) -> Result<Client, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let endpoints = endpoints(self.urls.as_ref().map_err(Clone::clone)?, &self.trust)?;
        let (admission, longest_ttl) = self.admission();
        if !(Duration::from_millis(1)..=MAX_TTL).contains(&longest_ttl) {
            return Err(BuildError::MaxTtl);
        }
        if self.drift.allowance(longest_ttl) >= longest_ttl {
            return Err(BuildError::Drift);
        }
        let is_direct = matches!(self.admission, AdmissionChoice::Fenced(_));
        let access = if is_direct { Access::Client } else { Access::Full };
        let hints = endpoints.iter().map(|(_, endpoint)| endpoint.clone()).collect();
        let redis: Vec<_> = RedisMember::all(endpoints, machine.clone(), access).into_iter().map(Arc::new).collect();
        let member = |member: &Arc<RedisMember>| Member {
            member: Arc::clone(member) as Arc<dyn LockMember>,
            link: member.link(),
        };
        let members = redis.iter().map(member).collect();
        let ttl = self.locks.ttl.min(longest_ttl);
        Ok(Client::from_config(Config {
            members,
            redis,
            endpoints: hints,
            secret: self.secret,
            trust: self.trust,
            machine,
            runtime,
            settings: Settings { drift: self.drift, node_timeout: self.node_timeout },
            admission,
            restores: self.locks.tokens && !is_direct,
            locks: LockSettings { ttl, ..self.locks },
            longest_ttl,
            token_reach: is_direct.then_some(CLIENT_TOKEN_REACH),
        }))
    }

    /// The admission of members, and the maximum time to live of locks.
    fn admission(&self) -> (Admission, Duration) {
        match self.admission {
            AdmissionChoice::Fenced(max_ttl) => (Admission::Fenced, max_ttl),
            AdmissionChoice::After(max_ttl) => (Admission::after(max_ttl, self.drift, self.node_timeout), max_ttl),
            AdmissionChoice::AtOnce => (Admission::AtOnce, MAX_TTL),
        }
    }
}
