//! The order of those who wait for a key with the same client.

use crate::redlock::LockKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Mutex as Order, OwnedMutexGuard};

type Keys = HashMap<LockKey, Arc<Order<()>>>;

/// One line per key. Tokio's mutex serves in the order of arrival. A key is kept while somebody waits or has the turn.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Keys>>);

impl Lines {
    /// Resolves when it is the caller's turn.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place.
    pub(super) async fn wait(&self, key: &LockKey) -> Turn {
        let order = Arc::clone(self.keys().entry(key.clone()).or_default());
        let place = Place { lines: self.clone(), key: key.clone(), order: Some(Arc::clone(&order)) };
        Turn { _turn: order.lock_owned().await, _place: place }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caller's turn, until it is dropped.
pub(super) struct Turn {
    // Before the place: the last one removes the line.
    _turn: OwnedMutexGuard<()>,
    _place: Place,
}

struct Place {
    lines: Lines,
    key: LockKey,
    order: Option<Arc<Order<()>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut keys = self.lines.keys();
        self.order = None;
        if keys.get(&self.key).is_some_and(|order| Arc::strong_count(order) == 1) {
            keys.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[tokio::test]
    async fn a_line_is_kept_for_as_long_as_somebody_stands_in_it() {
        let (lines, key) = (Lines::default(), LockKey::from("k"));
        let first = lines.wait(&key).await;
        let mut second = Box::pin(lines.wait(&key));
        let mut third = Box::pin(lines.wait(&key));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(cx).is_pending() && third.as_mut().poll(cx).is_pending());
        drop(third);
        drop(first);
        let turn = second.await;
        assert_eq!(lines.keys().len(), 1);
        assert!(pin!(lines.wait(&key)).poll(cx).is_pending(), "the turn is taken");
        drop(turn);
        assert!(lines.keys().is_empty());
    }
}
