use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Triggers, and the reconciles under test. Each reconcile waits for a permit.
struct Bench {
    triggers: mpsc::UnboundedSender<ObjectRef<ConfigMap>>,
    begun: Arc<Mutex<Vec<String>>>,
    permits: Arc<Semaphore>,
    _running: AbortOnDropHandle<()>,
}

impl Bench {
    fn new(action: Action) -> Self {
        let (triggers, named) = mpsc::unbounded_channel();
        let (begun, permits) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(Semaphore::new(0)));
        let (log, free) = (begun.clone(), permits.clone());
        let reconcile = move |object: ObjectRef<ConfigMap>| {
            let (log, free) = (log.clone(), free.clone());
            async move {
                log.lock().push(object.name.clone());
                assert_ne!(object.name, "panics");
                free.acquire().await.unwrap().forget();
                action
            }
        };
        let running = AbortOnDropHandle::new(tokio::spawn(run(UnboundedReceiverStream::new(named), reconcile)));
        Self { triggers, begun, permits, _running: running }
    }

    /// Triggers a reconcile, and lets all tasks run.
    async fn name(&self, object: &str) {
        self.triggers.send(ObjectRef::new(object).within("ns")).unwrap();
        self.idle(Duration::from_millis(10)).await;
    }

    async fn idle(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn begun(&self) -> Vec<String> {
        std::mem::take(&mut self.begun.lock())
    }
}

#[tokio::test(start_paused = true)]
async fn each_object_is_reconciled_once_at_a_time() {
    let bench = Bench::new(Action::await_change());
    for object in ["a", "b", "a", "a"] {
        bench.name(object).await;
    }
    assert_eq!(bench.begun(), ["a", "b"]);
    bench.permits.add_permits(2);
    bench.idle(SECOND).await;
    assert_eq!(bench.begun(), ["a"], "it was named while it was reconciled");
    bench.permits.add_permits(1);
    bench.idle(SECOND).await;
    assert_eq!(bench.begun(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_object_is_reconciled_again_at_its_time_or_when_named() {
    let bench = Bench::new(Action::requeue(10 * SECOND));
    bench.permits.add_permits(9);
    bench.name("a").await;
    bench.idle(9 * SECOND).await;
    assert_eq!(bench.begun(), ["a"]);
    bench.idle(SECOND).await;
    assert_eq!(bench.begun(), ["a"]);
    bench.idle(5 * SECOND).await;
    bench.name("a").await;
    assert_eq!(bench.begun(), ["a"]);
    bench.idle(9 * SECOND).await;
    assert_eq!(bench.begun(), [""; 0], "its time begins again");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_followed_by_another_attempt() {
    let bench = Bench::new(Action::await_change());
    bench.name("panics").await;
    bench.name("a").await;
    assert_eq!(bench.begun(), ["panics", "a"]);
    bench.idle(AFTER_PANIC).await;
    assert_eq!(bench.begun(), ["panics"]);
}
