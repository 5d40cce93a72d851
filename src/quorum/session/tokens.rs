//! The highest token that this replica observed, and the floor that etcd keeps ahead of every published token.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::future::join_all;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use tokio::sync::Mutex;

use super::QuorumSession;
use crate::api::RedisQuorum;
use crate::api::requests::{RequestError, SHORT_TIMEOUT, within};
use crate::quorum::model::lists::Lists;
use crate::quorum::model::record::admitted_run_id;
use crate::redlock::FencingToken;

/// The step by which the floor rises, so that few acquisitions need a write to etcd.
///
/// The step must not be larger. A counter that is restored from the floor rises by one step, which is 66 ms of the
/// clock. It must not get ahead of the clock by more than the time in which a user deletes a quorum and creates it
/// again. The new one begins with the clock (`docs/dev/algorithm.md`, "Tokens").
pub const FLOOR_STEP: u32 = 1 << 16;
/// The distance to the floor at which it is raised early, so that no acquisition waits for it.
const LOW_WATER: u32 = FLOOR_STEP / 2;

/// Maximum number of attempts. Each conflict means that another write succeeded.
const ATTEMPTS: usize = 5;

/// Why the floor could not be raised. The token must not be published.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// The API server refused, or did not answer in time.
    #[error("cannot raise the token floor")]
    Request(#[from] RequestError),
    /// The object was deleted, or replaced by another one.
    #[error("cannot raise the token floor: the RedisQuorum was deleted")]
    Gone,
    /// Another write changed the status during each attempt.
    #[error("cannot raise the token floor: the status changed under every attempt")]
    Contended,
}

/// Two numbers that only rise.
#[derive(Default)]
pub(super) struct Tokens {
    highest: AtomicI64,
    floor: AtomicI64,
    raising: Mutex<()>,
}

impl Tokens {
    pub(super) fn update(&self, quorum: &RedisQuorum) {
        self.floor.fetch_max(floor_of(quorum).get(), Ordering::AcqRel);
    }

    pub(super) fn highest(&self) -> FencingToken {
        FencingToken::new(self.highest.load(Ordering::Acquire)).unwrap_or_default()
    }

    pub(super) fn floor(&self) -> FencingToken {
        FencingToken::new(self.floor.load(Ordering::Acquire)).unwrap_or_default()
    }

    /// Records a token, and returns whether the floor must be raised early.
    pub(super) fn observe(&self, token: FencingToken) -> bool {
        let before = self.highest.fetch_max(token.get(), Ordering::AcqRel);
        let low = |highest: i64| highest.saturating_add(i64::from(LOW_WATER)) > self.floor().get();
        low(token.get()) && !low(before)
    }

    /// The token for an early raise of the floor, if the floor is near.
    pub(super) fn low_water(&self) -> Option<FencingToken> {
        let ahead = self.highest().saturating_add(LOW_WATER);
        (self.highest() > FencingToken::ZERO && ahead > self.floor()).then_some(ahead)
    }
}

/// The floor in a quorum's status.
pub(crate) fn floor_of(quorum: &RedisQuorum) -> FencingToken {
    quorum.status.as_ref().and_then(|status| status.token_floor).and_then(FencingToken::new).unwrap_or_default()
}

pub(super) async fn ensure(session: &QuorumSession, token: FencingToken) -> Result<(), FloorError> {
    if token <= session.tokens.floor() {
        return Ok(());
    }
    let _one_at_a_time = session.tokens.raising.lock().await;
    for _ in 0..ATTEMPTS {
        if token <= session.tokens.floor() {
            return Ok(());
        }
        // The status is read from the API server, never from a cache, and written with that resourceVersion.
        match within(SHORT_TIMEOUT, raise(session, token)).await {
            Err(RequestError::Conflict) => {}
            Err(error) => return Err(error.into()),
            Ok(raised) => session.update(Arc::new(raised.ok_or(FloorError::Gone)?)),
        }
    }
    if token <= session.tokens.floor() { Ok(()) } else { Err(FloorError::Contended) }
}

/// Raises all counters at least to this token. Returns whether a majority of each list confirmed it.
///
/// Without an admitted member there is nothing to raise, because an admission begins with the clock.
pub(super) async fn raise_counters(session: &QuorumSession, to: FencingToken) -> bool {
    let (quorum, links) = (session.quorum(), session.links());
    let raised = links.iter().filter_map(|link| {
        let run_id = admitted_run_id(&quorum, link.name.as_str())?;
        Some(async move { (link.name.as_str(), link.raise_counter(&run_id, to).await) })
    });
    let raised = join_all(raised).await;
    raised.is_empty() || Lists::of(&quorum).is_majority(|name| raised.contains(&(name, true)))
}

/// One attempt. `None` if the object was deleted, or replaced by another one.
async fn raise(session: &QuorumSession, token: FencingToken) -> kube::Result<Option<RedisQuorum>> {
    let (client, name) = (session.context.client.clone(), &session.reference().name);
    let api: Api<RedisQuorum> = Api::namespaced(client, session.reference().namespace.as_deref().unwrap_or_default());
    let found = api.get_opt(name).await?.filter(|quorum| quorum.uid().as_deref() == Some(session.uid()));
    let Some(mut quorum) = found else { return Ok(None) };
    if floor_of(&quorum) >= token {
        return Ok(Some(quorum));
    }
    quorum.status.get_or_insert_default().token_floor = Some(token.saturating_add(FLOOR_STEP).get());
    api.replace_status(name, &PostParams::default(), &quorum).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redlock::restored;
    use crate::tests::token;

    fn quorum(floor: i64) -> RedisQuorum {
        let mut quorum = RedisQuorum::new("main", crate::api::RedisQuorumSpec::default());
        quorum.status.get_or_insert_default().token_floor = Some(floor);
        quorum
    }

    #[test]
    fn both_numbers_only_rise() {
        let tokens = Tokens::default();
        tokens.update(&quorum(5_000_000));
        tokens.observe(token(40));
        tokens.observe(token(30));
        tokens.update(&quorum(4_000_000));
        assert_eq!((tokens.highest(), tokens.floor()), (token(40), token(5_000_000)));
    }

    /// Members start one after the other. Each is restored from the floor that the previous one raised.
    ///
    /// All of them restart as often as possible. Twice the shortest rejoin delay is less than the time between a quorum and the next
    /// one of its name.
    #[test]
    fn restored_counters_stay_near_the_clock() {
        const SHORTEST_DELAY: i64 = 1_000_000;
        for members in [1, 3, 5, 7, 9] {
            let needed = members / 2 + 1;
            let (mut floor, mut highest) = (FencingToken::ZERO, FencingToken::ZERO);
            for clock in (1..=1_000).map(|round| token(round * SHORTEST_DELAY)) {
                let mut counters = Vec::new();
                for _member in 0..members {
                    let counter = restored(&counters, needed, floor, clock);
                    floor = floor.max(counter.saturating_add(FLOOR_STEP));
                    counters.push(counter);
                    highest = highest.max(counter);
                }
                // The floor is raised early, at the latest possible moment.
                floor = floor.max(highest.saturating_add(LOW_WATER + FLOOR_STEP));
                assert!(floor.get() < clock.get() + 2 * SHORTEST_DELAY, "{members} members: {floor:?} at {clock:?}");
            }
        }
    }

    #[test]
    fn the_floor_is_requested_once_and_ahead_of_need() {
        let floor = i64::from(FLOOR_STEP);
        let tokens = Tokens::default();
        tokens.update(&quorum(floor));
        assert_eq!(tokens.low_water(), None, "no token was observed");
        let (far, near) = (token(floor - i64::from(LOW_WATER)), token(floor - i64::from(LOW_WATER) + 1));
        assert!(!tokens.observe(far) && tokens.low_water().is_none());
        assert!(tokens.observe(near));
        assert_eq!(tokens.low_water(), Some(token(floor + 1)));
        assert!(!tokens.observe(token(near.get() + 1)), "already requested");
        tokens.update(&quorum(2 * floor));
        assert_eq!(tokens.low_water(), None);
    }
}
