//! Locks for programs: [`Client`], and the [`Guard`] of a lock that is held.

mod admission;
mod builder;
mod endpoints;
mod error;
mod event;
mod guard;
mod keeper;
mod lines;
mod members;
mod promises;
mod reader;
mod secret;
mod url;

pub use builder::Builder;
pub use error::{BuildError, Lost, NotAcquired, Release, Undelivered};
pub use event::Event;
pub use guard::Guard;
pub use reader::{Looked, Reader, ReaderBuilder};
pub use url::UrlError;

use crate::redlock::{
    Acquire, AcquireRequest, Extend, ExtendRequest, FencingToken, Grant, LockKey, LockValue, Redlock, jittered,
};
use crate::time::{Boottime, Clock};
use crate::voting::RedisMember;
use builder::Parts;
use event::Observer;
use keeper::{Hold, Keeper};
use lines::Lines;
use members::Members;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How often it is looked whether everything was delivered, or a majority is reached.
const LOOK: Duration = Duration::from_millis(2);
/// The first pause between two attempts; it doubles up to [`Builder::retry`].
const FIRST_RETRY: Duration = Duration::from_millis(5);

/// Locks over one quorum of independent masters. Cheap to clone; clones share connections, renewals and the order of waiters.
///
/// Which of the three constructors is used says how members are admitted, which is what Redlock's safety rests on when a master
/// restarts. There is no default.
///
/// ```no_run
/// use redlock_client::Client;
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let members = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
/// let client = Client::wait_before_voting(members, Duration::from_secs(30)).connect().await?;
/// let guard = client.acquire("reports", Duration::from_secs(10), Duration::from_secs(60)).await?;
/// guard.run_while_held(async { /* write, with guard.token() */ }).await?;
/// let _ = guard.release().await;
/// client.close(Duration::from_secs(1)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

/// A lock that is held without a guard: nothing renews it, and nothing releases it but [`Client::release`]. It can be written down and
/// taken up elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lock is held until it is released or runs out"]
pub struct Held {
    /// The lock's key.
    pub key: LockKey,
    /// What the key holds. Whoever knows it can release the lock.
    pub value: LockValue,
    /// Greater than that of every earlier holder.
    pub token: FencingToken,
    /// On [`Clock::boottime`].
    pub valid_until: Boottime,
}

struct Inner {
    redlock: Redlock<dyn Clock>,
    clock: Arc<dyn Clock>,
    members: Arc<Members>,
    redis: Vec<Arc<RedisMember>>,
    keeper: Arc<Keeper>,
    lines: Lines,
    key_prefix: String,
    retry: Duration,
    margin: Duration,
    longest_ttl: Duration,
    tokens: bool,
    observer: Observer,
    is_closed: AtomicBool,
    tasks: [JoinHandle<()>; 2],
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

    /// Members by URL. A process that this client has not seen before votes once every lock of `max_ttl` or less that its predecessor
    /// may have granted has run out, so a restarted master gives no lock away twice. That includes the first start of the client:
    /// attempts fail with [`NotAcquired::Waiting`] until then. No program may lock for longer than `max_ttl` on these members.
    pub fn wait_before_voting<U: AsRef<str>>(members: impl IntoIterator<Item = U>, max_ttl: Duration) -> Builder {
        Builder::wait_before_voting(members, max_ttl)
    }

    /// Members by URL that vote as soon as they are reached. A master that restarts without its memory can give a lock to a second
    /// holder while the first one still has it.
    pub fn admit_at_once<U: AsRef<str>>(members: impl IntoIterator<Item = U>) -> Builder {
        Builder::admit_at_once(members)
    }

    fn from_parts(parts: Parts) -> Self {
        let node_timeout = parts.settings.node_timeout;
        let mut redlock = Redlock::new(Arc::clone(&parts.clock), parts.settings);
        if let Some(reach) = parts.token_reach {
            redlock = redlock.with_token_reach(reach);
        }
        let members = Arc::new(Members::new(parts.members, Arc::clone(&parts.clock), parts.admission, parts.restores));
        let keeper = Arc::new(Keeper::new(Arc::clone(&parts.clock), parts.observer.clone()));
        let tasks = [
            tokio::spawn(Arc::clone(&members).follow(node_timeout)),
            tokio::spawn(Arc::clone(&keeper).run(redlock.clone(), Arc::clone(&members))),
        ];
        Self(Arc::new(Inner {
            redlock,
            clock: parts.clock,
            members,
            redis: parts.redis,
            keeper,
            lines: Lines::default(),
            key_prefix: parts.key_prefix,
            retry: parts.retry,
            margin: parts.margin,
            longest_ttl: parts.longest_ttl,
            tokens: parts.tokens,
            observer: parts.observer,
            is_closed: AtomicBool::new(false),
            tasks,
        }))
    }

    async fn reach_majority(&self, longest: Duration) {
        let reached = async {
            let quorum = self.0.redis.len() / 2 + 1;
            let waits = || matches!(self.0.members.obstacle(), Some(NotAcquired::Waiting { .. }));
            while self.voters() < quorum && !waits() {
                sleep(LOOK).await;
            }
        };
        let _ = timeout(longest, reached).await;
    }

    /// How many members may vote now.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.0.members.admitted()
    }

    /// Tries once: one round trip to a majority.
    ///
    /// # Errors
    /// Why the lock is not held. Nothing of the attempt is left on the members.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it had taken.
    pub async fn try_acquire(&self, key: impl Into<LockKey>, ttl: Duration) -> Result<Guard, NotAcquired> {
        let (key, value, ttl) = (key.into(), LockValue::random(), whole_millis(ttl));
        let grant = self.0.attempt(&key, &value, ttl).await?;
        Ok(self.guard((key, value, ttl), &grant, None))
    }

    /// Tries until the lock is held or `wait` has passed. Those who wait for a key with the same client are served in order, and only
    /// the first of them asks the members; between clients chance decides.
    ///
    /// # Errors
    /// Why the last attempt failed, when `wait` has passed; at once for what waiting does not change.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it had taken, and gives up the place in the line.
    pub async fn acquire(&self, key: impl Into<LockKey>, ttl: Duration, wait: Duration) -> Result<Guard, NotAcquired> {
        let (key, ttl, deadline) = (key.into(), whole_millis(ttl), self.0.clock.boottime() + wait);
        let Ok(turn) = timeout(wait, self.0.lines.wait(&key)).await else {
            return Err(NotAcquired::HeldByOther { refusals: 0, longest: None });
        };
        let mut pause = FIRST_RETRY;
        loop {
            // Fresh for each attempt: a late release of the one before must not end this one.
            let value = LockValue::random();
            let error = match self.0.attempt(&key, &value, ttl).await {
                Ok(grant) => return Ok(self.guard((key, value, ttl), &grant, Some(turn))),
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => error,
            };
            let left = deadline.since(self.0.clock.boottime());
            let next = self.0.next_attempt(&error, pause);
            if left <= next {
                sleep(left).await;
                return Err(error);
            }
            sleep(next).await;
            pause = (pause * 2).min(self.0.retry);
        }
    }

    fn guard(&self, lock: (LockKey, LockValue, Duration), grant: &Grant, turn: Option<OwnedMutexGuard<()>>) -> Guard {
        let hold = self.0.keeper.keep(lock, grant, turn);
        Guard::new(Arc::clone(&self.0), hold)
    }

    /// Tries once, and gives the lock without a guard.
    ///
    /// # Errors
    /// Why the lock is not held.
    ///
    /// # Cancel safety
    /// Dropping the future releases what it had taken.
    pub async fn try_acquire_unguarded(&self, key: impl Into<LockKey>, ttl: Duration) -> Result<Held, NotAcquired> {
        let (key, value, ttl) = (key.into(), LockValue::random(), whole_millis(ttl));
        let Grant { token, valid_until, .. } = self.0.attempt(&key, &value, ttl).await?;
        Ok(Held { key, value, token, valid_until })
    }

    /// Extends a lock that is held without a guard, to `ttl` from now on.
    ///
    /// # Errors
    /// If it is lost. A majority that does not answer in time is no loss: the validity stays as it was.
    ///
    /// # Cancel safety
    /// Members may have extended the key; `held` then says less than is so.
    pub async fn extend(&self, held: &mut Held, ttl: Duration) -> Result<(), Lost> {
        let Held { key, value, valid_until, .. } = held.clone();
        let request = ExtendRequest { key, value, ttl: whole_millis(ttl).min(self.0.longest_ttl), valid_until };
        match self.0.redlock.extend(&self.0.members.electorate(), vec![request]).await.pop() {
            Some(Extend::Renewed { valid_until, .. }) => {
                held.valid_until = valid_until;
                Ok(())
            }
            Some(Extend::NoQuorum { .. }) if self.0.clock.boottime() < held.valid_until => Ok(()),
            _ => Err(Lost),
        }
    }

    /// Releases a lock that is held without a guard.
    ///
    /// # Cancel safety
    /// The release is on its way once the future was polled.
    pub async fn release(&self, held: &Held) -> Release {
        Release(self.0.redlock.release_soon(&self.0.members.electorate(), &held.key, &held.value).await)
    }

    /// Ends the client: nothing is granted any more, guards are told that their locks are lost, and what is on its way to members,
    /// releases among it, is waited for. Call it before the runtime ends: what is dropped after that reaches nobody.
    ///
    /// # Errors
    /// If members have not answered within `longest`; a frozen one is given up after two seconds.
    ///
    /// # Cancel safety
    /// It can be called again.
    pub async fn close(&self, longest: Duration) -> Result<(), Undelivered> {
        self.0.is_closed.store(true, Ordering::Release);
        for hold in self.0.keeper.take_all() {
            self.0.submit_release(&hold);
        }
        let left = || self.0.redis.iter().map(|member| member.outstanding()).sum::<usize>();
        let delivered = async {
            while left() > 0 {
                sleep(LOOK).await;
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

    /// One attempt, and word of it.
    async fn attempt(&self, key: &LockKey, value: &LockValue, ttl: Duration) -> Result<Grant, NotAcquired> {
        let began = self.clock.boottime();
        let outcome = self.ask(key, value, ttl).await;
        let took = || self.clock.boottime().since(began);
        match &outcome {
            Ok(grant) => {
                self.observer.tell_with(|| Event::Acquired { key, token: grant.token, took: took() });
            }
            Err(error) => self.observer.tell_with(|| Event::NotAcquired { key, error, took: took() }),
        }
        outcome
    }

    async fn ask(&self, key: &LockKey, value: &LockValue, ttl: Duration) -> Result<Grant, NotAcquired> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(NotAcquired::Closed);
        }
        // The members' own keys have a '#'.
        if !key.as_str().starts_with(&self.key_prefix) || key.as_str().contains('#') || key.as_str().is_empty() {
            return Err(NotAcquired::Key);
        }
        if ttl < Duration::from_millis(1) || ttl > self.longest_ttl {
            return Err(NotAcquired::Ttl { most: self.longest_ttl });
        }
        let electorate = self.members.voters()?;
        let request = AcquireRequest { key: key.clone(), value: value.clone(), ttl, token: self.tokens };
        match self.redlock.acquire(&electorate, request).await {
            Acquire::Granted(grant) => Ok(grant),
            Acquire::HeldByOther { refusals, longest, .. } => Err(NotAcquired::HeldByOther { refusals, longest }),
            Acquire::NoQuorum { failures, .. } => Err(NotAcquired::NoQuorum { failures }),
            Acquire::Expired => Err(NotAcquired::Expired),
            Acquire::CountersApart => Err(NotAcquired::CountersApart),
        }
    }

    /// The pause before the next attempt: no longer than the key is known to live, and a part of it by chance, so that those who
    /// failed together do not meet again.
    fn next_attempt(&self, error: &NotAcquired, pause: Duration) -> Duration {
        let known = match error {
            NotAcquired::HeldByOther { longest: Some(longest), .. } => (*longest).max(Duration::from_millis(1)),
            NotAcquired::Waiting { left } => return *left,
            _ => Duration::MAX,
        };
        let pause = pause.min(self.retry).min(known);
        jittered(pause * 3 / 4, pause / 4, rand::random())
    }

    /// The release is enqueued before it returns.
    fn submit_release(&self, hold: &Hold) {
        self.redlock.release_unheard(&self.members.electorate(), &hold.key, &hold.value);
        hold.lose();
    }

    fn end_soon(&self, hold: &Hold) {
        self.keeper.drop_hold(hold);
        self.submit_release(hold);
    }

    async fn end(&self, hold: &Hold) -> Release {
        self.keeper.drop_hold(hold);
        let electorate = self.members.electorate();
        let mut release = std::pin::pin!(self.redlock.release_soon(&electorate, &hold.key, &hold.value));
        let mut is_passed_on = false;
        let released = std::future::poll_fn(|cx| {
            let polled = release.as_mut().poll(cx);
            // Enqueued by the first poll: the next in line comes behind it on every connection.
            if !std::mem::replace(&mut is_passed_on, true) {
                hold.lose();
            }
            polled
        })
        .await;
        Release(released)
    }
}
