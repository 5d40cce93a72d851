//! How long a claim is certainly held: as the members report, or by the published validity less the clock skew.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redlock_client::{Owner, Reader, Reading};
use redlock_engine::redlock::Nonce;
use tokio::time::sleep;

use super::super::arguments::{Members, NEEDS_DIRECT};
use super::super::direct::{changed_trust, trusted};
use super::super::held_lock::{LONGEST_SLEEP, Source};
use super::super::mounted_secret::Secret;

use super::status::Holding;
use redlock_api::GoDuration;
use redlock_api::server_time::ServerTime;
use redlock_engine::time::{Boottime, Clock, SystemClock, UnixMicros};

/// Pause between two requests while members do not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Minimum extension that is published when a more exact clock extends a validity.
const NOTABLE: Duration = Duration::from_millis(10);

/// The reason if the members do not show a hold that the status names.
pub(crate) const UNREAD: &str = "no majority of the members answers with this lock: are they reached from here, and is the Secret that of this quorum?";
const NO_NONCE: &str = "the status names no hold that members can show";

/// The state of a hold, as the members or the status show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldState {
    /// Held until then.
    Until(Boottime),
    /// There is no new validity.
    Unknown,
    /// It is lost, with the reason.
    Lost(String),
}

/// The source of the validity of a claim: the members or the status.
pub(crate) enum ValiditySource {
    /// The members. The value is known after the first reading.
    Members { members: Members, secret: Secret, reader: Box<Reader>, key: String, owner: Owner },
    /// The status, by the API server's clock.
    Status { server_time: Arc<ServerTime>, skew: Duration, published: Option<Published> },
}

/// The last validity that a status published.
///
/// An operator never publishes a validity of more than one ttl. So the validity lasts at most one ttl after this process first read it.
/// Without this bound an API server whose clock is set back would prolong the validity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    /// `status.validUntil`, in milliseconds since 1970.
    valid_until: i64,
    /// The latest end that this validity can have.
    bound: Boottime,
    /// The end that was reported to the follower.
    until: Boottime,
}

impl ValiditySource {
    /// Connects to the members if the options describe them. Otherwise it uses the status.
    pub(crate) async fn new(
        members: Option<Members>,
        server_time: Arc<ServerTime>,
        skew: Duration,
        holding: &Holding,
    ) -> anyhow::Result<Self> {
        let Some(members) = members else { return Ok(Self::Status { server_time, skew, published: None }) };
        let nonce: Nonce = holding.nonce.parse().context(NO_NONCE)?;
        let data = members.secret()?.context(NEEDS_DIRECT)?;
        let mut builder = Reader::from_secret(&data)?;
        if let Some(ca) = data.get("ca.crt") {
            builder = builder.tls(Arc::new(trusted(ca)?));
        }
        let reader = Box::new(builder.connect().await?);
        Ok(Self::Members { members, secret: data, reader, key: holding.key.clone(), owner: Owner::Nonce(nonce) })
    }

    /// Changes to another hold.
    ///
    /// # Errors
    /// If the status has no nonce for it.
    pub(crate) fn follow_hold(&mut self, holding: &Holding) -> anyhow::Result<()> {
        match self {
            Self::Members { key, owner, .. } => {
                let nonce: Nonce = holding.nonce.parse().context(NO_NONCE)?;
                (*key, *owner) = (holding.key.clone(), Owner::Nonce(nonce));
            }
            Self::Status { published, .. } => *published = None,
        }
        Ok(())
    }

    pub(crate) const fn source(&self) -> Source {
        match self {
            Self::Members { .. } => Source::Members,
            Self::Status { skew, .. } => Source::Status { skew: *skew },
        }
    }

    /// Waits for the first validity. It repeats requests to members that do not have the hold yet.
    pub(crate) async fn first(&mut self, holding: &Holding, ttl: Duration) -> anyhow::Result<Boottime> {
        let begun = SystemClock.boottime();
        loop {
            let state = match self.published(holding, ttl) {
                HoldState::Unknown => self.read().await,
                state => state,
            };
            match state {
                HoldState::Until(until) => return Ok(until),
                HoldState::Lost(why) => bail!("{why}"),
                HoldState::Unknown if SystemClock.boottime().since(begun) > ttl / 2 => bail!(UNREAD),
                HoldState::Unknown => sleep(PAUSE).await,
            }
        }
    }

    /// Reads the validity of a new status. `ttl` is that of the lock.
    pub(crate) fn published(&mut self, holding: &Holding, ttl: Duration) -> HoldState {
        let Self::Status { server_time, skew, published, .. } = self else { return HoldState::Unknown };
        let now = SystemClock.boottime();
        let Some(until) = held_until(server_time, holding.valid_until, *skew, now) else {
            return HoldState::Unknown;
        };
        let known = published.filter(|known| known.valid_until == holding.valid_until);
        let bound = known.map_or_else(|| now + ttl.saturating_sub(*skew), |known| known.bound);
        let until = until.min(bound);
        *published = Some(Published { valid_until: holding.valid_until, bound, until });
        HoldState::Until(until)
    }

    /// Reads the validity without a new status: from the members, or by a more exact clock.
    pub(crate) async fn read(&mut self) -> HoldState {
        match self {
            Self::Status { server_time, skew, published } => {
                let Some(published) = published else { return HoldState::Unknown };
                published.later(held_until(server_time, published.valid_until, *skew, SystemClock.boottime()))
            }
            Self::Members { reader, key, owner, .. } => match reader.read(key.clone(), owner).await.reading {
                Reading::Held { value, valid_until } => {
                    *owner = Owner::Value(value);
                    HoldState::Until(valid_until)
                }
                Reading::NotHeld if matches!(owner, Owner::Value(_)) => {
                    HoldState::Lost("a majority of the members does not show it".to_owned())
                }
                _ => HoldState::Unknown,
            },
        }
    }

    /// Reads the Secret again, because the members, their passwords or their authority can have changed.
    pub(crate) fn refresh(&mut self) {
        if let Self::Members { members, secret, reader, .. } = self
            && let Ok(Some(data)) = members.secret()
        {
            if let Some(config) = changed_trust(secret, &data) {
                reader.set_tls(config);
            }
            // A Secret that is being replaced is read again later.
            if reader.update(&data).is_ok() {
                *secret = data;
            }
        }
    }

    /// The pause between two readings.
    pub(crate) fn pause(&self, ttl: Duration) -> Duration {
        match self {
            Self::Members { .. } => ttl / 10,
            Self::Status { .. } => LONGEST_SLEEP,
        }
    }
}

impl Published {
    /// The end of the same validity, if a more exact clock shows a later end than the reported one.
    fn later(&mut self, until: Option<Boottime>) -> HoldState {
        match until.map(|until| until.min(self.bound)) {
            Some(until) if until > self.until + NOTABLE => {
                self.until = until;
                HoldState::Until(until)
            }
            _ => HoldState::Unknown,
        }
    }
}

/// The certain end of a hold, by the latest possible time of the API server's clock.
///
/// `None` until that clock is known.
fn held_until(server_time: &ServerTime, valid_until: i64, skew: Duration, now: Boottime) -> Option<Boottime> {
    let latest = server_time.offset(now)?.latest(now);
    Some(now + left(valid_until, latest).saturating_sub(skew))
}

fn left(valid_until: i64, now: UnixMicros) -> Duration {
    let micros = valid_until.saturating_mul(1_000).saturating_sub(now.0);
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Refuses to rely on the status when this machine's clock is certainly wrong.
pub(crate) fn check_wall_clock(server_time: &ServerTime, clock: &dyn Clock, skew: Duration) -> anyhow::Result<()> {
    let now = clock.boottime();
    let Some(api_clock) = server_time.offset(now) else {
        bail!(
            "the API server does not report the time: give the Secret of a client with access Read by --members-secret"
        );
    };
    let own = UnixMicros(clock.wall().0.saturating_mul(1_000));
    let apart = (api_clock.earliest(now).0 - own.0).max(own.0 - api_clock.latest(now).0);
    let apart = Duration::from_micros(u64::try_from(apart).unwrap_or(0));
    if apart > skew {
        bail!(
            "the clock of this machine and that of the API server are at least {} apart, and --skew is {}: set the clock, or give the \
             Secret of a client with access Read by --members-secret, which needs no clocks",
            GoDuration::from(apart),
            GoDuration::from(skew),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
