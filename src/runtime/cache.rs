//! A watched copy of one kind of object, shared by everything in the process, that also remembers what was deleted.

mod follower;
mod guarded;
mod lookup;
mod parts;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use self::follower::Follower;
use self::parts::Parts;
use super::scope::Scope;
use crate::redlock::jittered;

pub use self::guarded::{Guarded, Unreadable};
pub(crate) use self::lookup::Lookup;

/// How many deleted objects are remembered. The last state of a deleted pod tells whether its containers had ended; a
/// record that was dropped only makes the operator more careful (the pod counts as vanished, not as dead).
const DEPARTED_CAPACITY: usize = 4096;
/// Changes that a slow reader may fall behind before it is told to look at everything again.
const CHANGES_CAPACITY: usize = 4096;

/// One change of a watched object.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// Created, modified, or listed again.
    Applied(Arc<K>),
    /// Deleted, with the last state that the API server had.
    Deleted(Arc<K>),
    /// Deleted while no watch was open, or changed into something that cannot be read. The state is the last that this replica
    /// has seen, not the last there was: it proves nothing about the end of the object.
    Vanished(Arc<K>),
}

impl<K> Change<K> {
    /// The object in its newest known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied(object) | Self::Deleted(object) | Self::Vanished(object) => object,
        }
    }
}

/// A kind of objects that can be watched.
pub trait Kind: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static {}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static> Kind for K {}

/// Objects of kind `K` as last seen by this replica. Cloning shares the cache.
#[derive(Clone)]
pub struct Cache<K: Kind> {
    store: Store<K>,
    unreadable: Arc<Mutex<HashMap<ObjectRef<K>, Arc<Unreadable>>>>,
    departed: Arc<Mutex<Departed<K>>>,
    lookup: Arc<Mutex<Lookup<ObjectRef<K>, String>>>,
    changes: broadcast::Sender<Change<K>>,
    /// How often a watch of this kind was interrupted.
    interruptions: Arc<AtomicU64>,
}

/// What a cache keeps of each object, and under which keys it finds it.
#[derive(Clone, Copy, Debug)]
pub struct Shape<K> {
    /// Removes what the operator does not read, to save memory.
    pub slim: fn(&mut K),
    /// The keys for [`Cache::under`].
    pub keys: fn(&K) -> Vec<String>,
}

impl<K> Shape<K> {
    /// All of each object, found by its name only.
    pub fn whole() -> Self {
        Self { slim: |_| (), keys: |_| Vec::new() }
    }
}

/// The newest deleted objects by UID.
#[derive(Debug)]
struct Departed<K> {
    by_uid: HashMap<String, Arc<K>>,
    order: VecDeque<String>,
    /// UIDs by the keys of [`Shape`].
    lookup: Lookup<String, String>,
}

impl<K> Departed<K> {
    fn remember(&mut self, uid: String, object: Arc<K>, keys: Vec<String>) {
        self.lookup.set(uid.clone(), keys);
        if self.by_uid.insert(uid.clone(), object).is_none() {
            self.order.push_back(uid);
        }
        while self.order.len() > DEPARTED_CAPACITY {
            if let Some(oldest) = self.order.pop_front() {
                self.by_uid.remove(&oldest);
                self.lookup.set(oldest, Vec::new());
            }
        }
    }
}

impl<K: Kind> Cache<K> {
    /// An empty cache, and the future that fills it and follows the API server until it is dropped. What cannot be
    /// read is kept apart (see [`Guarded`]).
    pub fn new(
        api: Api<Guarded<K>>,
        config: watcher::Config,
        shape: Shape<K>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        Self::following(vec![api], config, shape)
    }

    /// The same of the namespaces in scope.
    pub fn scoped(
        client: &Client,
        scope: &Scope,
        config: watcher::Config,
        shape: Shape<K>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static + use<K>)
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self::following(scope.apis::<Guarded<K>>(client), config, shape)
    }

    fn following(
        apis: Vec<Api<Guarded<K>>>,
        config: watcher::Config,
        shape: Shape<K>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (cache, mut follower) = Self::unfilled(shape);
        let interruptions = cache.interruptions.clone();
        let mut parts = (apis.len() != 1).then(|| Parts::new(apis.len()));
        let watches = apis.into_iter().enumerate().map(move |(at, api)| {
            let events = watcher(api, config.clone()).backoff(Reconnect::default());
            events.map(move |event| (at, event)).boxed()
        });
        let mut events = stream::select_all(watches);
        let follow = async move {
            while let Some((at, event)) = events.next().await {
                match (event, &mut parts) {
                    (Ok(event), None) => follower.take(event),
                    (Ok(event), Some(parts)) => {
                        parts.take(at, event).into_iter().for_each(|event| follower.take(event))
                    }
                    (Err(error), _) => {
                        interruptions.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted, retrying");
                    }
                }
            }
        };
        (cache, follow)
    }

    fn unfilled(shape: Shape<K>) -> (Self, Follower<K>) {
        let writer = Writer::<K>::default();
        let cache = Self {
            store: writer.as_reader(),
            unreadable: Arc::default(),
            departed: Arc::new(Mutex::new(Departed {
                by_uid: HashMap::new(),
                order: VecDeque::new(),
                lookup: Lookup::default(),
            })),
            lookup: Arc::default(),
            changes: broadcast::channel(CHANGES_CAPACITY).0,
            interruptions: Arc::default(),
        };
        (cache.clone(), Follower::new(cache, writer, shape))
    }

    fn remember_departed(&self, object: &Arc<K>, keys: Vec<String>) {
        if let Some(uid) = object.meta().uid.clone() {
            self.departed.lock().remember(uid, object.clone(), keys);
        }
    }

    /// Without a reader nothing is lost: the store has been updated already.
    fn announce(&self, change: Change<K>) {
        let _ = self.changes.send(change);
    }

    /// Resolves when the first list has been read.
    pub async fn ready(&self) -> bool {
        self.store.wait_until_ready().await.is_ok()
    }

    /// The underlying store, for a `kube::runtime::Controller`.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// One object by reference.
    pub fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        self.store.get(reference)
    }

    /// One object by namespace and name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// One object without a namespace by name.
    pub fn cluster_named(&self, name: &str) -> Option<Arc<K>> {
        self.store.get(&ObjectRef::new(name))
    }

    /// All objects, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// The objects with this key, in no order.
    pub fn under(&self, key: &str) -> Vec<Arc<K>> {
        let found = self.lookup.lock().under(&key.to_owned());
        found.iter().filter_map(|reference| self.store.get(reference)).collect()
    }

    /// Whether there is an object of this name that cannot be read.
    pub fn is_unreadable(&self, reference: &ObjectRef<K>) -> bool {
        self.unreadable.lock().contains_key(reference)
    }

    /// The objects that cannot be read. They are in no other answer of this cache.
    pub fn unreadable(&self) -> Vec<Arc<Unreadable>> {
        self.unreadable.lock().values().cloned().collect()
    }

    /// How often a watch of this kind was interrupted.
    pub fn interruptions(&self) -> u64 {
        self.interruptions.load(Ordering::Relaxed)
    }

    /// The last state of an object that was seen to be deleted. None proves nothing: the deletion may have been missed.
    pub fn departed(&self, uid: &str) -> Option<Arc<K>> {
        self.departed.lock().by_uid.get(uid).cloned()
    }

    /// The last states of the objects with this key that were seen to be deleted.
    pub fn departed_under(&self, key: &str) -> Vec<Arc<K>> {
        let departed = self.departed.lock();
        let found = departed.lookup.under(&key.to_owned());
        found.iter().filter_map(|uid| departed.by_uid.get(uid)).cloned().collect()
    }

    /// Every object there is, then each change. A reader that falls behind is shown every object again.
    pub fn changes(&self) -> impl Stream<Item = Change<K>> + Send + 'static {
        let news = self.news();
        stream::iter(self.all().into_iter().map(Change::Applied)).chain(news)
    }

    /// Each change from now on. A reader that falls behind is shown every object.
    pub fn news(&self) -> impl Stream<Item = Change<K>> + Send + 'static {
        let store = self.store.clone();
        BroadcastStream::new(self.changes.subscribe()).flat_map(move |change| {
            stream::iter(match change {
                Ok(change) => vec![change],
                Err(_lagged) => store.state().into_iter().map(Change::Applied).collect(),
            })
        })
    }
}

/// Between two attempts to watch. kube's own waits up to half a minute after an outage, and in all that time nothing that
/// happened would be seen.
#[derive(Clone, Debug)]
struct Reconnect(Duration);

impl Reconnect {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(3);
}

impl Default for Reconnect {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

impl Iterator for Reconnect {
    type Item = Duration;

    /// Doubles, and spreads the replicas' attempts.
    fn next(&mut self) -> Option<Duration> {
        let pause = jittered(self.0, self.0 / 4, rand::random());
        self.0 = (self.0 * 2).min(Self::LONGEST);
        Some(pause)
    }
}

impl Backoff for Reconnect {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use hyper::http::{Request, Response};
    use k8s_openapi::api::core::v1::Namespace;
    use kube::client::Body;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_is_counted_each_time_and_the_cache_is_not_filled() {
        let refusing = tower::service_fn(|_request: Request<Body>| async {
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "no", "reason": "Forbidden", "code": 403});
            let body = Body::from(serde_json::to_vec(&status).unwrap());
            Ok::<_, std::io::Error>(Response::builder().status(403).body(body).unwrap())
        });
        let api = Api::<Guarded<Namespace>>::all(Client::new(refusing, "any"));
        let (cache, follow) = Cache::new(api, watcher::Config::default(), Shape::whole());
        assert_eq!(cache.interruptions(), 0);
        assert!(tokio::time::timeout(Duration::from_secs(60), follow).await.is_err(), "it goes on trying");
        assert!(cache.interruptions() >= 60 / 4, "{}", cache.interruptions());
        assert!(!cache.ready().await);
    }

    #[test]
    fn a_watch_is_tried_again_within_seconds_however_long_the_outage() {
        let mut pauses = Reconnect::default();
        assert!(pauses.next().unwrap() <= Duration::from_millis(250));
        assert!(pauses.by_ref().take(50).all(|pause| pause < Duration::from_secs(4)));
        pauses.reset();
        assert!(pauses.next().unwrap() <= Duration::from_millis(250));
    }
}
