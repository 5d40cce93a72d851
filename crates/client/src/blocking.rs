//! Locks for programs without a runtime: the same client with a thread of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};

use crate::client::{self, BuildError, Builder, Held, Lost, NotAcquired, Release, Undelivered};
use crate::redlock::{FencingToken, LockKey};

/// Maximum wait of the last handle for outstanding answers.
const MAX_END: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

/// A [`client::Client`] for callers that can block.
///
/// It starts one thread for its connections and renewals.
///
/// The last handle, or guard, waits for outstanding answers, at most one second. So a guard that is dropped right
/// before the end of `main` releases its lock. In async code another thread waits, and the end of the process stops it.
#[derive(Clone, Debug)]
pub struct Client(Arc<Host>);

/// The client and its runtime.
#[derive(Debug)]
struct Host {
    client: client::Client,
    /// Present until the last handle is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Host {
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let client = self.client.clone();
        let end = move || {
            let mut waited = Duration::ZERO;
            while client.outstanding() > 0 && waited < MAX_END {
                thread::sleep(STEP);
                waited += STEP;
            }
            // Dropping a runtime waits for it, which is a panic in async code.
            runtime.shutdown_background();
        };
        if Handle::try_current().is_ok() {
            thread::spawn(end);
        } else {
            end();
        }
    }
}

/// See [`client::Guard`].
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    // The guard is dropped before the host, because the end of the host waits for the release.
    guard: client::Guard,
    host: Arc<Host>,
}

/// See [`client::Lock`].
#[derive(Clone, Debug)]
#[must_use = "nothing is locked before `acquire` or `try_acquire`"]
pub struct Lock {
    lock: client::Lock,
    host: Arc<Host>,
}

/// The compiler confirms that threads can share a client, and that a guard can move between them.
const _: () = {
    const fn is_shared<T: Send + Sync + Clone + 'static>() {}
    const fn moves<T: Send + 'static>() {}
    is_shared::<Client>();
    moves::<Guard>();
};

impl Client {
    /// Makes the client and waits until it reaches a majority, at most one second.
    ///
    /// # Errors
    /// If the settings are invalid, or no thread can be started.
    ///
    /// # Panics
    /// If it is called inside a runtime, like all methods of this module that wait.
    pub fn connect(builder: Builder) -> Result<Self, BuildError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|_| BuildError::NoRuntime)?;
        let client = runtime.block_on(builder.connect())?;
        let handle = runtime.handle().clone();
        Ok(Self(Arc::new(Host { client, runtime: Some(runtime), handle })))
    }

    /// See [`client::Client::lock`].
    pub fn lock(&self, key: impl Into<LockKey>) -> Lock {
        Lock { lock: self.0.client.lock(key), host: Arc::clone(&self.0) }
    }

    /// See [`client::Client::update`].
    ///
    /// # Errors
    /// If the Secret is unreadable, or has other members or permissions.
    pub fn update(&self, data: &BTreeMap<String, Vec<u8>>) -> Result<(), BuildError> {
        self.0.client.update(data)
    }

    /// See [`client::Client::set_tls`].
    #[cfg(feature = "tls")]
    pub fn set_tls(&self, config: Arc<rustls::ClientConfig>) {
        self.0.client.set_tls(config);
    }

    /// See [`client::Client::voters`].
    #[must_use]
    pub fn voters(&self) -> usize {
        self.0.client.voters()
    }

    /// See [`client::Client::release`].
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn release(&self, held: &Held) -> Release {
        self.0.block_on(self.0.client.release(held))
    }

    /// See [`client::Client::resume`].
    ///
    /// # Errors
    /// If a majority does not have the value, or does not answer.
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn resume(&self, held: Held, ttl: Duration) -> Result<Guard, Lost> {
        let guard = self.0.block_on(self.0.client.resume(held, ttl))?;
        Ok(Guard { guard, host: Arc::clone(&self.0) })
    }

    /// See [`client::Client::close`].
    ///
    /// # Errors
    /// If members have not answered in time.
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn close(&self, longest: Duration) -> Result<(), Undelivered> {
        self.0.block_on(self.0.client.close(longest))
    }
}

impl Lock {
    /// See [`client::Lock::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// See [`client::Lock::wait`].
    pub fn wait(mut self, longest: Duration) -> Self {
        self.lock = self.lock.wait(longest);
        self
    }

    /// See [`client::Lock::slots`].
    pub fn slots(mut self, slots: u32) -> Self {
        self.lock = self.lock.slots(slots);
        self
    }

    /// See [`client::Lock::refuse_other_slots`].
    pub fn refuse_other_slots(mut self) -> Self {
        self.lock = self.lock.refuse_other_slots();
        self
    }

    /// See [`client::Lock::try_acquire`].
    ///
    /// # Errors
    /// The reason why the lock is not held.
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn try_acquire(self) -> Result<Guard, NotAcquired> {
        let guard = self.host.block_on(self.lock.try_acquire())?;
        Ok(Guard { guard, host: self.host })
    }

    /// See [`client::Lock::acquire`].
    ///
    /// # Errors
    /// The reason why the last attempt failed.
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn acquire(self) -> Result<Guard, NotAcquired> {
        let guard = self.host.block_on(self.lock.acquire())?;
        Ok(Guard { guard, host: Arc::clone(&self.host) })
    }
}

impl Guard {
    /// See [`client::Guard::key`].
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.guard.key()
    }

    /// Blocks until the lock is lost, or the margin before its validity ends.
    ///
    /// # Panics
    /// If it is called inside a runtime.
    #[expect(clippy::must_use_candidate, reason = "it is called for the wait")]
    pub fn lost(&self) -> Lost {
        self.host.block_on(self.guard.lost())
    }

    /// Runs a future while the lock is held, like [`client::Guard::run_while_held`].
    ///
    /// Blocking code must check [`Guard::is_held`] between its steps.
    ///
    /// # Errors
    /// If the lock was lost first.
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn run_while_held<T>(&self, future: impl Future<Output = T>) -> Result<T, Lost> {
        self.host.block_on(self.guard.run_while_held(future))
    }

    /// See [`client::Guard::leave`].
    ///
    /// # Errors
    /// If the lock was lost, or no majority has confirmed.
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn leave(self, least: Duration) -> Result<(), Lost> {
        self.host.block_on(self.guard.leave(least))
    }

    /// See [`client::Guard::token`].
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// See [`client::Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// See [`client::Guard::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// See [`client::Guard::into_held`].
    pub fn into_held(self) -> Held {
        self.guard.into_held()
    }

    /// See [`client::Guard::release`].
    ///
    /// # Panics
    /// If it is called inside a runtime.
    pub fn release(self) -> Release {
        self.host.block_on(self.guard.release())
    }
}
