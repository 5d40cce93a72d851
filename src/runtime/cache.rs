//! A watched copy of one kind of object, shared by everything in the process, that also remembers what was deleted.

mod departed;
mod follower;
mod guarded;
mod kind;
mod lookup;
mod pages;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use tokio::sync::{SetOnce, broadcast};
use tokio_stream::wrappers::BroadcastStream;

use self::departed::Departed;
use self::follower::Follower;
use crate::api::lenient::Unreadable;
use crate::api::watches::limited_watch;
use crate::time::Clock;

pub use self::guarded::Guarded;
pub use self::kind::Kind;
pub(crate) use self::lookup::Lookup;
pub(crate) use self::pages::pages;

/// Number of changes that wait for a slow reader. With more of them it has to read every object again, and misses deletions.
///
/// All deletions that a new list finds count as one.
const CHANGES_CAPACITY: usize = 4096;

/// One change of a watched object.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// Created, modified, or listed again.
    Applied(Arc<K>),
    /// Deleted, with the last state that the API server had.
    Deleted(Arc<K>),
    /// Deleted while no watch was open, or changed into an unreadable object.
    ///
    /// This is the last state that this replica received. There can be later states, so it proves nothing about the end of the object.
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

/// The version of an object as a number. The versions of one object rise.
pub fn version(object: &impl ResourceExt) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

/// Objects of kind `K`, in the last state that this replica received. Clones share the cache.
#[derive(Clone)]
pub struct Cache<K: Kind> {
    store: Store<K>,
    /// Every watch has listed its objects once.
    filled: Arc<SetOnce<()>>,
    unreadable: Arc<Mutex<HashMap<ObjectRef<K>, Arc<Unreadable>>>>,
    departed: Arc<Mutex<Departed<K>>>,
    lookup: Arc<Mutex<Lookup<ObjectRef<K>, String>>>,
    changes: broadcast::Sender<Arc<[Change<K>]>>,
    /// How often a watch of this kind was interrupted.
    interruptions: Arc<AtomicU64>,
}

impl<K: Kind> Cache<K> {
    /// An empty cache, and the future that keeps it current until it is dropped.
    ///
    /// It watches each of these APIs, with its namespace or in all namespaces. It keeps unreadable objects separately (see [`Guarded`]).
    /// `exists` is false for a namespace that does not exist or is being deleted. If a list is refused there, because the Role is gone as
    /// well, the namespace has no objects.
    pub fn of_existing<E: Fn(&str) -> bool + Send + 'static>(
        watched: Vec<(Option<String>, Api<Guarded<K>>)>,
        clock: &Arc<dyn Clock>,
        config: watcher::Config,
        exists: E,
    ) -> (Self, impl Future<Output = ()> + Send + 'static + use<K, E>) {
        let clock = clock.clone();
        let (namespaces, apis): (Vec<_>, Vec<_>) = watched.into_iter().unzip();
        let (cache, mut follower) = Self::unfilled(namespaces);
        let interruptions = cache.interruptions.clone();
        let config = config.page_size(K::PAGE);
        let watches = apis.into_iter().enumerate().map(move |(at, api)| {
            let events = limited_watch(api, config.clone());
            events.map(move |event| (at, event)).boxed()
        });
        let mut events = stream::select_all(watches);
        let follow = async move {
            while let Some((at, event)) = events.next().await {
                match event {
                    Ok(event) => follower.take(at, event, clock.boottime()),
                    Err(error) => {
                        interruptions.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted, retrying");
                        if is_refused_list(&error) {
                            follower.refused(at, &exists);
                        }
                    }
                }
            }
        };
        (cache, follow)
    }

    /// An empty cache, and its writer for watches of these namespaces. `None` means all namespaces.
    fn unfilled(namespaces: Vec<Option<String>>) -> (Self, Follower<K>) {
        let mut writer = Writer::<K>::default();
        // From now on the store shows each change. `filled` marks that it is complete.
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let cache = Self {
            store: writer.as_reader(),
            filled: Arc::default(),
            unreadable: Arc::default(),
            departed: Arc::default(),
            lookup: Arc::default(),
            changes: broadcast::channel(CHANGES_CAPACITY).0,
            interruptions: Arc::default(),
        };
        (cache.clone(), Follower::new(cache, writer, namespaces))
    }

    /// Sends changes to all readers. Without a reader nothing is lost, because the store is already up to date.
    fn announce(&self, changes: impl Into<Arc<[Change<K>]>>) {
        let _ = self.changes.send(changes.into());
    }

    /// Resolves when the first list has been read.
    pub async fn ready(&self) {
        self.filled.wait().await;
    }

    /// Whether the first list has been read.
    pub fn is_filled(&self) -> bool {
        self.filled.initialized()
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

    /// Whether there is an unreadable object with this name.
    pub fn is_unreadable(&self, reference: &ObjectRef<K>) -> bool {
        self.unreadable.lock().contains_key(reference)
    }

    /// The objects that this version cannot read completely.
    pub fn unreadable(&self) -> Vec<Arc<Unreadable>> {
        self.unreadable.lock().values().cloned().collect()
    }

    /// How often a watch of this kind was interrupted.
    pub fn interruptions(&self) -> u64 {
        self.interruptions.load(Ordering::Relaxed)
    }

    /// The last state of an object whose deletion this replica observed.
    ///
    /// `None` proves nothing, because the replica can miss a deletion.
    pub fn departed(&self, uid: &str) -> Option<Arc<K>> {
        self.departed.lock().named(uid)
    }

    /// The last states of the objects with this key whose deletion this replica observed.
    pub fn departed_under(&self, key: &str) -> Vec<Arc<K>> {
        self.departed.lock().under(key)
    }

    /// Every existing object, then each change. A reader that falls behind gets every object again.
    pub fn changes(&self) -> impl Stream<Item = Change<K>> + Send + 'static {
        let news = self.news();
        stream::iter(self.all().into_iter().map(Change::Applied)).chain(news)
    }

    /// Each later change. A reader that falls behind gets every object.
    pub fn news(&self) -> impl Stream<Item = Change<K>> + Send + 'static {
        let store = self.store.clone();
        BroadcastStream::new(self.changes.subscribe()).flat_map(move |changes| {
            stream::iter(match changes {
                Ok(changes) => changes.to_vec(),
                Err(_lagged) => store.state().into_iter().map(Change::Applied).collect(),
            })
        })
    }
}

fn is_refused_list(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::runtime::fake_api;
    use crate::time::{Boottime, SystemClock};

    impl<K: Kind> Cache<K> {
        /// A cache with these objects.
        pub(crate) fn filled(objects: Vec<K>) -> Self {
            let (cache, mut follower) = Self::unfilled(vec![None]);
            let listed = objects.into_iter().map(|object| watcher::Event::InitApply(Guarded::Read(object)));
            for event in std::iter::once(watcher::Event::Init).chain(listed).chain([watcher::Event::InitDone]) {
                follower.take(0, event, Boottime::default());
            }
            cache
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_watch_fills_the_cache_of_a_deleted_namespace_only() {
        let client = fake_api::client(|_request| fake_api::failure(403, "Forbidden", "no"));
        for (namespace, exists, is_filled) in
            [(None, true, false), (Some("shop"), true, false), (Some("shop"), false, true)]
        {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let api = namespace.map_or_else(|| Api::all(client.clone()), |name| Api::namespaced(client.clone(), name));
            let watched: Vec<(_, Api<Guarded<Pod>>)> = vec![(namespace.map(str::to_owned), api)];
            let (cache, follow) = Cache::of_existing(watched, &clock, watcher::Config::default(), move |_| exists);
            assert_eq!(cache.interruptions(), 0);
            assert!(tokio::time::timeout(Duration::from_secs(60), follow).await.is_err(), "it does not stop trying");
            assert!(cache.interruptions() >= 60 / 4, "{}", cache.interruptions());
            assert_eq!(cache.is_filled(), is_filled, "a Role for {namespace:?} can be missing for a moment");
        }
    }
}
