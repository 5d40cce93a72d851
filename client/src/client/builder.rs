use super::Client;
use super::admission::Admission;
use super::error::BuildError;
use super::members::Member;
use super::url::MemberUrl;
use crate::redlock::{Drift, LockMember, MemberName, Settings};
use crate::time::{Clock, SystemClock};
use crate::voting::{Endpoint, Machine, RedisMember, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// So far apart counters may be for a client that can only INCR them.
const CLIENTS_REACH: u32 = 1_000;
/// How long [`Builder::connect`] waits for a majority.
const CONNECT: Duration = Duration::from_secs(1);

/// How to lock; see the methods for what it does by default.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing before `connect` or `build`"]
pub struct Builder {
    urls: Vec<Result<MemberUrl, BuildError>>,
    admission: Kind,
    key_prefix: String,
    /// What the operator's fence outlasts.
    max_ttl: Option<Duration>,
    node_timeout: Duration,
    drift: Drift,
    retry: Duration,
    margin: Duration,
    tokens: bool,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
}

/// What was chosen; what it means in time depends on drift and node timeout.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Fenced,
    After(Duration),
    AtOnce,
}

/// All that a client goes by.
pub(super) struct Parts {
    pub(super) members: Vec<Member>,
    pub(super) redis: Vec<Arc<RedisMember>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: Settings,
    pub(super) admission: Admission,
    pub(super) key_prefix: String,
    pub(super) retry: Duration,
    pub(super) margin: Duration,
    pub(super) tokens: bool,
    pub(super) longest_ttl: Duration,
    pub(super) token_reach: Option<u32>,
    pub(super) restores: bool,
}

impl Builder {
    fn new<U: AsRef<str>>(urls: impl IntoIterator<Item = U>, admission: Kind) -> Self {
        let url =
            |(index, url): (usize, U)| MemberUrl::parse(url.as_ref()).map_err(|error| BuildError::Url(index, error));
        Self {
            urls: urls.into_iter().enumerate().map(url).collect(),
            admission,
            key_prefix: String::new(),
            max_ttl: None,
            node_timeout: Settings::default().node_timeout,
            drift: Drift::default(),
            retry: Duration::from_millis(100),
            margin: Duration::from_millis(10),
            tokens: true,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    pub(super) fn wait_before_voting<U: AsRef<str>>(urls: impl IntoIterator<Item = U>, max_ttl: Duration) -> Self {
        Self::new(urls, Kind::After(max_ttl))
    }

    pub(super) fn admit_at_once<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self::new(urls, Kind::AtOnce)
    }

    pub(super) fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, BuildError> {
        let entry = |name: &'static str| {
            let bytes = data.get(name).ok_or(BuildError::Secret(name))?;
            std::str::from_utf8(bytes).map_err(|_| BuildError::Secret(name))
        };
        let mut builder = Self::new(entry("urls")?.split_whitespace(), Kind::Fenced);
        builder.key_prefix = entry("keyPrefix")?.to_owned();
        if let Ok(text) = entry("maxTTL") {
            builder.max_ttl = Some(millis(text).ok_or(BuildError::Secret("maxTTL"))?);
        }
        if let Ok(text) = entry("nodeTimeout") {
            builder.node_timeout = millis(text).ok_or(BuildError::Secret("nodeTimeout"))?;
        }
        if let Ok(text) = entry("clockDrift") {
            builder.drift.ppm = text.trim().parse().map_err(|_| BuildError::Secret("clockDrift"))?;
        }
        Ok(builder)
    }

    /// How long one command to one member may take: 50 ms, unless the Secret says otherwise.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// How far two clocks may drift apart: 1 % and 2 ms. Taken off each validity.
    pub const fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// The longest pause between two attempts of [`Client::acquire`]: 100 ms, less a random part of up to a half.
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

    /// How to speak TLS to members with `rediss://` URLs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Self {
        self.tls = Some(config);
        self
    }

    /// Makes the client and waits until it reaches a majority, at most one second.
    ///
    /// # Errors
    /// If it cannot work as it is described. Members that are not reached are no error: it goes on trying.
    ///
    /// # Cancel safety
    /// Dropping the future drops the client.
    pub async fn connect(self) -> Result<Client, BuildError> {
        let client = self.build()?;
        client.reach_majority(CONNECT).await;
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
        tokio::runtime::Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let urls = self.urls.iter().cloned().collect::<Result<Vec<_>, _>>()?;
        if urls.is_empty() || urls.len() > 64 {
            return Err(BuildError::Members);
        }
        let addresses: BTreeSet<_> = urls.iter().map(|url| &url.address).collect();
        if addresses.len() < urls.len() {
            return Err(BuildError::SameAddress);
        }
        let endpoint = |(index, url): (usize, MemberUrl)| {
            let name = MemberName::from(url.address.as_str());
            Ok((name, self.endpoint(index, url)?))
        };
        let endpoints = urls.into_iter().enumerate().map(endpoint).collect::<Result<Vec<_>, BuildError>>()?;
        let is_direct = matches!(self.admission, Kind::Fenced);
        let clock = Arc::clone(&machine.clock);
        let redis: Vec<_> = RedisMember::all(endpoints, machine, is_direct).into_iter().map(Arc::new).collect();
        let member = |member: &Arc<RedisMember>| Member {
            member: Arc::clone(member) as Arc<dyn LockMember>,
            link: member.link(),
        };
        let members = redis.iter().map(member).collect();
        Ok(Client::from_parts(self.parts(members, redis, clock, is_direct)))
    }

    fn parts(
        self,
        members: Vec<Member>,
        redis: Vec<Arc<RedisMember>>,
        clock: Arc<dyn Clock>,
        is_direct: bool,
    ) -> Parts {
        let (admission, longest_ttl) = match self.admission {
            Kind::Fenced => (Admission::Fenced, self.max_ttl.unwrap_or(Duration::MAX)),
            Kind::After(max_ttl) => (Admission::after(max_ttl, self.drift, self.node_timeout), max_ttl),
            Kind::AtOnce => (Admission::AtOnce, Duration::MAX),
        };
        Parts {
            members,
            redis,
            clock,
            settings: Settings { drift: self.drift, node_timeout: self.node_timeout },
            admission,
            key_prefix: self.key_prefix,
            retry: self.retry,
            margin: self.margin,
            tokens: self.tokens,
            longest_ttl,
            token_reach: is_direct.then_some(CLIENTS_REACH),
            restores: self.tokens && !is_direct,
        }
    }

    fn endpoint(&self, index: usize, url: MemberUrl) -> Result<Endpoint, BuildError> {
        #[cfg(feature = "tls")]
        let tls = match (&self.tls, url.tls) {
            (_, false) => None,
            (None, true) => return Err(BuildError::NoTls),
            (Some(config), true) => {
                let client = crate::voting::TlsClient::new(Arc::clone(config), &url.host);
                Some(client.map_err(|_| BuildError::ServerName(index))?)
            }
        };
        #[cfg(not(feature = "tls"))]
        if url.tls {
            let _ = (index, url.host);
            return Err(BuildError::NoTls);
        }
        Ok(Endpoint {
            address: url.address,
            username: url.username,
            password: Secret::new(url.password),
            #[cfg(feature = "tls")]
            tls,
        })
    }
}

/// `50ms`, `2s` or a number of milliseconds.
fn millis(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    match unit {
        "" | "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}
