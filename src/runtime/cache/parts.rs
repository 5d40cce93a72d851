//! One cache for several namespaces, each of which has a watch of its own.
//!
//! A watch that begins again lists its namespace only. For the cache a list is all there is, so it is given one list of all
//! namespaces, of which the others are as they were last seen.

use std::collections::HashMap;

use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// What the watches of several namespaces have shown.
pub(super) struct Parts<W>(Vec<Part<W>>);

struct Part<W> {
    objects: HashMap<String, W>,
    /// The list under way.
    listing: Option<HashMap<String, W>>,
    was_listed: bool,
}

impl<W: ResourceExt + Clone> Parts<W> {
    pub(super) fn new(namespaces: usize) -> Self {
        let part = || Part { objects: HashMap::new(), listing: None, was_listed: false };
        Self((0..namespaces).map(|_| part()).collect())
    }

    /// What one watch says, as one for all namespaces would say it. Nothing before every namespace was listed once.
    pub(super) fn take(&mut self, namespace: usize, event: Event<W>) -> Vec<Event<W>> {
        let Some(part) = self.0.get_mut(namespace) else { return Vec::new() };
        let news = match event {
            Event::Init => {
                part.listing = Some(HashMap::new());
                return Vec::new();
            }
            Event::InitApply(object) => {
                part.listing.get_or_insert_default().insert(object.name_any(), object);
                return Vec::new();
            }
            Event::InitDone => {
                part.objects = part.listing.take().unwrap_or_default();
                part.was_listed = true;
                None
            }
            Event::Apply(object) => {
                part.objects.insert(object.name_any(), object.clone());
                Some(Event::Apply(object))
            }
            Event::Delete(object) => {
                part.objects.remove(&object.name_any());
                Some(Event::Delete(object))
            }
        };
        if self.0.iter().any(|part| !part.was_listed) {
            return Vec::new();
        }
        news.map_or_else(|| self.list(), |news| vec![news])
    }

    fn list(&self) -> Vec<Event<W>> {
        let objects = self.0.iter().flat_map(|part| part.objects.values()).cloned().map(Event::InitApply);
        std::iter::once(Event::Init).chain(objects).chain([Event::InitDone]).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}})).unwrap()
    }

    /// What the cache is told, as words; of a list the objects only.
    fn words(events: Vec<Event<Pod>>) -> Vec<String> {
        let mut words: Vec<String> = events
            .iter()
            .filter_map(|event| match event {
                Event::Init => None,
                Event::InitDone => Some("listed".to_owned()),
                Event::InitApply(pod) => Some(pod.name_any()),
                Event::Apply(pod) => Some(format!("applied {}", pod.name_any())),
                Event::Delete(pod) => Some(format!("deleted {}", pod.name_any())),
            })
            .collect();
        words.sort();
        words
    }

    fn list(parts: &mut Parts<Pod>, at: usize, names: &[&str]) -> Vec<String> {
        let namespace = format!("ns-{at}");
        let mut told = parts.take(at, Event::Init);
        names.iter().for_each(|name| told.extend(parts.take(at, Event::InitApply(pod(&namespace, name)))));
        told.extend(parts.take(at, Event::InitDone));
        words(told)
    }

    #[test]
    fn the_cache_is_filled_when_every_namespace_was_listed() {
        let mut parts = Parts::new(2);
        assert!(list(&mut parts, 0, &["a"]).is_empty());
        assert!(words(parts.take(0, Event::Apply(pod("ns-0", "b")))).is_empty());
        assert_eq!(list(&mut parts, 1, &["c"]), ["a", "b", "c", "listed"]);
    }

    #[test]
    fn a_watch_that_begins_again_takes_nothing_from_other_namespaces() {
        let mut parts = Parts::new(2);
        list(&mut parts, 0, &["a", "b"]);
        list(&mut parts, 1, &["c"]);
        assert_eq!(words(parts.take(1, Event::Apply(pod("ns-1", "d")))), ["applied d"]);
        assert_eq!(words(parts.take(1, Event::Delete(pod("ns-1", "c")))), ["deleted c"]);
        assert_eq!(list(&mut parts, 0, &["b"]), ["b", "d", "listed"], "a was deleted meanwhile");
    }
}
