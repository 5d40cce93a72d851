use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::fake::{Fake, Quorum, electors};
use super::{Redlock, Settings};
use crate::redlock::{
    Acquire, AcquireRequest, ClockCheck, ClockSample, Command, Electorate, Extend, ExtendRequest, FencingToken, Grant,
    KeyState, LockMember, LockValue, MemberError, MemberFailure, MemberName, Missing, RunId, Seal, StoredValue, Votes,
    repair_until,
};
use crate::time::{Boottime, Clock, TokioClock, UnixMicros};

mod acquire;
mod electorate;
mod end;
mod extend;

const TTL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(50);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn engine(quorum: &Quorum) -> Redlock<TokioClock> {
    Redlock::new(Arc::clone(&quorum.clock), Settings::default())
}

fn value(text: &str) -> LockValue {
    LockValue::from_text(text)
}

fn request(text: &str) -> AcquireRequest {
    AcquireRequest { key: "k".into(), value: value(text), ttl: TTL, token: true }
}

async fn acquire(quorum: &Quorum, text: &str) -> Acquire {
    engine(quorum).acquire(&quorum.electorate, request(text)).await
}

async fn granted(quorum: &Quorum, text: &str) -> Grant {
    match acquire(quorum, text).await {
        Acquire::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

fn extension(text: &str, valid_until: Boottime) -> ExtendRequest {
    ExtendRequest { key: "k".into(), value: value(text), ttl: TTL, valid_until: Some(valid_until) }
}

async fn extend(quorum: &Quorum, text: &str, valid_until: Boottime) -> Extend {
    let mut answers = engine(quorum).extend(&quorum.electorate, vec![extension(text, valid_until)]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

async fn seal(quorum: &Quorum, lock_delay: Duration) -> Seal {
    engine(quorum).seal(&quorum.electorate, &"k".into(), &value("a"), &value("sealed"), lock_delay).await
}

/// Sets the key of "a" again, in at most this validity and before this moment.
async fn repair(quorum: &Quorum, until: (Boottime, Boottime), missing: &[Missing]) -> Vec<MemberName> {
    engine(quorum).repair(&quorum.electorate, &"k".into(), &value("a"), until, missing).await
}

/// Runs `future` and measures its time on the paused clock.
async fn timed<T>(quorum: &Quorum, future: impl Future<Output = T>) -> (T, Duration) {
    let started = quorum.clock.boottime();
    let output = future.await;
    (output, quorum.clock.boottime().since(started))
}

fn releases(fake: &Fake) -> usize {
    fake.state().log.iter().filter(|command| matches!(command, Command::Release { .. })).count()
}
