//! The number of renewals that are under way at a time.
//!
//! A replica that starts, or that reaches its members again, has all its renewals due at once. If it sent them together, the answers would
//! come after `nodeTimeout`, and all of them would be repeated.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Most renewals that one pipeline to each member has.
pub const MOST_IN_BATCH: usize = 64;
/// The number of renewals that a member answers in a millisecond, on a busy machine.
const ANSWERED_PER_MILLISECOND: usize = 5;

/// The limit of one quorum at this replica.
pub struct RenewalLimit(Semaphore);

impl RenewalLimit {
    /// The limit for members that answer within `node_timeout`.
    pub fn new(node_timeout: Duration) -> Self {
        let milliseconds = usize::try_from(node_timeout.as_millis()).unwrap_or(usize::MAX);
        let most = milliseconds.saturating_mul(ANSWERED_PER_MILLISECOND).clamp(MOST_IN_BATCH, Semaphore::MAX_PERMITS);
        Self(Semaphore::new(most))
    }

    /// Waits until a batch can be sent. It is under way until the result is dropped.
    ///
    /// A single renewal does not wait, and the result is `None`.
    pub async fn enter(&self, batch: usize) -> Option<SemaphorePermit<'_>> {
        let batch = u32::try_from(batch).ok().filter(|batch| *batch > 1)?;
        self.0.acquire_many(batch).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn as_many_renewals_are_under_way_as_members_answer_in_time() {
        let most = |millis| RenewalLimit::new(Duration::from_millis(millis)).0.available_permits();
        assert_eq!((most(1), most(50), most(1_000)), (MOST_IN_BATCH, 250, 5_000));
        let limit = RenewalLimit::new(Duration::from_millis(50));
        let under_way = [MOST_IN_BATCH; 3].map(|batch| limit.enter(batch).now_or_never().flatten());
        assert!(under_way.iter().all(Option::is_some));
        assert!(limit.enter(MOST_IN_BATCH).now_or_never().is_none());
        assert!(limit.enter(1).now_or_never().is_some(), "a single renewal does not wait");
        drop(under_way);
        assert!(limit.enter(MOST_IN_BATCH).now_or_never().is_some());
    }
}
