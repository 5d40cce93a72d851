//! The order of callers that wait for a key with the same client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Mutex as Order, OwnedMutexGuard};

use super::locked;
use crate::redlock::LockKey;

type Keys = HashMap<LockKey, Arc<Order<()>>>;

/// One queue per key.
///
/// Tokio's mutex serves in the order of arrival. A queue exists while a caller waits or has the turn.
#[derive(Clone, Default)]
pub(super) struct LocalQueue(Arc<Mutex<Keys>>);

impl LocalQueue {
    /// Resolves when it is the caller's turn.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue.
    pub(super) async fn wait(&self, key: &LockKey) -> Turn {
        let order = Arc::clone(locked(&self.0).entry(key.clone()).or_default());
        let position = Position { queue: self.clone(), key: key.clone(), order: Some(Arc::clone(&order)) };
        Turn { _turn: order.lock_owned().await, _position: position }
    }
}

/// The caller's turn, until it is dropped.
pub(super) struct Turn {
    // Dropped before the position, because the last position removes the queue only if no guard has the queue's mutex.
    _turn: OwnedMutexGuard<()>,
    _position: Position,
}

struct Position {
    queue: LocalQueue,
    key: LockKey,
    order: Option<Arc<Order<()>>>,
}

impl Drop for Position {
    fn drop(&mut self) {
        let mut keys = locked(&self.queue.0);
        self.order = None;
        if keys.get(&self.key).is_some_and(|order| Arc::strong_count(order) == 1) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn a_queue_exists_while_a_caller_waits_or_has_the_turn() {
        let (queue, key) = (LocalQueue::default(), LockKey::from("k"));
        let first = queue.wait(&key).await;
        let mut second = Box::pin(queue.wait(&key));
        let mut third = Box::pin(queue.wait(&key));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(cx).is_pending() && third.as_mut().poll(cx).is_pending());
        drop(third);
        drop(first);
        let turn = second.await;
        assert_eq!(locked(&queue.0).len(), 1);
        assert!(pin!(queue.wait(&key)).poll(cx).is_pending(), "the turn is taken");
        drop(turn);
        assert!(locked(&queue.0).is_empty());
    }
}
