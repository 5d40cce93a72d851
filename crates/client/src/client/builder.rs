//! The settings of a client, and their defaults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Client;
use super::closing::Closing;
use super::error::BuildError;
use super::event::{Event, Observer};
use super::hints::Hints;
use super::inner::{Inner, LockSettings};
use super::local_queue::LocalQueue;
use super::member_endpoints::{TlsSettings, endpoints, parsed};
use super::member_set::{Member, MemberSet};
use super::renewer::Renewer;
use super::secret_entries::SecretEntries;
use super::url::MemberUrl;
use crate::redlock::{Drift, LockMember, MemberName, Redlock, Settings, rejoin_delay};
use crate::time::SystemClock;
use crate::voting::{Access, Endpoint, Listener, Machine, Notification, RedisMember};

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
    admission: Admission,
    node_timeout: Duration,
    drift: Drift,
    locks: LockSettings,
    trust: TlsSettings,
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
        Builder::new(self.0, Admission::After(max_ttl))
    }

    /// Admits members as soon as they are connected.
    ///
    /// A master that restarts without its memory can grant a lock to a second holder while the first one has it.
    pub fn admit_at_once(self) -> Builder {
        Builder::new(self.0, Admission::AtOnce)
    }
}

/// The rule for a process that a client has not observed before.
#[derive(Clone, Copy, Debug)]
enum Admission {
    /// An operator fences it as long as necessary, for locks up to this time to live.
    Fenced(Duration),
    /// It can vote after every promise of its predecessor for locks up to this time to live has expired.
    After(Duration),
    /// It can vote at once, regardless of the promises of its predecessor.
    AtOnce,
}

impl Builder {
    fn new(urls: Result<Vec<MemberUrl>, BuildError>, admission: Admission) -> Self {
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
        let builder = Self::new(parsed(urls), Admission::Fenced(max_ttl));
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
        client.0.members.check()?;
        Ok(client)
    }

    /// Makes the client, which connects in the background.
    ///
    /// An attempt before the connection fails with [`super::NotAcquired::NoQuorum`].
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn build(self) -> Result<Client, BuildError> {
        self.build_on(Machine::from(Arc::new(SystemClock)))
    }

    /// Makes the client like [`Builder::build`] on another clock and network, for tests.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn build_on(mut self, machine: Machine) -> Result<Client, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let endpoints = endpoints(self.urls.as_ref().map_err(Clone::clone)?, &self.trust)?;
        let (_, longest_ttl) = self.admission();
        if !(Duration::from_millis(1)..=MAX_TTL).contains(&longest_ttl) {
            return Err(BuildError::MaxTtl);
        }
        if self.drift.allowance(longest_ttl) >= longest_ttl {
            return Err(BuildError::Drift);
        }
        self.locks.ttl = self.locks.ttl.min(longest_ttl);
        Ok(self.start(machine, runtime, endpoints))
    }

    /// Makes the client, and starts its tasks.
    fn start(self, machine: Machine, runtime: Handle, endpoints: Vec<(MemberName, Endpoint)>) -> Client {
        let (admission_delay, longest_ttl) = self.admission();
        let is_fenced = matches!(self.admission, Admission::Fenced(_));
        let access = if is_fenced { Access::Client } else { Access::Full };
        let listener_endpoints: Vec<_> = endpoints.iter().map(|(_, to)| watch::Sender::new(to.clone())).collect();
        let redis: Vec<_> = RedisMember::all(endpoints, machine.clone(), access).into_iter().map(Arc::new).collect();
        let (clock, observer) = (Arc::clone(&machine.clock), self.locks.observer.clone());
        let settings = Settings { drift: self.drift, node_timeout: self.node_timeout };
        let mut redlock = Redlock::new(Arc::clone(&clock), settings);
        if is_fenced {
            redlock = redlock.with_token_reach(CLIENT_TOKEN_REACH);
        }
        let member = |member: &Arc<RedisMember>| Member {
            member: Arc::clone(member) as Arc<dyn LockMember>,
            link: member.link(),
        };
        let members = redis.iter().map(member).collect();
        let restores = self.locks.tokens && !is_fenced;
        let members = MemberSet::new(members, Arc::clone(&clock), admission_delay, restores, observer.clone());
        let members = Arc::new(members);
        let renewer = Arc::new(Renewer::new(Arc::clone(&clock), observer));
        let hints = Arc::new(Hints::new(redlock.clone(), Arc::clone(&members), runtime));
        let mut tasks = vec![
            tokio::spawn(Arc::clone(&members).follow(self.node_timeout)),
            tokio::spawn(Arc::clone(&renewer).run(redlock.clone(), Arc::clone(&members))),
            tokio::spawn(Arc::clone(&hints).run_cleanup()),
        ];
        tasks.extend(listener_endpoints.iter().enumerate().map(|(member, endpoint)| {
            let receiver = Arc::clone(&hints);
            let on_notification = move |notification: Notification<'_>| receiver.on_notification(member, notification);
            tokio::spawn(Listener::new(endpoint.subscribe(), machine.clone(), hints.wanted(), on_notification).run())
        }));
        Client(Arc::new(Inner {
            redlock,
            clock,
            members,
            redis,
            listener_endpoints,
            secret: self.secret,
            trust: Mutex::new(self.trust),
            renewer,
            local_queue: LocalQueue::default(),
            hints,
            settings: self.locks,
            longest_ttl,
            closing: Closing::default(),
            tasks,
        }))
    }

    /// How long a process that the client has not observed before cannot vote, and the maximum time to live of locks.
    fn admission(&self) -> (Duration, Duration) {
        match self.admission {
            Admission::Fenced(max_ttl) => (Duration::ZERO, max_ttl),
            Admission::After(max_ttl) => (rejoin_delay(max_ttl, self.drift, self.node_timeout), max_ttl),
            Admission::AtOnce => (Duration::ZERO, MAX_TTL),
        }
    }
}
