use super::Client;
use super::admission::Admission;
use super::endpoints::{Trust, endpoints, parsed};
use super::error::BuildError;
use super::event::{Event, Observer};
use super::members::Member;
use super::secret::Described;
use super::url::MemberUrl;
use crate::redlock::{Drift, LockMember, Settings};
use crate::time::{Clock, SystemClock};
use crate::voting::{Access, Endpoint, Machine, RedisMember};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// So far apart counters may be for a client that can only INCR them.
const CLIENTS_REACH: u32 = 1_000;
const LONGEST_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long [`Builder::connect`] waits for a majority.
const CONNECT: Duration = Duration::from_secs(1);

/// How to lock; see the methods for what it does by default.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `connect` or `build`"]
pub struct Builder {
    urls: Result<Vec<MemberUrl>, BuildError>,
    /// What the Secret of an operator says.
    described: Option<Described>,
    admission: Kind,
    key_prefix: String,
    node_timeout: Duration,
    drift: Drift,
    ttl: Duration,
    wait: Duration,
    retry: Duration,
    margin: Duration,
    tokens: bool,
    observer: Observer,
    trust: Trust,
}

/// Members by URL, before it is chosen how they are admitted.
#[derive(Clone, Debug)]
#[must_use = "choose how members are admitted"]
pub struct Masters(Result<Vec<MemberUrl>, BuildError>);

impl Masters {
    pub(super) fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self(parsed(urls))
    }

    /// A process that this client has not met before votes once every lock of `max_ttl` or less that its predecessor can have granted
    /// has run out. A restarted master gives no lock away twice.
    ///
    /// The first start of the client waits as well: attempts fail with [`super::NotAcquired::Waiting`] until then. No program can lock for
    /// longer than `max_ttl` on these members.
    pub fn wait_before_voting(self, max_ttl: Duration) -> Builder {
        Builder::new(self.0, Kind::After(max_ttl))
    }

    /// Members vote as soon as they are reached. A master that restarts without its memory can give a lock to a second holder while the
    /// first one still has it.
    pub fn admit_at_once(self) -> Builder {
        Builder::new(self.0, Kind::AtOnce)
    }
}

/// What was chosen; what it means in time depends on drift and node timeout.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The operator's fence outlasts locks of so long.
    Fenced(Duration),
    After(Duration),
    AtOnce,
}

/// All that a client goes by.
pub(super) struct Config {
    pub(super) members: Vec<Member>,
    pub(super) redis: Vec<Arc<RedisMember>>,
    /// Where members tell of releases.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) described: Option<Described>,
    pub(super) trust: Trust,
    pub(super) machine: Machine,
    pub(super) runtime: Handle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) key_prefix: String,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
    pub(super) retry: Duration,
    pub(super) margin: Duration,
    pub(super) tokens: bool,
    pub(super) observer: Observer,
    pub(super) longest_ttl: Duration,
    pub(super) token_reach: Option<u32>,
    pub(super) restores: bool,
}

impl Builder {
    fn new(urls: Result<Vec<MemberUrl>, BuildError>, admission: Kind) -> Self {
        Self {
            urls,
            described: None,
            admission,
            key_prefix: String::new(),
            node_timeout: Settings::default().node_timeout,
            drift: Drift::default(),
            ttl: Duration::from_secs(10),
            wait: Duration::from_secs(60),
            retry: Duration::from_millis(100),
            margin: Duration::from_millis(10),
            tokens: true,
            observer: Observer::default(),
            trust: Trust::default(),
        }
    }

    pub(super) fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, BuildError> {
        let described = Described::read(data)?;
        let Described { urls, key_prefix, max_ttl, drift, node_timeout, .. } = described.clone();
        let builder = Self::new(parsed(urls), Kind::Fenced(max_ttl));
        Ok(Self { key_prefix, drift, node_timeout, described: Some(described), ..builder })
    }

    /// How long one command to one member may take: 50 ms, unless the Secret says otherwise.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// How far two clocks may drift apart: 1 % and 2 ms, unless the Secret says otherwise. Taken off each validity.
    pub const fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// How long locks live on when their holder is gone, where [`super::Lock::ttl`] is not called: 10 s, or the longest that is safe here if
    /// that is less.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`super::Lock::acquire`] waits at most, where [`super::Lock::wait`] is not called: a minute.
    pub const fn wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    /// The longest pause between two attempts of [`super::Lock::acquire`]: 100 ms, less a random part of up to a half.
    pub const fn retry(mut self, longest: Duration) -> Self {
        self.retry = longest;
        self
    }

    /// How long before the validity ends a loss is told: 10 ms. [`super::Guard::run_while_held`] ends the future then.
    pub const fn margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Locks without tokens, for masters where the user may not INCR the counter `#token`. Every token is then zero.
    pub const fn without_token(mut self) -> Self {
        self.tokens = false;
        self
    }

    /// Tells of what happens to locks, for metrics. It is called where that happens, so it must return soon and may not block.
    pub fn on_event(mut self, observe: impl Fn(Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(observe);
        self
    }

    /// How to speak TLS to members with `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.trust.tls = Some(config);
        self
    }

    /// Makes the client and waits until it reaches a majority, at most one second.
    ///
    /// # Errors
    /// If it cannot work as it is described, or a member that answers can never vote for it. Members that are not reached are no error: it
    /// goes on trying.
    ///
    /// # Cancel safety
    /// Dropping the future drops the client.
    pub async fn connect(self) -> Result<Client, BuildError> {
        self.connect_on(Machine::from(Arc::new(SystemClock))).await
    }

    /// The same with another clock and another network than this machine's, for tests.
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

    /// Makes the client, which connects in the background. Until then attempts fail with [`super::NotAcquired::NoQuorum`].
    ///
    /// # Errors
    /// If it cannot work as it is described.
    pub fn build(self) -> Result<Client, BuildError> {
        let machine = Machine::from(Arc::new(SystemClock));
        self.build_on(machine)
    }

    /// The same with another clock and another network than this machine's, for tests.
    ///
    /// # Errors
    /// If it cannot work as it is described.
    pub fn build_on(self, machine: Machine) -> Result<Client, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let endpoints = endpoints(self.urls.as_ref().map_err(Clone::clone)?, &self.trust)?;
        let longest = self.admission().1;
        if !(Duration::from_millis(1)..=LONGEST_TTL).contains(&longest) && longest != Duration::MAX {
            return Err(BuildError::MaxTtl);
        }
        let longest = longest.min(LONGEST_TTL);
        if self.drift.allowance(longest) >= longest {
            return Err(BuildError::Drift);
        }
        let is_direct = matches!(self.admission, Kind::Fenced(_));
        let access = if is_direct { Access::Client } else { Access::Full };
        let clock = Arc::clone(&machine.clock);
        let hints = endpoints.iter().map(|(_, endpoint)| endpoint.clone()).collect();
        let redis: Vec<_> = RedisMember::all(endpoints, machine.clone(), access).into_iter().map(Arc::new).collect();
        let member = |member: &Arc<RedisMember>| Member {
            member: Arc::clone(member) as Arc<dyn LockMember>,
            link: member.link(),
        };
        let members = redis.iter().map(member).collect();
        let (admission, longest_ttl) = self.admission();
        Ok(Client::from_config(Config {
            members,
            redis,
            endpoints: hints,
            described: self.described,
            trust: self.trust,
            machine,
            runtime,
            clock,
            settings: Settings { drift: self.drift, node_timeout: self.node_timeout },
            admission,
            key_prefix: self.key_prefix,
            ttl: self.ttl.min(longest_ttl),
            wait: self.wait,
            retry: self.retry,
            margin: self.margin,
            tokens: self.tokens,
            observer: self.observer,
            longest_ttl,
            token_reach: is_direct.then_some(CLIENTS_REACH),
            restores: self.tokens && !is_direct,
        }))
    }

    /// How members are admitted, and for how long locks may be taken.
    fn admission(&self) -> (Admission, Duration) {
        match self.admission {
            Kind::Fenced(max_ttl) => (Admission::Fenced, max_ttl),
            Kind::After(max_ttl) => (Admission::after(max_ttl, self.drift, self.node_timeout), max_ttl),
            Kind::AtOnce => (Admission::AtOnce, Duration::MAX),
        }
    }
}
