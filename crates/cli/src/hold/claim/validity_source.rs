//! How long a claim is certainly held: as the members report, or by the published validity less the clock skew.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redlock_client::{Owner, Reader, Reading};
use redlock_engine::redlock::Nonce;
use tokio::time::sleep;

use super::super::arguments::Members;
use super::super::direct::trusted;
use super::super::held_lock::{LONGEST_SLEEP, Source};

use super::status::Holding;
use redlock_api::GoDuration;
use redlock_api::server_time::ServerTime;
use redlock_engine::time::{Boottime, Clock, SystemClock, UnixMicros};

/// Pause between two requests while members do not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Minimum extension that is published when a more exact clock extends a validity.
const NOTABLE: Duration = Duration::from_millis(10);

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
    Members { members: Members, reader: Box<Reader>, key: String, owner: Owner },
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
    /// Uses the members, if the options describe them, or else the status.
    pub(crate) async fn new(
        members: Option<Members>,
        server_time: Arc<ServerTime>,
        skew: Duration,
        holding: &Holding,
    ) -> anyhow::Result<Self> {
        match members {
            Some(members) => Self::members(members, holding).await,
            None => Ok(Self::Status { server_time, skew, published: None }),
        }
    }

    /// Connects to the members with a client's Secret.
    async fn members(members: Members, holding: &Holding) -> anyhow::Result<Self> {
        let nonce: Nonce = holding.nonce.parse().context(NO_NONCE)?;
        let data =
            members.secret()?.context("--members needs --direct: give the Secret of a client with access Read")?;
        let mut builder = Reader::from_secret(&data)?;
        if let Some(ca) = data.get("ca.crt") {
            builder = builder.tls(Arc::new(trusted(ca)?));
        }
        let reader = Box::new(builder.connect().await?);
        Ok(Self::Members { members, reader, key: holding.key.clone(), owner: Owner::Nonce(nonce) })
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
                HoldState::Unknown if SystemClock.boottime().since(begun) > ttl / 2 => {
                    bail!(
                        "no majority of the members answers with this lock: are they reached from here, and is the Secret that of this quorum?"
                    )
                }
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

    /// Reads the Secret again, because the members or their passwords can have changed.
    pub(crate) fn refresh(&self) {
        if let Self::Members { members, reader, .. } = self
            && let Ok(Some(data)) = members.secret()
        {
            // The reader ignores an unreadable entry.
            let _ = reader.update(&data);
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
            "the API server does not tell the time: give the Secret of a client with access Read by --members-secret"
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
mod tests {
    use super::*;
    use redlock_api::server_time::USUAL_DRIFT;
    use redlock_engine::time::{ClockOffset, Monotonic, UnixMillis};

    /// A machine whose wall clock is wrong by this number of milliseconds.
    struct WrongClock(i64);

    impl Clock for WrongClock {
        fn boottime(&self) -> Boottime {
            SystemClock.boottime()
        }

        fn monotonic(&self) -> Monotonic {
            SystemClock.monotonic()
        }

        fn wall(&self) -> UnixMillis {
            UnixMillis(SystemClock.wall().0 + self.0)
        }
    }

    #[test]
    fn a_published_validity_counts_from_the_latest_time_it_may_be() {
        assert_eq!(left(10_000, UnixMicros(7_500_000)), Duration::from_millis(2_500));
        assert_eq!(left(10_000, UnixMicros(10_000_001)), Duration::ZERO);
    }

    #[test]
    fn nothing_starts_on_a_machine_whose_clock_is_wrong() {
        let server_time = ServerTime::new(Arc::new(SystemClock), USUAL_DRIFT);
        let skew = Duration::from_secs(1);
        assert!(
            check_wall_clock(&server_time, &SystemClock, skew).unwrap_err().to_string().contains("--members-secret")
        );
        let now = SystemClock.boottime();
        let real = UnixMicros(SystemClock.wall().0 * 1_000);
        server_time.set_offset(ClockOffset::of_reading(real, Duration::ZERO, now, now));
        assert!(check_wall_clock(&server_time, &SystemClock, skew).is_ok());
        for by in [-30_000, 30_000] {
            let refused = check_wall_clock(&server_time, &WrongClock(by), skew).unwrap_err().to_string();
            assert!(refused.contains("apart, and --skew is 1s"), "{refused}");
        }
    }

    /// The first response gives the server's time to a second, and later ones are much more exact.
    ///
    /// A hold is renewed in the last third of its validity. If the error stayed at a second, the hold would end before its renewal.
    #[test]
    fn a_validity_is_known_better_when_the_clock_is() {
        let (now, skew) = (Boottime::new(Duration::from_secs(100)), Duration::from_secs(1));
        let server_time = ServerTime::new(Arc::new(SystemClock), USUAL_DRIFT);
        let (sent, resolution) = (UnixMicros(1_000_000_000), Duration::from_secs(1));
        let valid_until = 1_008_000;
        assert_eq!(held_until(&server_time, valid_until, skew, now), None);
        server_time.set_offset(ClockOffset::of_reading(sent, resolution, now, now));
        let until = held_until(&server_time, valid_until, skew, now).unwrap();
        assert_eq!(until, now + Duration::from_secs(6));
        let mut published = Published { valid_until, bound: now + Duration::from_secs(9), until };
        assert_eq!(published.later(held_until(&server_time, valid_until, skew, now)), HoldState::Unknown);
        server_time.set_offset(ClockOffset::of_reading(sent, resolution / 4, now, now));
        let known = published.later(held_until(&server_time, valid_until, skew, now));
        assert_eq!(known, HoldState::Until(now + Duration::from_millis(6_750)));
        // The extension is reported once. The clock becomes less exact with age, but an end that was true is not withdrawn.
        let later = now + Duration::from_secs(3);
        assert_eq!(published.later(held_until(&server_time, valid_until, skew, later)), HoldState::Unknown);
    }

    /// An API server's clock is set back, or another server behind the same address has a late clock.
    #[test]
    fn a_clock_that_is_set_back_prolongs_no_published_validity() {
        let (now, skew) = (Boottime::new(Duration::from_secs(100)), Duration::from_secs(1));
        let late = now + Duration::from_secs(60);
        let mut published =
            Published { valid_until: 1, bound: now + Duration::from_secs(9), until: now + Duration::from_secs(8) };
        assert_eq!(published.later(Some(late)), HoldState::Until(now + Duration::from_secs(9)));
        assert_eq!(published.later(Some(late)), HoldState::Unknown);
        let server_time = Arc::new(ServerTime::new(Arc::new(SystemClock), USUAL_DRIFT));
        let learn = |millis: i64| {
            let now = SystemClock.boottime();
            server_time.set_offset(ClockOffset::of_reading(UnixMicros(millis * 1_000), Duration::ZERO, now, now));
        };
        let holding = Holding {
            nonce: String::new(),
            token: 1,
            identity: String::new(),
            key: String::new(),
            valid_until: 1_000_010_000,
        };
        learn(1_000_000_000);
        let begun = SystemClock.boottime();
        let mut trust = ValiditySource::Status { server_time: server_time.clone(), skew, published: None };
        let ttl = Duration::from_secs(10);
        let HoldState::Until(first) = trust.published(&holding, ttl) else { panic!("known") };
        learn(999_980_000);
        let HoldState::Until(again) = trust.published(&holding, ttl) else { panic!("known") };
        let most = SystemClock.boottime() + ttl.saturating_sub(skew);
        assert!(first <= most && again <= most && again.since(begun) < Duration::from_secs(10), "{first:?} {again:?}");
    }
}
