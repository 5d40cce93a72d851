//! Applies the events of the API server's watches to a cache.

use std::collections::HashSet;
use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;

use super::{Cache, Change, Guarded, Kind};
use crate::api::lenient::Unreadable;
use crate::time::Boottime;

/// The writing side of a cache, which has one watch, or one for each namespace.
pub(super) struct Follower<K: Kind> {
    cache: Cache<K>,
    writer: Writer<K>,
    watches: Vec<Watch<K>>,
}

struct Watch<K: Kind> {
    /// `None` means all namespaces.
    namespace: Option<String>,
    was_listed: bool,
    /// Objects of the list in progress.
    listing: HashSet<ObjectRef<K>>,
}

impl<K: Kind> Follower<K> {
    pub(super) fn new(cache: Cache<K>, writer: Writer<K>, namespaces: Vec<Option<String>>) -> Self {
        let watch = |namespace| Watch { namespace, was_listed: false, listing: HashSet::new() };
        Self { cache, writer, watches: namespaces.into_iter().map(watch).collect() }
    }

    /// Applies an event of the watch with this number. The store changes first, then subscribers get the change.
    pub(super) fn take(&mut self, watch: usize, event: Event<Guarded<K>>, now: Boottime) {
        match event {
            Event::Init => self.watches[watch].listing.clear(),
            Event::InitApply(object) => {
                self.watches[watch].listing.insert(reference_of(&object));
                if !self.is_stored(&object) {
                    self.changed(object);
                }
            }
            Event::InitDone => self.listed(watch),
            Event::Apply(object) => self.changed(object),
            Event::Delete(object) => self.deleted(object, now),
        }
    }

    /// Whether the store has this version of the object.
    fn is_stored(&self, object: &Guarded<K>) -> bool {
        let stored = self.cache.get(&reference_of(object));
        let version = (object.uid(), object.resource_version());
        version.1.is_some() && stored.is_some_and(|stored| (stored.uid(), stored.resource_version()) == version)
    }

    fn changed(&mut self, object: Guarded<K>) {
        let reference = reference_of(&object);
        if let Guarded::Unreadable(raw) = &object {
            let previous = self.cache.unreadable.lock().insert(reference.clone(), (**raw).clone().into());
            let is_logged =
                |before: Arc<Unreadable>| before.metadata.uid == raw.metadata.uid && before.error == raw.error;
            if !previous.is_some_and(is_logged) {
                tracing::warn!(kind = %K::kind(&()), object = %reference, error = raw.error, "cannot be read as a whole");
            }
        } else {
            self.cache.unreadable.lock().remove(&reference);
        }
        let Some(object) = object.object() else { return self.drop_stored([reference]) };
        if self.cache.get(&reference).is_some_and(|previous| previous.uid() != object.uid()) {
            self.drop_stored([reference.clone()]);
        }
        self.cache.lookup.lock().set(reference.clone(), object.keys());
        self.writer.apply_watcher_event(&Event::Apply(object));
        if let Some(object) = self.cache.get(&reference) {
            self.cache.announce([Change::Applied(object)]);
        }
    }

    fn deleted(&mut self, object: Guarded<K>, now: Boottime) {
        let reference = reference_of(&object);
        self.cache.unreadable.lock().remove(&reference);
        let Some(object) = object.object() else { return self.drop_stored([reference]) };
        if let Some(last) = object.last_state() {
            self.cache.departed.lock().remember(last, now);
        }
        self.cache.lookup.lock().set(reference, Vec::new());
        self.writer.apply_watcher_event(&Event::Delete(object.clone()));
        self.cache.announce([Change::Deleted(Arc::new(object))]);
    }

    /// Removes objects from the store that no longer exist, were replaced, or became unreadable.
    fn drop_stored(&mut self, references: impl IntoIterator<Item = ObjectRef<K>>) {
        let drop_one = |reference: ObjectRef<K>| {
            let previous = self.cache.get(&reference)?;
            self.writer.apply_watcher_event(&Event::Delete((*previous).clone()));
            self.cache.lookup.lock().set(reference, Vec::new());
            Some(Change::Vanished(previous))
        };
        let vanished: Vec<_> = references.into_iter().filter_map(drop_one).collect();
        if !vanished.is_empty() {
            self.cache.announce(vanished);
        }
    }

    /// Ends the list of a watch, and drops the stored objects that are not in it.
    ///
    /// The watch sends no events for these deletions.
    fn listed(&mut self, watch: usize) {
        let watch = &mut self.watches[watch];
        watch.was_listed = true;
        let listing = std::mem::take(&mut watch.listing);
        let is_missing = |object: &ObjectRef<K>| {
            let is_watched = watch.namespace.is_none() || watch.namespace == object.namespace;
            is_watched && !listing.contains(object)
        };
        self.cache.unreadable.lock().retain(|object, _| !is_missing(object));
        let stored = self.cache.all();
        let stored = stored.iter().map(|object| ObjectRef::from_obj(&**object));
        let missing: Vec<_> = stored.filter(is_missing).collect();
        self.drop_stored(missing);
        if self.watches.iter().all(|watch| watch.was_listed) {
            // After a later list the cache is already filled.
            let _ = self.cache.filled.set(());
        }
    }

    /// Handles the refusal of a list. A namespace that does not exist has no objects.
    pub(super) fn refused(&mut self, watch: usize, exists: impl Fn(&str) -> bool) {
        let Watch { namespace, was_listed, .. } = &self.watches[watch];
        if !was_listed && namespace.as_deref().is_some_and(|namespace| !exists(namespace)) {
            self.listed(watch);
        }
    }
}

fn reference_of<K: Kind>(object: &Guarded<K>) -> ObjectRef<K> {
    ObjectRef::from_obj(object).into_kind_unchecked(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{FutureExt, StreamExt};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Resource;
    use serde_json::{Value, json};

    use super::super::CHANGES_CAPACITY;
    use super::*;
    use crate::api::DistributedLock;
    use crate::api::test_util::parsed;

    const NOW: Boottime = Boottime::new(Duration::ZERO);

    fn pod(name: &str, uid: &str, version: &str) -> Guarded<Pod> {
        parsed(json!({"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version}}))
    }

    fn lock(name: &str, ttl: &str) -> Guarded<DistributedLock> {
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": ttl});
        parsed(json!({"metadata": metadata, "spec": {"claim": {"identity": "me"}, "ttlAfterFinished": ttl}}))
    }

    fn list<K>(objects: Vec<K>) -> impl Iterator<Item = Event<K>> {
        let applied = objects.into_iter().map(Event::InitApply);
        std::iter::once(Event::Init).chain(applied).chain([Event::InitDone])
    }

    /// The changes that subscribers get, as text.
    fn received<K>(changes: &mut (impl futures::Stream<Item = Change<K>> + Unpin)) -> Vec<String>
    where
        K: Resource<DynamicType = ()>,
    {
        let text = |change: Change<K>| {
            let what = match &change {
                Change::Applied(_) => "applied",
                Change::Deleted(_) => "deleted",
                Change::Vanished(_) => "vanished",
            };
            format!("{what} {}", change.object().uid().unwrap_or_default())
        };
        std::iter::from_fn(|| changes.next().now_or_never().flatten()).map(text).collect()
    }

    #[test]
    fn deletions_found_by_a_new_list_are_no_evidence() {
        let (cache, mut follower) = Cache::<Pod>::unfilled(vec![None]);
        let mut changes = Box::pin(cache.changes());
        list(vec![pod("a", "a1", "1"), pod("b", "b1", "2"), pod("c", "c1", "3")])
            .for_each(|event| follower.take(0, event, NOW));
        let mut first = received(&mut changes);
        first.sort();
        assert_eq!(first, ["applied a1", "applied b1", "applied c1"]);
        // The watch was interrupted. During the interruption b was deleted, another pod replaced c, and a did not change.
        list(vec![pod("a", "a1", "1"), pod("c", "c2", "9")]).for_each(|event| follower.take(0, event, NOW));
        let mut second = received(&mut changes);
        let at = |what: &str| second.iter().position(|change| change == what).unwrap();
        assert!(at("vanished c1") < at("applied c2"), "the old pod vanishes before the new one is applied");
        second.sort();
        assert_eq!(second, ["applied c2", "vanished b1", "vanished c1"]);
        assert!(cache.departed("b1").is_none(), "its last state is not known");
        assert!(cache.named("ns", "b").is_none());
    }

    #[test]
    fn a_slow_reader_gets_all_deletions_of_a_new_list() {
        let (cache, mut follower) = Cache::<Pod>::unfilled(vec![None]);
        let pods = (0..2 * CHANGES_CAPACITY).map(|number| pod(&number.to_string(), "p", "1")).collect();
        list(pods).for_each(|event| follower.take(0, event, NOW));
        let mut news = Box::pin(cache.news());
        list(Vec::new()).for_each(|event| follower.take(0, event, NOW));
        assert_eq!(received(&mut news), vec!["vanished p"; 2 * CHANGES_CAPACITY]);
    }

    #[test]
    fn a_deletion_that_was_watched_leaves_the_last_state() {
        let (cache, mut follower) = Cache::<Pod>::unfilled(vec![None]);
        let mut changes = Box::pin(cache.changes());
        list(vec![pod("a", "a1", "1")]).for_each(|event| follower.take(0, event, NOW));
        follower.take(0, Event::Delete(pod("a", "a1", "5")), NOW);
        assert_eq!(received(&mut changes), ["applied a1", "deleted a1"]);
        assert_eq!(cache.departed("a1").unwrap().resource_version().as_deref(), Some("5"));
    }

    #[test]
    fn changes_during_a_list_are_announced_when_the_store_has_them() {
        let (cache, mut follower) = Cache::<Pod>::unfilled(vec![None]);
        let mut changes = Box::pin(cache.changes());
        follower.take(0, Event::Init, NOW);
        follower.take(0, Event::InitApply(pod("a", "a1", "1")), NOW);
        assert_eq!(received(&mut changes), ["applied a1"]);
        assert!(cache.named("ns", "a").is_some() && !cache.is_filled());
        follower.take(0, Event::InitDone, NOW);
        assert!(received(&mut changes).is_empty() && cache.is_filled());
    }

    #[test]
    fn an_unreadable_object_does_not_affect_readable_ones() {
        let (cache, mut follower) = Cache::<DistributedLock>::unfilled(vec![None]);
        let mut changes = Box::pin(cache.changes());
        list(vec![lock("good", "1h"), lock("bad", "9999999h")]).for_each(|event| follower.take(0, event, NOW));
        assert!(cache.is_filled());
        let mut first = received(&mut changes);
        first.sort();
        assert_eq!(first, ["applied bad", "applied good"]);
        let raw = cache.unreadable();
        assert_eq!(raw.len(), 1);
        assert_eq!(raw[0].object.pointer("/spec/ttlAfterFinished").and_then(Value::as_str), Some("9999999h"));
        follower.take(0, Event::Apply(lock("good", "9999999h")), NOW);
        follower.take(0, Event::Apply(lock("bad", "2h")), NOW);
        assert_eq!(received(&mut changes), ["applied good", "applied bad"]);
        let is_unreadable = |name: &str| cache.named("ns", name).unwrap().spec.unreadable.is_some();
        assert_eq!((is_unreadable("good"), is_unreadable("bad"), cache.unreadable().len()), (true, false, 1));
        follower.take(0, Event::Delete(lock("good", "9999999h")), NOW);
        assert!(cache.unreadable().is_empty() && cache.named("ns", "good").is_none());
    }

    #[test]
    fn a_cache_of_namespaces_is_filled_when_each_was_listed() {
        let other = |name: &str, version: &str| {
            let mut pod = pod(name, name, version);
            pod.meta_mut().namespace = Some("other".to_owned());
            pod
        };
        let (cache, mut follower) = Cache::<Pod>::unfilled(vec![Some("ns".to_owned()), Some("other".to_owned())]);
        let (mut changes, now) = (Box::pin(cache.changes()), NOW);
        list(vec![pod("a", "a", "1"), pod("b", "b", "1")]).for_each(|event| follower.take(0, event, now));
        follower.take(0, Event::Apply(pod("d", "d", "2")), now);
        follower.take(0, Event::Delete(pod("b", "b", "3")), now);
        // A list that ends early, and another one with fewer objects.
        follower.take(1, Event::Init, now);
        follower.take(1, Event::InitApply(other("gone", "1")), now);
        assert!(!cache.is_filled());
        list(vec![other("c", "1")]).for_each(|event| follower.take(1, event, now));
        let first = ["applied a", "applied b", "applied d", "deleted b", "applied gone", "applied c", "vanished gone"];
        assert_eq!(received(&mut changes), first);
        assert!(cache.is_filled() && cache.all().len() == 3);
        list(vec![pod("d", "d", "2")]).for_each(|event| follower.take(0, event, now));
        assert_eq!(received(&mut changes), ["vanished a"], "c is in another namespace, and d did not change");
        assert_eq!(cache.all().len(), 2);
    }
}
