//! The beliefs of holders, as far as statuses show them.
//!
//! A holder believes what it has read. It can work until the last `validUntil` that was published for it, by the API
//! server's clock. Before that, no status can name another holder, unless the former holder's container has ended or
//! the holder has released the lock. The API server of the local cluster has the clock of this machine, whatever the
//! clock of an operator replica.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, ensure};
use redlock_operator::api::DistributedLock;

use crate::{
    locks::{Lock, status},
    record::Version,
    spans::millis,
};

/// The longest time from a write to the API server to its arrival at the test, on a busy machine.
const SIGHT: Duration = Duration::from_secs(2);

/// One hold as it was published.
///
/// Times are in milliseconds of Unix time.
#[derive(Clone, Debug)]
pub(crate) struct Belief {
    pub(crate) lock: String,
    pub(crate) token: i64,
    /// The arrival of the first status with this holder.
    pub(crate) observed: i64,
    /// The time of acquisition in that status.
    pub(crate) acquired: i64,
    /// The last published validity.
    pub(crate) until: i64,
}

/// The published beliefs of all holds on one key.
///
/// `locks` are all the objects that use it.
pub(crate) fn beliefs<'a>(locks: impl IntoIterator<Item = &'a Lock>) -> anyhow::Result<Vec<Belief>> {
    let mut holds: BTreeMap<i64, Belief> = BTreeMap::new();
    for lock in locks {
        for version in lock.recorder.versions() {
            let Some((token, acquired, until)) = published(&version) else { continue };
            let hold = holds.entry(token).or_insert_with(|| Belief {
                lock: lock.name.clone(),
                token,
                observed: version.wall.0,
                acquired,
                until,
            });
            ensure!(hold.lock == lock.name, "{} and {} have the token {token}", hold.lock, lock.name);
            hold.until = hold.until.max(until);
        }
    }
    let mut holds: Vec<_> = holds.into_values().collect();
    holds.sort_by_key(|hold| hold.observed);
    Ok(holds)
}

fn published(version: &Version<DistributedLock>) -> Option<(i64, i64, i64)> {
    let status = version.object.status.as_ref().filter(|status| status.holder.is_some())?;
    Some((status.fencing_token?, status.acquired_at?.as_millis(), status.valid_until?.as_millis()))
}

/// Checks that no holder had the key while another one believed that it held the key.
///
/// `ended` has the time at which the holder of a token ended or released the lock. Returns the holds in their order.
pub(crate) fn check_apart(locks: &[&Lock], ended: &[(i64, i64)]) -> anyhow::Result<Vec<Belief>> {
    let holds = beliefs(locks.iter().copied())?;
    for pair in holds.windows(2) {
        let [before, after] = pair else { continue };
        let known = ended.iter().filter(|(token, _)| *token == before.token).map(|(_, at)| *at);
        let end = known.chain([before.until]).min().unwrap_or(before.until);
        for (what, at) in [("was named", after.observed), ("got the lock", after.acquired)] {
            let early = end - at;
            ensure!(early <= 0, "the next holder {what} {early} ms before the validity ended: {before:?}, {after:?}");
        }
    }
    Ok(holds)
}

/// Checks that the tokens of one quorum rise with the holds.
pub(crate) fn check_tokens(holds: &[Belief]) -> anyhow::Result<()> {
    ensure!(holds.is_sorted_by(|before, after| before.token < after.token), "tokens do not rise: {holds:?}");
    Ok(())
}

/// Checks that `next` came after the last validity of the earlier hold, and at most `slack` later.
pub(crate) fn check_followed(locks: &[&Lock], next: &Version<DistributedLock>, slack: Duration) -> anyhow::Result<()> {
    let holds = check_apart(locks, &[])?;
    let token = status(&next.object).fencing_token.context("the next holder has no token")?;
    let at = holds.iter().position(|hold| hold.token == token).context("the next holder's hold was not seen")?;
    let before = at.checked_sub(1).and_then(|at| holds.get(at)).context("nobody held the key before")?;
    let waited = holds[at].observed - before.until;
    ensure!(waited < millis(slack), "the next holder was named only {waited} ms after the last validity: {holds:?}");
    Ok(())
}

/// Checks that no status promised more than one ttl, by the API server's clock.
pub(crate) fn check_no_promise_beyond_ttl(lock: &Lock, ttl: Duration) -> anyhow::Result<()> {
    for version in lock.recorder.versions() {
        let Some((_, acquired, until)) = published(&version) else { continue };
        let (ahead, bound) = (until - version.wall.0, millis(ttl) + millis(SIGHT));
        ensure!(ahead <= bound, "{}: validUntil is {ahead} ms ahead: {:?}", lock.name, status(&version.object));
        let early = acquired - version.wall.0;
        ensure!(early <= millis(SIGHT), "{}: acquiredAt is {early} ms ahead: {:?}", lock.name, status(&version.object));
    }
    Ok(())
}
