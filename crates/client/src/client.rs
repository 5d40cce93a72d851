//! Locks for programs: the client, and the guard of a held lock.

mod attempts;
mod builder;
mod closing;
mod counters;
mod election;
mod error;
mod event;
mod guard;
mod held_lock;
mod hints;
mod inner;
mod local_queue;
mod lock;
mod member_endpoints;
mod member_set;
mod promises;
mod reader;
mod renewer;
mod secret_entries;
mod url;

pub use builder::{Builder, Masters};
pub use election::{Election, Leadership};
pub use error::{BuildError, LossCause, Lost, NotAcquired, Release, Undelivered};
pub use event::{Event, MemberState};
pub use guard::Guard;
pub use held_lock::Held;
pub use lock::Lock;
pub use reader::{ReadResult, Reader, ReaderBuilder};
pub use url::UrlError;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::redlock::LockMember as _;
use crate::redlock::{Grant, LockKey, LockValue, Votes};
use crate::time::Boottime;
use crate::voting::RedisMember;
use inner::{Inner, whole_millis};
use member_endpoints::{endpoints, parsed};
use secret_entries::SecretEntries;

/// Pause between two checks for deliveries, or for a majority.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Locks the mutex, also after a panic of its holder.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks over one quorum of independent masters.
///
/// A clone is cheap: clones share connections, renewals and the order of waiters.
///
/// The admission of members decides whether Redlock is safe when a master restarts. [`Client::from_secret`] takes the
/// rule of the operator, and [`Client::builder`] offers two rules. There is no default.
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

impl Client {
    /// Settings for members that an operator runs and fences, from the Secret of a client.
    ///
    /// The client does not delay the votes of new processes, because the operator admits restarted ones. The Secret also has the maximum time
    /// to live and the clock drift.
    ///
    /// # Errors
    /// If an entry is missing or unreadable. An operator from before this crate does not write the entries of the
    /// fence, and without them no lock is safe.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Builder, BuildError> {
        Builder::from_secret(data)
    }

    /// Settings for members with these URLs.
    ///
    /// The next call chooses their admission.
    pub fn builder<U: AsRef<str>>(members: impl IntoIterator<Item = U>) -> Masters {
        Masters::new(members)
    }

    /// Applies the passwords of a changed Secret.
    ///
    /// An operator replaces them from time to time. Open connections stay, and new ones use the new passwords, so no
    /// lock is lost.
    ///
    /// # Errors
    /// [`BuildError::Stale`] if the members or the permissions of the client have changed. Then make another client. Another error if the Secret
    /// is unreadable.
    pub fn update(&self, data: &BTreeMap<String, Vec<u8>>) -> Result<(), BuildError> {
        let secret = SecretEntries::read(data)?;
        let trust = locked(&self.0.trust).clone();
        let new = endpoints(&parsed(&secret.urls)?, &trust)?;
        let has_rules = self.0.secret.as_ref().is_some_and(|current| current.has_rules_of(&secret));
        let position = |member: &Arc<RedisMember>| new.iter().position(|(name, _)| name == member.name());
        let positions: Option<Vec<usize>> = self.0.redis.iter().map(position).collect();
        let Some(positions) = positions.filter(|positions| has_rules && positions.len() == new.len()) else {
            return Err(BuildError::Stale);
        };
        for ((member, endpoint), position) in self.0.redis.iter().zip(&self.0.listener_endpoints).zip(positions) {
            let (_, new) = &new[position];
            member.set_endpoint(new.clone());
            endpoint.send_replace(new.clone());
        }
        Ok(())
    }

    /// Sets the TLS configuration for the next [`Client::update`].
    ///
    /// The new configuration can have another certificate authority, for example.
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, config: Arc<rustls::ClientConfig>) {
        locked(&self.0.trust).tls = Some(config);
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

    /// The number of members that can vote now.
    #[must_use]
    pub fn voters(&self) -> usize {
        self.0.members.admitted()
    }

    /// Describes a lock.
    ///
    /// [`Lock::acquire`] and [`Lock::try_acquire`] take it.
    pub fn lock(&self, key: impl Into<LockKey>) -> Lock {
        Lock::new(self.clone(), key.into(), self.0.settings.ttl, self.0.settings.wait)
    }

    /// Describes an election.
    ///
    /// [`Election::campaign`] and [`Election::run`] take part in it.
    pub fn election(&self, key: impl Into<LockKey>) -> Election {
        Election::new(self, key.into())
    }

    /// Makes the guard of a grant.
    ///
    /// The attempt is still in progress, so `close` waits for it.
    fn guard(&self, lock: (LockKey, LockValue, Duration), grant: &Grant) -> Result<Guard, NotAcquired> {
        let hold = self.0.renewer.keep(lock, grant);
        if self.0.closing.is_closed() {
            // The client was perhaps closed after this attempt began, and before its hold was registered.
            self.0.end_soon(&hold);
            return Err(NotAcquired::Closed);
        }
        Ok(Guard::new(Arc::clone(&self.0), hold))
    }

    /// Takes over a lock without a guard, and renews it.
    ///
    /// A majority must have its value, so no other client has had the lock in between.
    ///
    /// # Errors
    /// If a majority has lost the value, or does not answer.
    ///
    /// # Cancel safety
    /// Members have perhaps extended the key.
    pub async fn resume(&self, held: Held, ttl: Duration) -> Result<Guard, Lost> {
        let closed = Lost { cause: LossCause::Closed };
        let _attempt = self.0.closing.begin().map_err(|_| closed)?;
        let ttl = whole_millis(ttl).min(self.0.longest_ttl);
        let (started, valid_until) =
            self.0.extend_once((&held.key, &held.value), ttl, Boottime::new(Duration::MAX)).await?;
        let grant = Grant { token: held.token, started, valid_until, votes: Votes { yes: 0, of: 0 } };
        self.guard((held.key, held.value, ttl), &grant).map_err(|_| closed)
    }

    /// Releases a lock that is held without a guard.
    ///
    /// # Cancel safety
    /// The release is in the queues of all members after the first poll.
    pub async fn release(&self, held: &Held) -> Release {
        // The hold can be long, so the release is announced.
        self.0.release((&held.key, &held.value), Duration::MAX, || true).await
    }

    /// The number of outstanding replies.
    pub(crate) fn outstanding(&self) -> usize {
        self.0.redis.iter().map(|member| member.outstanding()).sum()
    }

    /// Closes the client.
    ///
    /// Attempts end with [`NotAcquired::Closed`], and guards report the loss of their locks. The call waits for
    /// requests in progress, attempts and releases among them. Call it before the runtime ends, because later drops
    /// send nothing.
    ///
    /// # Errors
    /// If members have not answered within `longest`. Connections to frozen members end after two seconds.
    ///
    /// # Cancel safety
    /// It can be called again.
    pub async fn close(&self, longest: Duration) -> Result<(), Undelivered> {
        self.0.closing.close();
        for hold in self.0.renewer.take_all() {
            self.0.submit_release(&hold);
        }
        let left = || self.outstanding();
        let delivered = async {
            while left() > 0 || self.0.closing.attempts() > 0 {
                sleep(POLL_INTERVAL).await;
            }
        };
        timeout(longest, delivered).await.map_err(|_| Undelivered { left: left() })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("members", &self.0.redis).finish_non_exhaustive()
    }
}
