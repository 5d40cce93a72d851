//! Panics, and their scope: the handling of one object, the session of one quorum, or the process.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;

/// The pause of a lock or a session after its panic, and of any other reconcile.
pub const AFTER_PANIC: Duration = Duration::from_secs(5);

/// A caught panic. The standard library has printed its message and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("panicked")]
pub struct Panicked;

/// Awaits a future, and catches its panic.
///
/// That is safe for two reasons. Shared state is behind locks that a panic does not poison, and every order of writes is safe against a crash.
/// The future is on the heap, because a few copies of a large future would fill a thread's stack.
pub fn caught<T>(future: impl Future<Output = T>) -> impl Future<Output = Result<T, Panicked>> {
    let future = Box::pin(future);
    async move { AssertUnwindSafe(future).catch_unwind().await.map_err(|_printed| Panicked) }
}

/// Calls a function, and catches its panic.
pub fn caught_in<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    std::panic::catch_unwind(AssertUnwindSafe(call)).map_err(|_printed| Panicked)
}

/// Runs a task that must not end, and returns the reason if it ends. Then the process must end.
pub async fn essential(name: &'static str, task: impl Future<Output = ()>) -> String {
    match caught(task).await {
        Ok(()) => format!("the task of the {name} has ended"),
        Err(panic) => format!("the task of the {name} {panic}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_future_is_not_on_the_stack() {
        let large = caught(async {
            let mut block = [0_u8; 1 << 16];
            tokio::task::yield_now().await;
            block[0] += 1;
            block
        });
        assert!(size_of_val(&large) < 64, "{} bytes", size_of_val(&large));
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let name = "main".to_owned();
        let panics = caught(async {
            if !name.is_empty() {
                panic!("quorum {name}");
            }
        });
        assert_eq!(panics.await, Err(Panicked));
        assert_eq!(caught(async { 5 }).await, Ok(5));
        assert_eq!(caught_in(|| panic!("static")), Err::<(), _>(Panicked));
    }

    #[tokio::test]
    async fn an_essential_task_returns_the_cause_of_its_end() {
        assert_eq!(essential("caches", async {}).await, "the task of the caches has ended");
        let panics = essential("caches", async { panic!("here") });
        assert_eq!(panics.await, "the task of the caches panicked");
    }
}
