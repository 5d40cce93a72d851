//! Fake masters for tests of programs that take locks (feature `test-util`).
//!
//! [`FakeMembers`] are Redis masters in this process. A [`Client`](crate::Client) sends them the bytes that it sends to Redis. So connections,
//! admission, votes, tokens and renewals are those of production. Their clock is tokio's. In a test with `start_paused = true` a lock of an
//! hour expires immediately, and the load of the machine does not change the result.
//!
//! A member can be frozen, killed, restarted and emptied, each while a lock is held:
//!
//! ```
//! use redlock_client::test_util::FakeMembers;
//! use redlock_client::{Client, NotAcquired};
//! use std::time::Duration;
//!
//! const TTL: Duration = Duration::from_secs(10);
//! const WAIT: Duration = Duration::from_secs(60);
//!
//! // The tested function writes a report unless another machine has the lock.
//! async fn report(client: &Client) -> Result<&'static str, NotAcquired> {
//!     let guard = client.lock("report").ttl(TTL).try_acquire().await?;
//!     let written = guard.run_while_held(async { "written" }).await.unwrap_or("lost");
//!     let _ = guard.release().await;
//!     Ok(written)
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
//! let members = FakeMembers::start(3);
//! let client = Client::builder(members.urls()).admit_at_once().connect_on(members.machine()).await.unwrap();
//! assert_eq!(report(&client).await.unwrap(), "written");
//!
//! // Another machine has the lock, on a majority.
//! for member in &members[..2] {
//!     member.set("report", "another machine", TTL);
//! }
//! assert!(matches!(report(&client).await, Err(NotAcquired::HeldByOther { .. })));
//! // The other machine dies, and its lock expires, which takes no time here.
//! let guard = client.lock("report").ttl(TTL).wait(WAIT).acquire().await.unwrap();
//! assert_eq!(members.holders("report"), 3);
//!
//! // The network fails, and the guard reports the loss before the lock ends.
//! members[0].freeze();
//! members[1].kill();
//! guard.lost().await;
//! assert!(guard.run_while_held(std::future::pending::<()>()).await.is_err());
//! # });
//! ```
//!
//! A member executes the commands that the client sends to Redis: SET NX PX, INCR, GET, PTTL, DEL, INFO, PING, and
//! the scripts of this crate. Tests compare its answers with those of a real `redis-server`. It has no users: it accepts
//! every password, and fences no client. Also test once with your real masters that the client has its permissions.

mod commands;
mod fake_process;
mod protocol;
mod store;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::time::{Boottime, Clock, TokioClock};
use crate::voting::Machine;
use fake_process::{Life, Network};
use store::Store;

/// Redis masters in this process, which begin empty and running.
///
/// Clones share the same masters.
#[derive(Clone, Debug)]
pub struct FakeMembers {
    members: Arc<[FakeMember]>,
    clock: Arc<TokioClock>,
}

impl FakeMembers {
    /// Starts this number of masters.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime, because the masters use its clock.
    #[must_use]
    pub fn start(count: usize) -> Self {
        let clock = Arc::new(TokioClock::new());
        Self { members: (0..count).map(|index| FakeMember::new(index, Arc::clone(&clock))).collect(), clock }
    }

    /// Their URLs, for [`Client::builder`](crate::Client::builder) or [`Reader`](crate::Reader).
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("redis://{}", member.address())).collect()
    }

    /// The machine that reaches them.
    ///
    /// Give it to [`Builder::connect_on`](crate::Builder::connect_on) and
    /// [`Builder::build_on`](crate::Builder::build_on).
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine {
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            network: Arc::new(Network(Arc::clone(&self.members))),
        }
    }

    /// The number of members with the key.
    #[must_use]
    pub fn holders(&self, key: &str) -> usize {
        self.members.iter().filter(|member| member.get(key).is_some()).count()
    }
}

/// The members, in the order of the URLs.
impl Deref for FakeMembers {
    type Target = [FakeMember];

    fn deref(&self) -> &[FakeMember] {
        &self.members
    }
}

/// One fake master.
///
/// A test can read the keys of a member in any state. A killed member has no keys.
pub struct FakeMember {
    index: usize,
    clock: Arc<TokioClock>,
    state: Mutex<State>,
    life: watch::Sender<Life>,
}

struct State {
    store: Store,
    latency: Duration,
}

impl FakeMember {
    fn new(index: usize, clock: Arc<TokioClock>) -> Self {
        let state = Mutex::new(State { store: Store::default(), latency: Duration::ZERO });
        Self { index, clock, state, life: watch::channel(Life::begun()).0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Boottime {
        self.clock.boottime()
    }

    fn address(&self) -> String {
        format!("member-{}.test:6379", self.index)
    }

    /// Stops answering, like a process after SIGSTOP.
    ///
    /// Connections stay, and commands are executed after [`FakeMember::thaw`].
    ///
    /// Keys expire as usual.
    pub fn freeze(&self) {
        self.life.send_modify(Life::freeze);
    }

    /// Answers again, and first executes all waiting commands.
    pub fn thaw(&self) {
        self.life.send_modify(Life::thaw);
    }

    /// Ends the process: its connections break, new ones are refused, and all keys are lost.
    pub fn kill(&self) {
        self.life.send_modify(Life::end);
        self.empty();
    }

    /// Ends the process, if there is one, and starts another one with empty memory.
    pub fn restart(&self) {
        self.kill();
        self.life.send_modify(Life::begin);
    }

    /// Deletes all keys and the token counter in the same process, as FLUSHALL does.
    ///
    /// A client does not notice.
    pub fn empty(&self) {
        self.state().store = Store::default();
    }

    /// Sets the delay of each batch of commands, which is zero at first.
    pub fn set_latency(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        self.state().store.get(key, self.now()).map(str::to_owned)
    }

    /// The time to live of a key.
    ///
    /// `None` if it does not exist or never expires.
    #[must_use]
    pub fn ttl(&self, key: &str) -> Option<Duration> {
        self.state().store.until(key, self.now()).map(|until| until.since(self.now()))
    }

    /// Sets a key regardless of its value, for example as the lock of another holder.
    pub fn set(&self, key: &str, value: &str, ttl: Duration) {
        let until = self.now() + ttl;
        self.state().store.set(key, value, Some(until));
    }

    /// Deletes a key.
    pub fn delete(&self, key: &str) {
        self.state().store.delete(key, self.now());
    }

    /// All keys, with the token counter (`#token`).
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.state().store.keys(self.now())
    }
}

impl fmt::Debug for FakeMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeMember")
            .field("address", &self.address())
            .field("life", &*self.life.borrow())
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}
