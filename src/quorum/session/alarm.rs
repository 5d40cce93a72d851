//! The panics of one session's tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::runtime::panics::caught;

/// A flag that is raised when a task of a session panics. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Alarm(Arc<AtomicBool>);

impl Alarm {
    /// Runs a task. Its panic raises the alarm and ends no other task.
    pub(super) fn watching<F: Future<Output = ()>>(&self, task: F) -> impl Future<Output = ()> + use<F> {
        let alarm = self.clone();
        async move {
            if caught(task).await.is_err() {
                alarm.0.store(true, Ordering::Release);
            }
        }
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_panic_raises_the_alarm() {
        let alarm = Alarm::default();
        alarm.watching(async {}).await;
        assert!(!alarm.is_raised());
        alarm.watching(async { panic!("a poisonous answer") }).await;
        assert!(alarm.is_raised());
    }
}
