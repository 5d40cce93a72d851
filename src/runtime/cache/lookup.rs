//! An index of objects by keys other than their name.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// References by key.
///
/// The references of a cache match its store, except for the moment in which an object changes.
#[derive(Debug)]
pub(crate) struct Lookup<R, K> {
    by_key: HashMap<K, HashSet<R>>,
    keys: HashMap<R, Vec<K>>,
}

impl<R, K> Default for Lookup<R, K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), keys: HashMap::new() }
    }
}

impl<R: Clone + Eq + Hash, K: Clone + Eq + Hash> Lookup<R, K> {
    /// The objects with this key.
    pub(crate) fn under(&self, key: &K) -> Vec<R> {
        self.by_key.get(key).into_iter().flatten().cloned().collect()
    }

    /// The objects with any key.
    pub(crate) fn all(&self) -> Vec<R> {
        self.keys.keys().cloned().collect()
    }

    /// Replaces the keys of an object. A deleted object has none.
    pub(crate) fn set(&mut self, object: R, keys: Vec<K>) {
        if self.keys.get(&object) == Some(&keys) {
            return;
        }
        for key in self.keys.remove(&object).into_iter().flatten() {
            if let Some(objects) = self.by_key.get_mut(&key) {
                objects.remove(&object);
                if objects.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
        for key in &keys {
            self.by_key.entry(key.clone()).or_default().insert(object.clone());
        }
        if !keys.is_empty() {
            self.keys.insert(object, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::reflector::ObjectRef;

    use super::*;

    #[test]
    fn an_object_is_found_under_its_keys_of_now_only() {
        let mut lookup = Lookup::<ObjectRef<Pod>, String>::default();
        let (one, other) = (ObjectRef::new("one").within("ns"), ObjectRef::new("other").within("ns"));
        lookup.set(one.clone(), vec!["a".into(), "b".into()]);
        lookup.set(other.clone(), vec!["b".into()]);
        assert_eq!(lookup.under(&"a".into()), std::slice::from_ref(&one));
        assert_eq!(lookup.under(&"b".into()).len(), 2);
        lookup.set(one.clone(), vec!["c".into()]);
        assert!(lookup.under(&"a".into()).is_empty());
        assert_eq!(lookup.under(&"b".into()), [other]);
        lookup.set(one, Vec::new());
        assert!(lookup.under(&"c".into()).is_empty());
        assert_eq!(lookup.keys.len(), 1);
    }
}
