//! How long a claim is certainly held: by the members' word, or by the published validity less what clocks may be apart.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use redlock_client::redlock::Nonce;
use redlock_client::{Reader, Sighting, Whose};
use tokio::time::sleep;

use super::super::arguments::Members;
use super::super::direct::trusted;
use super::super::held::{LONGEST_SLEEP, Source};

use super::status::Holding;
use crate::api::GoDuration;
use crate::runtime::api_time::ApiTime;
use crate::time::{Boottime, Clock, SystemClock, UnixMicros};

/// Between two questions while members do not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// The least that a better known clock adds to a validity for it to be told.
const WORTH_TELLING: Duration = Duration::from_millis(10);

const NO_NONCE: &str = "the status names no hold that members can show";

/// What a look brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::command) enum Look {
    /// Held until then.
    Until(Boottime),
    /// Nothing new.
    Unknown,
    /// It is lost, with the reason.
    Lost(String),
}

/// Who is believed.
pub(in crate::command) enum Trust {
    /// The members. The value is known after the first look.
    Members { members: Members, reader: Box<Reader>, key: String, whose: Whose },
    /// The status, by the API server's clock.
    Status { api_time: Arc<ApiTime>, skew: Duration, wall: WallClock, told: Option<Told> },
}

/// The validity that a status has published last, and what was made of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::command) struct Told {
    valid_until: i64,
    until: Boottime,
}

impl Trust {
    /// The members, if there is a way to them.
    pub(in crate::command) async fn new(
        members: Option<Members>,
        api_time: Arc<ApiTime>,
        skew: Duration,
        holding: &Holding,
    ) -> anyhow::Result<Self> {
        match members {
            Some(members) => Self::members(members, holding).await,
            None => Ok(Self::Status { api_time, skew, wall: WallClock::new(&SystemClock), told: None }),
        }
    }

    /// Reads with the Secret of a client.
    async fn members(members: Members, holding: &Holding) -> anyhow::Result<Self> {
        let nonce: Nonce = holding.nonce.parse().context(NO_NONCE)?;
        let data =
            members.secret()?.context("--members needs --direct: give the Secret of a client with access Read")?;
        let mut builder = Reader::from_secret(&data)?;
        if let Some(ca) = data.get("ca.crt") {
            builder = builder.tls(Arc::new(trusted(ca)?));
        }
        let reader = Box::new(builder.connect().await?);
        Ok(Self::Members { members, reader, key: holding.key.clone(), whose: Whose::Nonce(nonce) })
    }

    /// From now on another hold is looked for.
    ///
    /// # Errors
    /// If the status does not name it as members can show it.
    pub(in crate::command) fn turn_to(&mut self, holding: &Holding) -> anyhow::Result<()> {
        match self {
            Self::Members { key, whose, .. } => {
                let nonce: Nonce = holding.nonce.parse().context(NO_NONCE)?;
                (*key, *whose) = (holding.key.clone(), Whose::Nonce(nonce));
            }
            Self::Status { told, .. } => *told = None,
        }
        Ok(())
    }

    pub(in crate::command) const fn source(&self) -> Source {
        match self {
            Self::Members { .. } => Source::Members,
            Self::Status { skew, .. } => Source::Status { skew: *skew },
        }
    }

    /// The first validity. Members that do not show the hold yet are asked again.
    pub(in crate::command) async fn first(&mut self, holding: &Holding, ttl: Duration) -> anyhow::Result<Boottime> {
        let begun = SystemClock.boottime();
        loop {
            let look = match self.published(holding) {
                Look::Unknown => self.look().await,
                look => look,
            };
            match look {
                Look::Until(until) => return Ok(until),
                Look::Lost(why) => bail!("{why}"),
                Look::Unknown if SystemClock.boottime().since(begun) > ttl / 2 => {
                    bail!(
                        "no majority of the members answers with this lock: are they reached from here, and is the Secret that of this quorum?"
                    )
                }
                Look::Unknown => sleep(PAUSE).await,
            }
        }
    }

    /// What a status brings.
    pub(in crate::command) fn published(&mut self, holding: &Holding) -> Look {
        let Self::Status { api_time, skew, told, .. } = self else { return Look::Unknown };
        let Some(until) = held_until(api_time, holding.valid_until, *skew, SystemClock.boottime()) else {
            return Look::Unknown;
        };
        *told = Some(Told { valid_until: holding.valid_until, until });
        Look::Until(until)
    }

    /// What this process sees by itself.
    pub(in crate::command) async fn look(&mut self) -> Look {
        match self {
            Self::Status { api_time, skew, wall, told } => {
                let by = wall.stepped(&SystemClock);
                if by > *skew {
                    let (by, skew) = (readable(by), GoDuration::from(*skew));
                    return Look::Lost(format!("the clock of this machine was set by {by}, more than --skew {skew}"));
                }
                let Some(told) = told else { return Look::Unknown };
                told.later(held_until(api_time, told.valid_until, *skew, SystemClock.boottime()))
            }
            Self::Members { reader, key, whose, .. } => match reader.look(key.clone(), whose).await.sighting {
                Sighting::Held { value, valid_until } => {
                    *whose = Whose::Value(value);
                    Look::Until(valid_until)
                }
                Sighting::NotHeld if matches!(whose, Whose::Value(_)) => {
                    Look::Lost("a majority of the members does not show it".to_owned())
                }
                _ => Look::Unknown,
            },
        }
    }

    /// The members may have changed, or their passwords.
    pub(in crate::command) fn refresh(&self) {
        if let Self::Members { members, reader, .. } = self
            && let Ok(Some(data)) = members.secret()
        {
            // An entry that cannot be read: the reader goes on as before.
            let _ = reader.update(&data);
        }
    }

    /// Between two looks.
    pub(in crate::command) fn pause(&self, ttl: Duration) -> Duration {
        match self {
            Self::Members { .. } => ttl / 10,
            Self::Status { .. } => LONGEST_SLEEP,
        }
    }
}

impl Told {
    /// The same validity, if it is known to last longer than was told.
    fn later(&mut self, until: Option<Boottime>) -> Look {
        match until {
            Some(until) if until > self.until + WORTH_TELLING => {
                self.until = until;
                Look::Until(until)
            }
            _ => Look::Unknown,
        }
    }
}

/// How long a hold is certainly valid, by the latest that the API server's clock may show now.
///
/// `None` as long as that is not known.
fn held_until(api_time: &ApiTime, valid_until: i64, skew: Duration, now: Boottime) -> Option<Boottime> {
    let span = api_time.at(now)?;
    Some(now + left(valid_until, span.most).saturating_sub(skew))
}

fn left(valid_until: i64, now: UnixMicros) -> Duration {
    let micros = valid_until.saturating_mul(1_000).saturating_sub(now.0);
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// This machine's wall clock against its boot-time clock: they run alike unless one is set.
#[derive(Clone, Copy, Debug)]
pub(in crate::command) struct WallClock {
    at_boot: i64,
}

impl WallClock {
    pub(in crate::command) fn new(clock: &dyn Clock) -> Self {
        Self { at_boot: at_boot(clock) }
    }

    /// By how much the wall clock was set since.
    pub(in crate::command) fn stepped(self, clock: &dyn Clock) -> Duration {
        Duration::from_millis(at_boot(clock).abs_diff(self.at_boot))
    }
}

/// A long step to the second: the two clocks that it was measured with are read one after the other.
fn readable(by: Duration) -> GoDuration {
    let is_long = by >= Duration::from_secs(60);
    GoDuration::from(if is_long { Duration::from_secs((by + Duration::from_millis(500)).as_secs()) } else { by })
}

/// What the wall clock showed at boot.
fn at_boot(clock: &dyn Clock) -> i64 {
    let since = i64::try_from(clock.boottime().since_boot().as_millis()).unwrap_or(i64::MAX);
    clock.wall().0.saturating_sub(since)
}

/// Refuses to rely on the status when this machine's clock is certainly wrong.
pub(in crate::command) fn check_wall_clock(
    api_time: &ApiTime,
    clock: &dyn Clock,
    skew: Duration,
) -> anyhow::Result<()> {
    let Some(span) = api_time.at(clock.boottime()) else {
        bail!(
            "the API server does not tell the time: give the Secret of a client with access Read by --members-secret"
        );
    };
    let own = UnixMicros(clock.wall().0.saturating_mul(1_000));
    let apart = Duration::from_micros(u64::try_from((span.least.0 - own.0).max(own.0 - span.most.0)).unwrap_or(0));
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
    use crate::time::{ClockOffset, Monotonic, UnixMillis};

    /// A machine whose wall clock is wrong by so much.
    struct Wrong(i64);

    impl Clock for Wrong {
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
    fn a_long_step_is_told_to_the_second() {
        for (millis, told) in [(3_599_999, "1h"), (3_600_001, "1h"), (1_250, "1250ms")] {
            assert_eq!(readable(Duration::from_millis(millis)).to_string(), told);
        }
    }

    #[test]
    fn a_clock_that_was_set_is_noticed() {
        let before = WallClock::new(&SystemClock);
        assert!(before.stepped(&SystemClock) < Duration::from_millis(100));
        for by in [-3_600_000, 3_600_000] {
            assert!(before.stepped(&Wrong(by)) > Duration::from_secs(3_599));
        }
    }

    #[test]
    fn nothing_starts_on_a_machine_whose_clock_is_wrong() {
        let api_time = ApiTime::new(Arc::new(SystemClock));
        let skew = Duration::from_secs(1);
        assert!(check_wall_clock(&api_time, &SystemClock, skew).unwrap_err().to_string().contains("--members-secret"));
        let now = SystemClock.boottime();
        let real = SystemClock.wall().0 * 1_000;
        let offset = real - i64::try_from(now.since_boot().as_micros()).unwrap();
        api_time.learn(crate::time::ClockOffset::exactly(offset, now));
        assert!(check_wall_clock(&api_time, &SystemClock, skew).is_ok());
        for by in [-30_000, 30_000] {
            let refused = check_wall_clock(&api_time, &Wrong(by), skew).unwrap_err().to_string();
            assert!(refused.contains("apart, and --skew is 1s"), "{refused}");
        }
    }

    /// The first answer tells the server's time to a second, the next ones much better. A hold is renewed in the last third of its
    /// validity, so a second less would end it before.
    #[test]
    fn a_validity_is_known_better_when_the_clock_is() {
        let (now, skew) = (Boottime::new(Duration::from_secs(100)), Duration::from_secs(1));
        let api_time = ApiTime::new(Arc::new(SystemClock));
        let (sent, resolution) = (UnixMicros(1_000_000_000), Duration::from_secs(1));
        let valid_until = 1_008_000;
        assert_eq!(held_until(&api_time, valid_until, skew, now), None);
        api_time.learn(ClockOffset::of_reading(sent, resolution, now, now));
        let until = held_until(&api_time, valid_until, skew, now).unwrap();
        assert_eq!(until, now + Duration::from_secs(6));
        let mut told = Told { valid_until, until };
        assert_eq!(told.later(held_until(&api_time, valid_until, skew, now)), Look::Unknown);
        api_time.learn(ClockOffset::of_reading(sent, resolution / 4, now, now));
        let known = told.later(held_until(&api_time, valid_until, skew, now));
        assert_eq!(known, Look::Until(now + Duration::from_millis(6_750)));
        // Told once. With age the clock is known less exactly: nothing is taken back, since it was true.
        let later = now + Duration::from_secs(3);
        assert_eq!(told.later(held_until(&api_time, valid_until, skew, later)), Look::Unknown);
    }
}
