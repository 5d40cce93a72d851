//! Locks for programs without a runtime: the same client, which brings a thread of its own.

use crate::client::{self, BuildError, Builder, NotAcquired, Release, Undelivered};
use crate::redlock::{FencingToken, LockKey};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// As [`client::Client`], for callers that may block. Its connections and renewals live on one thread that it starts.
#[derive(Clone, Debug)]
pub struct Client {
    // Before the runtime, so that it ends while that runs.
    client: client::Client,
    runtime: Arc<Runtime>,
}

/// As [`client::Guard`].
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    guard: client::Guard,
    runtime: Arc<Runtime>,
}

/// A client is shared by threads, and a guard moves from one to the other: the compiler confirms it.
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
    /// If it cannot work as it is described, or no thread can be started.
    ///
    /// # Panics
    /// Inside a runtime, like all methods that wait here.
    pub fn connect(builder: Builder) -> Result<Self, BuildError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Arc::new(runtime.map_err(|_| BuildError::NoRuntime)?);
        let client = runtime.block_on(builder.connect())?;
        Ok(Self { client, runtime })
    }

    /// As [`client::Client::try_acquire`].
    ///
    /// # Errors
    /// Why the lock is not held.
    ///
    /// # Panics
    /// Inside a runtime.
    pub fn try_acquire(&self, key: impl Into<LockKey>, ttl: Duration) -> Result<Guard, NotAcquired> {
        let guard = self.runtime.block_on(self.client.try_acquire(key, ttl))?;
        Ok(Guard { guard, runtime: Arc::clone(&self.runtime) })
    }

    /// As [`client::Client::acquire`].
    ///
    /// # Errors
    /// Why the last attempt failed.
    ///
    /// # Panics
    /// Inside a runtime.
    pub fn acquire(&self, key: impl Into<LockKey>, ttl: Duration, wait: Duration) -> Result<Guard, NotAcquired> {
        let guard = self.runtime.block_on(self.client.acquire(key, ttl, wait))?;
        Ok(Guard { guard, runtime: Arc::clone(&self.runtime) })
    }

    /// As [`client::Client::close`].
    ///
    /// # Errors
    /// If members have not answered in time.
    ///
    /// # Panics
    /// Inside a runtime.
    pub fn close(&self, longest: Duration) -> Result<(), Undelivered> {
        self.runtime.block_on(self.client.close(longest))
    }
}

impl Guard {
    /// As [`client::Guard::token`].
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// As [`client::Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// As [`client::Guard::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// As [`client::Guard::release`].
    ///
    /// # Panics
    /// Inside a runtime.
    pub fn release(self) -> Release {
        self.runtime.block_on(self.guard.release())
    }
}
