//! Reconciles objects when a trigger names them or when their time comes, as the `Controller` of kube does.
//!
//! The `Controller` polls every reconcile under way whenever one of them begins or ends. Thousands of locks can wait for a slot at the same time.
//! Their start would then take seconds, in which no other lock is reconciled.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::pin::pin;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt, stream};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use super::panics::AFTER_PANIC;

/// When an object is reconciled again, if no trigger names it earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(Option<Duration>);

impl Action {
    /// Reconciles the object again after this time.
    pub fn requeue(after: Duration) -> Self {
        Self(Some(after))
    }

    /// Reconciles the object again only when a trigger names it.
    pub fn await_change() -> Self {
        Self(None)
    }
}

/// Reconciles objects until dropped, any number at the same time, and each object once at a time.
///
/// An object that is named while its reconcile is under way is reconciled again afterwards. A scheduler that holds such objects back would compare
/// all of them at each event.
pub async fn run<K, F>(triggers: impl Stream<Item = ObjectRef<K>>, reconcile: impl Fn(ObjectRef<K>) -> F)
where
    K: Resource,
    K::DynamicType: Clone + Eq + Hash,
    F: Future<Output = Action> + Send + 'static,
{
    let (requeue, requeued) = mpsc::unbounded_channel();
    let named = triggers.map(|object| request(object, Duration::ZERO));
    let mut schedule = pin!(scheduler(stream::select(named, UnboundedReceiverStream::new(requeued))));
    // Each object that is being reconciled, and whether a trigger named it again in that time.
    let (mut under_way, mut reconciles) = (HashMap::new(), FuturesUnordered::new());
    loop {
        tokio::select! {
            Some(object) = schedule.next() => match under_way.entry(object) {
                Entry::Occupied(entry) => *entry.into_mut() = true,
                Entry::Vacant(entry) => {
                    let object = entry.key().clone();
                    let task = AbortOnDropHandle::new(tokio::spawn(reconcile(object.clone())));
                    reconciles.push(task.map(|ended| (object, ended)));
                    entry.insert(false);
                }
            },
            Some((object, ended)) = reconciles.next() => {
                let is_named = under_way.remove(&object).unwrap_or_default();
                let pause = if is_named { Some(Duration::ZERO) } else { ended.map_or(Some(AFTER_PANIC), |Action(pause)| pause) };
                if let Some(pause) = pause {
                    // The receiver lives as long as this function.
                    let _ = requeue.send(request(object, pause));
                }
            }
        }
    }
}

/// Asks the scheduler for an object after a pause.
#[expect(clippy::disallowed_methods, reason = "the scheduler of kube compares its times with this clock")]
fn request<T>(message: T, after: Duration) -> ScheduleRequest<T> {
    ScheduleRequest { message, run_at: Instant::now() + after }
}

#[cfg(test)]
mod tests;
