//! Watches and requests on a connection that has died.
//!
//! kube's defaults notice a dead connection after 295 s, and pause for up to half a minute after an outage.

use std::fmt::Debug;
use std::time::Duration;

use futures::Stream;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Config, Resource};
use redlock_engine::redlock::jittered;
use serde::de::DeserializeOwned;

/// Seconds after which the API server ends a watch, and the client begins the next one.
///
/// A dead connection delays changes by little more, because kube then gives up a silent watch.
pub const WATCH_SECONDS: u32 = 30;
/// Maximum silence of the API server within one request.
///
/// The API server ends each watch earlier ([`WATCH_SECONDS`]), so a longer silence means that the connection is dead.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(40);
/// The first pause between two attempts to watch.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two attempts to watch, apart from its random part.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Limits the silence within one request.
#[must_use]
pub fn limited(mut config: Config) -> Config {
    (config.read_timeout, config.write_timeout) = (Some(SILENCE_TIMEOUT), Some(SILENCE_TIMEOUT));
    // The time in which a pooled connection was idle is not part of the silence.
    config.reset_reader_on_write = true;
    config
}

/// Watches objects, and tries again within seconds after each error.
pub fn limited_watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(api, config.timeout(WATCH_SECONDS)).backoff(Reconnect::default())
}

/// Pauses between two attempts to watch.
#[derive(Clone, Debug)]
pub struct Reconnect(Duration);

impl Default for Reconnect {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Iterator for Reconnect {
    type Item = Duration;

    /// Doubles the pause, with a random part that spreads the attempts of several clients.
    fn next(&mut self) -> Option<Duration> {
        let pause = jittered(self.0, self.0 / 4, rand::random());
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

impl Backoff for Reconnect {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_retries_within_seconds_after_any_outage() {
        let mut pauses = Reconnect::default();
        assert!(pauses.next().unwrap() <= Duration::from_millis(250));
        assert!(pauses.by_ref().take(50).all(|pause| pause < Duration::from_secs(4)));
        pauses.reset();
        assert!(pauses.next().unwrap() <= Duration::from_millis(250));
    }

    #[test]
    fn a_quiet_watch_ends_before_the_silence_timeout() {
        assert!(Duration::from_secs(WATCH_SECONDS.into()) < SILENCE_TIMEOUT);
    }
}
