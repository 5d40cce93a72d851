//! How a cache follows what the API server says.

use std::collections::HashMap;
use std::sync::Arc;

use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use super::{Cache, Change, Guarded, Kind, Shape, Unreadable};

type Table<K> = HashMap<ObjectRef<K>, Arc<Unreadable>>;

/// The writing side of a cache.
pub(super) struct Follower<K: Kind> {
    cache: Cache<K>,
    writer: Writer<K>,
    shape: Shape<K>,
    /// What the list under way has shown that cannot be read.
    listed_unreadable: Table<K>,
}

impl<K: Kind> Follower<K> {
    pub(super) fn new(cache: Cache<K>, writer: Writer<K>, shape: Shape<K>) -> Self {
        Self { cache, writer, shape, listed_unreadable: HashMap::new() }
    }

    /// Takes what the API server says: first into the store, then to those who listen.
    pub(super) fn take<W: Into<Guarded<K>>>(&mut self, event: Event<W>) {
        match event {
            Event::Init => {
                self.listed_unreadable.clear();
                self.writer.apply_watcher_event(&Event::Init);
            }
            Event::InitApply(object) => match object.into() {
                Guarded::Read(object) => {
                    let object = self.slimmed(object);
                    self.writer.apply_watcher_event(&Event::InitApply(object));
                }
                Guarded::Unreadable(raw) => drop(self.listed_unreadable.insert(reference(&raw), raw.into())),
            },
            Event::InitDone => self.listed(),
            Event::Apply(object) => match object.into() {
                Guarded::Read(object) => self.applied(object),
                Guarded::Unreadable(raw) => self.became_unreadable((*raw).into()),
            },
            Event::Delete(object) => match object.into() {
                Guarded::Read(object) => self.deleted(object),
                Guarded::Unreadable(raw) => {
                    let reference = reference(&raw);
                    self.cache.unreadable.lock().remove(&reference);
                    self.drop_stored(&reference);
                }
            },
        }
    }

    fn slimmed(&self, mut object: K) -> K {
        // The operator reads no managed fields, and they are the larger half of many objects.
        object.meta_mut().managed_fields = None;
        (self.shape.slim)(&mut object);
        object
    }

    fn applied(&mut self, object: K) {
        let object = self.slimmed(object);
        let reference = ObjectRef::from_obj(&object);
        self.cache.unreadable.lock().remove(&reference);
        if self.cache.get(&reference).is_some_and(|known| known.uid() != object.uid()) {
            self.drop_stored(&reference);
        }
        self.cache.lookup.lock().set(reference.clone(), (self.shape.keys)(&object));
        self.writer.apply_watcher_event(&Event::Apply(object));
        if let Some(object) = self.cache.get(&reference) {
            self.cache.announce(Change::Applied(object));
        }
    }

    fn deleted(&mut self, object: K) {
        let object = self.slimmed(object);
        self.cache.unreadable.lock().remove(&ObjectRef::from_obj(&object));
        self.writer.apply_watcher_event(&Event::Delete(object.clone()));
        self.cache.lookup.lock().set(ObjectRef::from_obj(&object), Vec::new());
        let object = Arc::new(object);
        let keys = (self.shape.keys)(&object);
        self.cache.remember_departed(&object, keys);
        self.cache.announce(Change::Deleted(object));
    }

    fn became_unreadable(&mut self, raw: Arc<Unreadable>) {
        let reference = reference(&raw);
        let known = self.cache.unreadable.lock().insert(reference.clone(), raw.clone());
        say_unreadable(&reference, known.as_deref(), &raw);
        self.drop_stored(&reference);
    }

    /// Takes an object out of the store that is not there any more, or is another one by now.
    fn drop_stored(&mut self, reference: &ObjectRef<K>) {
        if let Some(known) = self.cache.get(reference) {
            self.writer.apply_watcher_event(&Event::Delete((*known).clone()));
            self.cache.lookup.lock().set(reference.clone(), Vec::new());
            self.cache.announce(Change::Vanished(known));
        }
    }

    /// The list is complete, so what is not in it is gone: the watch will not tell of those deletions.
    fn listed(&mut self) {
        let before = self.cache.all();
        self.writer.apply_watcher_event(&Event::InitDone);
        self.look_up_all();
        let listed = std::mem::take(&mut self.listed_unreadable);
        let known = std::mem::replace(&mut *self.cache.unreadable.lock(), listed.clone());
        for (reference, raw) in &listed {
            say_unreadable(reference, known.get(reference).map(|known| &**known), raw);
        }
        let mut seen = HashMap::new();
        for object in before {
            let now = self.cache.get(&ObjectRef::from_obj(&*object));
            if now.is_none_or(|now| now.uid() != object.uid()) {
                self.cache.announce(Change::Vanished(object));
            } else {
                seen.insert(object.uid(), object.resource_version());
            }
        }
        for object in self.cache.all() {
            if seen.get(&object.uid()) != Some(&object.resource_version()) {
                self.cache.announce(Change::Applied(object));
            }
        }
    }

    fn look_up_all(&self) {
        let objects = self.cache.all();
        let mut lookup = self.cache.lookup.lock();
        lookup.clear();
        objects.iter().for_each(|object| lookup.set(ObjectRef::from_obj(&**object), (self.shape.keys)(object)));
    }
}

fn reference<K: Resource<DynamicType = ()>>(raw: &Unreadable) -> ObjectRef<K> {
    let reference = ObjectRef::new(raw.metadata.name.as_deref().unwrap_or_default());
    match &raw.metadata.namespace {
        Some(namespace) => reference.within(namespace),
        None => reference,
    }
}

/// Says it once for each reason.
fn say_unreadable<K: Resource<DynamicType = ()>>(object: &ObjectRef<K>, known: Option<&Unreadable>, raw: &Unreadable) {
    if known.is_none_or(|known| known.metadata.uid != raw.metadata.uid || known.error != raw.error) {
        tracing::warn!(kind = %K::kind(&()), %object, error = raw.error, "cannot be read, and is left out");
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::DistributedLock;

    fn pod(name: &str, uid: &str, version: &str) -> Pod {
        serde_json::from_value(json!({"metadata":
            {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version}}))
        .unwrap()
    }

    fn lock(name: &str, ttl: &str) -> Guarded<DistributedLock> {
        serde_json::from_value(json!({"apiVersion": "redlock-operator.io/v1alpha1", "kind": "DistributedLock",
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": ttl},
            "spec": {"claim": {"identity": "me"}, "ttlAfterFinished": ttl}}))
        .unwrap()
    }

    fn list<K>(objects: Vec<K>) -> impl Iterator<Item = Event<K>> {
        let applied = objects.into_iter().map(Event::InitApply);
        std::iter::once(Event::Init).chain(applied).chain([Event::InitDone])
    }

    /// What those who listen are told, as words.
    fn told<K>(changes: &mut (impl futures::Stream<Item = Change<K>> + Unpin)) -> Vec<String>
    where
        K: Resource<DynamicType = ()>,
    {
        let words = |change: Change<K>| {
            let what = match &change {
                Change::Applied(_) => "applied",
                Change::Deleted(_) => "deleted",
                Change::Vanished(_) => "vanished",
            };
            format!("{what} {}", change.object().uid().unwrap_or_default())
        };
        std::iter::from_fn(|| changes.next().now_or_never().flatten()).map(words).collect()
    }

    #[test]
    fn deletions_that_fall_into_a_new_list_are_announced_and_are_no_evidence() {
        let (cache, mut follower) = Cache::<Pod>::unfilled(Shape::whole());
        let mut changes = Box::pin(cache.changes());
        list(vec![pod("a", "a1", "1"), pod("b", "b1", "2"), pod("c", "c1", "3")])
            .for_each(|event| follower.take(event));
        let mut first = told(&mut changes);
        first.sort();
        assert_eq!(first, ["applied a1", "applied b1", "applied c1"]);
        // The watch was interrupted. Meanwhile b was deleted, c was replaced by another pod, and a did not change.
        list(vec![pod("a", "a1", "1"), pod("c", "c2", "9")]).for_each(|event| follower.take(event));
        let mut second = told(&mut changes);
        assert_eq!(second.last().map(String::as_str), Some("applied c2"), "the new one after the end of the old one");
        second.sort();
        assert_eq!(second, ["applied c2", "vanished b1", "vanished c1"]);
        assert!(cache.departed("b1").is_none(), "its last state is not known");
        assert!(cache.named("ns", "b").is_none());
    }

    #[test]
    fn a_deletion_that_was_watched_leaves_the_last_state() {
        let (cache, mut follower) = Cache::<Pod>::unfilled(Shape::whole());
        let mut changes = Box::pin(cache.changes());
        list(vec![pod("a", "a1", "1")]).for_each(|event| follower.take(event));
        follower.take(Event::Delete(pod("a", "a1", "5")));
        assert_eq!(told(&mut changes), ["applied a1", "deleted a1"]);
        assert_eq!(cache.departed("a1").unwrap().resource_version().as_deref(), Some("5"));
    }

    #[test]
    fn what_changes_while_a_list_is_read_is_told_when_the_store_shows_it() {
        let (cache, mut follower) = Cache::<Pod>::unfilled(Shape::whole());
        let mut changes = Box::pin(cache.changes());
        follower.take(Event::<Pod>::Init);
        follower.take(Event::InitApply(pod("a", "a1", "1")));
        assert!(told(&mut changes).is_empty(), "the store does not show it yet");
        follower.take(Event::<Pod>::InitDone);
        assert_eq!(told(&mut changes), ["applied a1"]);
    }

    #[test]
    fn an_unreadable_object_harms_only_itself() {
        let (cache, mut follower) = Cache::<DistributedLock>::unfilled(Shape::whole());
        let mut changes = Box::pin(cache.changes());
        list(vec![lock("good", "1h"), lock("bad", "9999999h")]).for_each(|event| follower.take(event));
        assert_eq!(cache.ready().now_or_never(), Some(true));
        assert_eq!(told(&mut changes), ["applied good"]);
        let raw = cache.unreadable();
        assert_eq!(raw.len(), 1);
        assert_eq!(raw[0].object.pointer("/spec/ttlAfterFinished").and_then(Value::as_str), Some("9999999h"));
        // One that can be read no longer is gone for all who listen, and comes back when it is mended.
        follower.take(Event::Apply(lock("good", "9999999h")));
        follower.take(Event::Apply(lock("bad", "2h")));
        assert_eq!(told(&mut changes), ["vanished good", "applied bad"]);
        assert!(cache.named("ns", "good").is_none());
        assert_eq!(cache.unreadable().len(), 1);
        follower.take(Event::Delete(lock("good", "9999999h")));
        assert!(cache.unreadable().is_empty());
    }
}
