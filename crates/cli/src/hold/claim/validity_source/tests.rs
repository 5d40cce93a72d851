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
fn a_published_validity_is_measured_at_the_latest_possible_now() {
    assert_eq!(left(10_000, UnixMicros(7_500_000)), Duration::from_millis(2_500));
    assert_eq!(left(10_000, UnixMicros(10_000_001)), Duration::ZERO);
}

#[test]
fn nothing_starts_on_a_machine_whose_clock_is_wrong() {
    let server_time = ServerTime::new(Arc::new(SystemClock), USUAL_DRIFT);
    let skew = Duration::from_secs(1);
    assert!(check_wall_clock(&server_time, &SystemClock, skew).unwrap_err().to_string().contains("--members-secret"));
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
fn a_more_exact_clock_gives_a_longer_validity() {
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
    let holding = Holding { valid_until: 1_000_010_000, ..Holding::default() };
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

const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUCdYLXC88OU5mEGhDMeYD+EA7axAwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjkwMjUyMTJaGA8yMTI2MTEwNTAyNTIx
MlowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKpc
4ZR5kVQZJH9hVog3TqtBdCNaKX+Ifk6RzlnqkJbDKoQd8IR0w6fAx4UUPkHiIqAs
KrppDAuq1a2e3g36KU6jUzBRMB0GA1UdDgQWBBTQQb1Y3sAh2qjkCzLfEsr1xPB4
BzAfBgNVHSMEGDAWgBTQQb1Y3sAh2qjkCzLfEsr1xPB4BzAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQCWGliIwgq8hPMVdciXmMN2aKrRylh/O+pg
KDOx45L5QQIgRex94oZQma37YQfjVnA3brmSoKDo0WJvreqxOLLJzMQ=
-----END CERTIFICATE-----
";

/// The names of the members that a source asks.
async fn asked(source: &ValiditySource) -> Vec<String> {
    let ValiditySource::Members { reader, key, owner, .. } = source else { panic!("members") };
    let failures = reader.read(key.clone(), owner).await.failures;
    failures.iter().map(|(member, _)| member.to_string()).collect()
}

/// For example, an administrator sets `spec.tls` of a quorum while a hold lasts.
#[tokio::test]
async fn a_source_follows_a_secret_that_gets_an_authority() {
    let directory = std::env::temp_dir().join(format!("redlock-source-{:08x}", rand::random::<u32>()));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let entries = [("keyPrefix", "shop/"), ("maxTTL", "30s"), ("clockDrift", "10000ppm 2ms"), ("nodeTimeout", "50ms")];
    entries.iter().for_each(|(name, text)| write(name, text));
    for (name, text) in [("quorum", "1"), ("fenced", "true"), ("urls", "redis://127.0.0.1:1")] {
        write(name, text);
    }
    let nonce = "0123456789abcdef0123".to_owned();
    let holding = Holding { nonce, key: "shop/reindex".to_owned(), ..Holding::default() };
    let server_time = Arc::new(ServerTime::new(Arc::new(SystemClock), USUAL_DRIFT));
    let members = Some(Members::Directory(directory.clone()));
    let mut source = ValiditySource::new(members, server_time, Duration::ZERO, &holding).await.unwrap();
    assert_eq!(asked(&source).await, ["127.0.0.1:1"]);
    write("urls", "rediss://127.0.0.1:2");
    write("ca.crt", AUTHORITY);
    source.refresh();
    assert_eq!(asked(&source).await, ["127.0.0.1:2"]);
    std::fs::remove_dir_all(directory).unwrap();
}
