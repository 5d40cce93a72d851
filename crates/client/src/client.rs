//! Locks for programs: [`Client`], and the [`Guard`] of a lock that is held.

mod admission;
mod attempts;
mod builder;
mod closing;
mod counters;
mod election;
mod endpoints;
mod error;
mod event;
mod guard;
mod hints;
mod keeper;
mod lines;
mod lock;
mod members;
mod promises;
mod reader;
mod secret;
mod url;

pub use builder::{Builder, Masters};
pub use election::{Election, Leadership};
pub use error::{BuildError, LossCause, Lost, NotAcquired, Release, Undelivered};
pub use event::{Event, MemberState};
pub use guard::Guard;
pub use lock::Lock;
pub use reader::{ReadResult, Reader, ReaderBuilder};
pub use url::UrlError;

use crate::redlock::LockMember as _;
use crate::redlock::{Extend, ExtendRequest, FencingToken, Grant, LockKey, LockValue, Redlock, Votes, granted_until};
use crate::time::{Boottime, Clock};
use crate::voting::{Endpoint, Heard, Listener, RedisMember};
use builder::Config;
use closing::Closing;
use endpoints::{Trust, endpoints, parsed};
use event::Observer;
use hints::Hints;
use keeper::{Hold, Keeper};
use lines::{Lines, Turn};
use lock::Place;
use members::Members;
use secret::Described;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The pause between two checks whether everything was delivered, or a majority is reached.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Locks over one quorum of independent masters. Cheap to clone; clones share connections, renewals and the order of waiters.
///
/// How members are admitted is what Redlock's safety rests on when a master restarts. [`Client::from_secret`] takes the rule of the operator,
/// and [`Client::builder`] asks for one of two. There is no default.
///
/// ```no_run
/// use redlock_client::Client;
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let members = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
/// let client = Client::builder(members).wait_before_voting(Duration::from_secs(30)).connect().await?;
/// let guard = client.lock("reports").ttl(Duration::from_secs(10)).wait(Duration::from_secs(60)).acquire().await?;
/// guard.run_while_held(async { /* write, with guard.token() */ }).await?;
/// let _ = guard.release().await;
/// client.close(Duration::from_secs(1)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

/// A lock without a guard: nothing renews it, and nothing releases it but [`Client::release`]. Its parts can be written down; whoever has
/// them takes the lock up by [`Client::resume`], on any machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lock is held until it is released or runs out"]
pub struct Held {
    key: LockKey,
    value: LockValue,
    token: FencingToken,
}

impl Held {
    /// From what [`Held::into_parts`] gave.
    pub const fn from_parts(key: LockKey, value: LockValue, token: FencingToken) -> Self {
        Self { key, value, token }
    }

    /// The key, what it holds, and the token. Whoever knows the value can release the lock.
    #[must_use]
    pub fn into_parts(self) -> (LockKey, LockValue, FencingToken) {
        (self.key, self.value, self.token)
    }

    /// Greater than that of every earlier holder.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }
}

struct Inner {
    redlock: Redlock<dyn Clock>,
    clock: Arc<dyn Clock>,
    members: Arc<Members>,
    redis: Vec<Arc<RedisMember>>,
    /// Where members are listened to.
    listened: Vec<watch::Sender<Endpoint>>,
    described: Option<Described>,
    trust: Mutex<Trust>,
    keeper: Arc<Keeper>,
    lines: Lines,
    hints: Arc<Hints>,
    key_prefix: String,
    ttl: Duration,
    wait: Duration,
    retry: Duration,
    margin: Duration,
    longest_ttl: Duration,
    tokens: bool,
    observer: Observer,
    closing: Closing,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Client {
    /// Members that an operator runs and fences, by the Secret that it gives to clients. No process has to be waited for: one that has
    /// restarted may not vote before the operator lets it. The Secret also says for how long a lock may be taken, and what a validity is
    /// counted with.
    ///
    /// # Errors
    /// If an entry is missing or cannot be read, among them those of the fence: an operator from before this crate does not write
    /// them, and without them no lock would be safe.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Builder, BuildError> {
        Builder::from_secret(data)
    }

    /// Members by URL. The next call chooses how they are admitted.
    pub fn builder<U: AsRef<str>>(members: impl IntoIterator<Item = U>) -> Masters {
        Masters::new(members)
    }

    fn from_config(config: Config) -> Self {
        let node_timeout = config.settings.node_timeout;
        let mut redlock = Redlock::new(Arc::clone(&config.clock), config.settings);
        if let Some(reach) = config.token_reach {
            redlock = redlock.with_token_reach(reach);
        }
        let clock = Arc::clone(&config.clock);
        let members = Members::new(config.members, clock, config.admission, config.restores)
            .with_observer(config.observer.clone());
        let members = Arc::new(members);
        let keeper = Arc::new(Keeper::new(Arc::clone(&config.clock), config.observer.clone()));
        let hints = Arc::new(Hints::new(redlock.clone(), Arc::clone(&members), config.runtime));
        let mut tasks = vec![
            tokio::spawn(Arc::clone(&members).follow(node_timeout)),
            tokio::spawn(Arc::clone(&keeper).run(redlock.clone(), Arc::clone(&members))),
            tokio::spawn(Arc::clone(&hints).tidy()),
        ];
        let listened: Vec<_> = config.endpoints.into_iter().map(watch::Sender::new).collect();
        tasks.extend(listened.iter().enumerate().map(|(member, endpoint)| {
            let hears = Arc::clone(&hints);
            let heard = move |heard: Heard<'_>| hears.take(member, heard);
            tokio::spawn(Listener::new(endpoint.subscribe(), config.machine.clone(), hints.wanted(), heard).run())
        }));
        Self(Arc::new(Inner {
            redlock,
            clock: config.clock,
            members,
            redis: config.redis,
            listened,
            described: config.described,
            trust: Mutex::new(config.trust),
            keeper,
            lines: Lines::default(),
            hints,
            key_prefix: config.key_prefix,
            ttl: config.ttl,
            wait: config.wait,
            retry: config.retry,
            margin: config.margin,
            longest_ttl: config.longest_ttl,
            tokens: config.tokens,
            observer: config.observer,
            closing: Closing::default(),
            tasks,
        }))
    }

    /// Takes the passwords of a Secret that was read again: an operator exchanges them from time to time. Connections that are open stay, and
    /// the next ones use the new passwords, so no lock is lost.
    ///
    /// # Errors
    /// [`BuildError::Stale`] if the members have changed, or what the client may do, which a client cannot follow: make another one.
    /// Others if the Secret cannot be read.
    pub fn update(&self, data: &BTreeMap<String, Vec<u8>>) -> Result<(), BuildError> {
        let described = Described::read(data)?;
        let trust = self.0.trust.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut new = endpoints(&parsed(&described.urls)?, &trust)?;
        let has_rules = self.0.described.as_ref().is_some_and(|known| known.has_rules_of(&described));
        let place = |member: &Arc<RedisMember>| new.iter().position(|(name, _)| name == member.name());
        let places: Option<Vec<usize>> = self.0.redis.iter().map(place).collect();
        let Some(places) = places.filter(|places| has_rules && places.len() == new.len()) else {
            return Err(BuildError::Stale);
        };
        for ((member, listened), place) in self.0.redis.iter().zip(&self.0.listened).zip(places) {
            let (_, endpoint) = &mut new[place];
            member.set_endpoint(endpoint.clone());
            listened.send_replace(endpoint.clone());
        }
        Ok(())
    }

    /// How to speak TLS to members from the next [`Client::update`] on: their certificate authority can change.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, config: Arc<rustls::ClientConfig>) {
        self.0.trust.lock().unwrap_or_else(PoisonError::into_inner).tls = Some(config);
    }

    fn check(&self) -> Result<(), BuildError> {
        self.0.members.check()
    }

    async fn reach_majority(&self, longest: Duration) {
        let reached = async {
            let quorum = self.0.redis.len() / 2 + 1;
            let waits = || matches!(self.0.members.obstacle(), Some(NotAcquired::Waiting { .. }));
            while self.voters() < quorum && !waits() {
                sleep(POLL_INTERVAL).await;
            }
        };
        let _ = timeout(longest, reached).await;
    }

    /// How many members may vote now.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.0.members.admitted()
    }

    /// Begins to describe what to lock: [`Lock::acquire`] and [`Lock::try_acquire`] do it.
    pub fn lock(&self, key: impl Into<LockKey>) -> Lock {
        Lock::new(self.clone(), key.into(), self.0.ttl, self.0.wait)
    }

    /// Begins to describe an election: [`Election::campaign`] and [`Election::run`] take part in it.
    pub fn election(&self, key: impl Into<LockKey>) -> Election {
        Election::new(self, key.into())
    }

    /// The attempt is still under way: `close` waits for it.
    fn guard(
        &self,
        lock: (LockKey, LockValue, Duration),
        grant: &Grant,
        turn: Option<Turn>,
    ) -> Result<Guard, NotAcquired> {
        let hold = self.0.keeper.keep(lock, grant, turn);
        if self.0.closing.is_closed() {
            // It may have been closed after this attempt began, and before its hold was kept.
            self.0.end_soon(&hold);
            return Err(NotAcquired::Closed);
        }
        Ok(Guard::new(Arc::clone(&self.0), hold))
    }

    /// Takes up a lock that this client or another one left without a guard, and renews it from now on. A majority has to hold its value
    /// still, so nobody else has had it in between.
    ///
    /// # Errors
    /// If a majority does not hold it any more, or does not answer.
    ///
    /// # Cancel safety
    /// Members may have extended the key.
    pub async fn resume(&self, held: Held, ttl: Duration) -> Result<Guard, Lost> {
        let closed = Lost { cause: LossCause::Closed };
        let _under_way = self.0.closing.begin().map_err(|_| closed)?;
        let ttl = whole_millis(ttl).min(self.0.longest_ttl);
        let (started, valid_until) =
            self.0.extend_once((&held.key, &held.value), ttl, Boottime::new(Duration::MAX)).await?;
        let grant = Grant { token: held.token, started, valid_until, votes: Votes { yes: 0, of: 0 } };
        self.guard((held.key, held.value, ttl), &grant, None).map_err(|_| closed)
    }

    /// Releases a lock that is held without a guard.
    ///
    /// # Cancel safety
    /// The release is on its way once the future was polled.
    pub async fn release(&self, held: &Held) -> Release {
        // It may have been held for long.
        self.0.release((&held.key, &held.value), Duration::MAX, || {}).await
    }

    /// Replies of members that have not arrived.
    pub(crate) fn outstanding(&self) -> usize {
        self.0.redis.iter().map(|member| member.outstanding()).sum()
    }

    /// Ends the client: nothing is granted any more, callers that wait get [`NotAcquired::Closed`], guards are told that their locks are
    /// lost, and what is on its way to members, attempts and releases, is waited for. Call it before the runtime ends: what is dropped after that reaches nobody.
    ///
    /// # Errors
    /// If members have not answered within `longest`; a frozen one is given up after two seconds.
    ///
    /// # Cancel safety
    /// It can be called again.
    pub async fn close(&self, longest: Duration) -> Result<(), Undelivered> {
        self.0.closing.close();
        for hold in self.0.keeper.take_all() {
            self.0.submit_release(&hold);
        }
        let left = || self.outstanding();
        let delivered = async {
            while left() > 0 || self.0.closing.under_way() > 0 {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(longest, delivered).await.map_err(|_| Undelivered { left: left() })
    }
}

/// What a key lives for: Redis counts in milliseconds, and no validity may be longer.
fn whole_millis(ttl: Duration) -> Duration {
    Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("members", &self.0.redis).finish_non_exhaustive()
    }
}

impl Inner {
    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    const fn margin(&self) -> Duration {
        self.margin
    }

    /// How long a hold is certainly valid.
    fn remaining(&self, hold: &Hold) -> Duration {
        if hold.is_lost() { Duration::ZERO } else { hold.valid_until().since(self.clock.boottime()) }
    }

    fn held_for(&self, hold: &Hold) -> Duration {
        self.clock.boottime().since(hold.since)
    }

    /// The release is enqueued before it returns.
    fn submit_release(&self, hold: &Hold) {
        self.redlock.release_unheard(&self.members.electorate(), &hold.key, &hold.value);
        self.hints.released(&Place::of(&hold.key), self.held_for(hold));
        self.observer.notify(|| Event::Released { key: &hold.key, held: self.held_for(hold) });
        hold.lose(LossCause::Closed);
    }

    /// Nothing renews the hold any more, and its key stays.
    fn forget(&self, hold: &Hold) {
        self.keeper.drop_hold(hold);
        hold.lose(LossCause::Closed);
    }

    /// One round that makes the key live for `ttl`; gives when it began, and the validity that it has earned.
    async fn extend_once(
        &self,
        (key, value): (&LockKey, &LockValue),
        ttl: Duration,
        valid_until: Boottime,
    ) -> Result<(Boottime, Boottime), Lost> {
        let request = ExtendRequest { key: key.clone(), value: value.clone(), ttl, valid_until: Some(valid_until) };
        let lost = |cause| Err(Lost { cause });
        match self.redlock.extend(&self.members.electorate(), vec![request]).await.pop() {
            Some(Extend::Renewed { started, .. }) => {
                let until = granted_until(started, self.clock.boottime(), ttl, self.redlock.settings().drift);
                until.map_or_else(|| lost(LossCause::Unreachable), |until| Ok((started, until)))
            }
            Some(Extend::Refused { .. }) => lost(LossCause::Taken),
            _ => lost(LossCause::Unreachable),
        }
    }

    async fn leave(&self, hold: &Hold, least: Duration) -> Result<(), Lost> {
        let (now, end) = (self.clock.boottime(), hold.since + least);
        if end <= now {
            let _ = self.end(hold).await;
            return Ok(());
        }
        // Those that wait with this client ask the members from now on.
        self.keeper.drop_hold(hold);
        let ttl = whole_millis(end.since(now) + Duration::from_millis(1)).min(self.longest_ttl);
        let extended = self.extend_once((&hold.key, &hold.value), ttl, hold.valid_until()).await;
        hold.lose(LossCause::Closed);
        extended.map(drop)
    }

    fn end_soon(&self, hold: &Hold) {
        self.keeper.drop_hold(hold);
        self.submit_release(hold);
    }

    async fn end(&self, hold: &Hold) -> Release {
        self.keeper.drop_hold(hold);
        // The next in line comes behind the release on every connection.
        self.release((&hold.key, &hold.value), self.held_for(hold), || {
            self.observer.notify(|| Event::Released { key: &hold.key, held: self.held_for(hold) });
            hold.lose(LossCause::Closed);
        })
        .await
    }

    /// Releases, and calls `enqueued` as soon as the release is on its way.
    async fn release(&self, lock: (&LockKey, &LockValue), held_for: Duration, enqueued: impl FnOnce()) -> Release {
        let ((key, value), electorate) = (lock, self.members.electorate());
        let mut release = std::pin::pin!(self.redlock.release_soon(&electorate, key, value));
        let mut enqueued = Some(enqueued);
        let released = std::future::poll_fn(|cx| {
            let polled = release.as_mut().poll(cx);
            // It is by the first poll.
            if let Some(enqueued) = enqueued.take() {
                self.hints.released(&Place::of(key), held_for);
                enqueued();
            }
            polled
        })
        .await;
        Release(released)
    }
}
