//! Finding objects by something else than their name, so that nobody walks over all of them.

use std::collections::{HashMap, HashSet};

use kube::{Resource, runtime::reflector::ObjectRef};

/// References by key. In step with the store but for the moment in which an object changes.
pub(super) struct Lookup<K: Resource + 'static>
where
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    by_key: HashMap<String, HashSet<ObjectRef<K>>>,
    keys: HashMap<ObjectRef<K>, Vec<String>>,
}

impl<K: Resource + 'static> Default for Lookup<K>
where
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    fn default() -> Self {
        Self { by_key: HashMap::new(), keys: HashMap::new() }
    }
}

impl<K: Resource + 'static> Lookup<K>
where
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    pub(super) fn under(&self, key: &str) -> Vec<ObjectRef<K>> {
        self.by_key.get(key).into_iter().flatten().cloned().collect()
    }

    /// The keys of an object from now on; none for one that is gone.
    pub(super) fn set(&mut self, object: ObjectRef<K>, keys: Vec<String>) {
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

    pub(super) fn clear(&mut self) {
        self.by_key.clear();
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn an_object_is_found_under_its_keys_of_now_only() {
        let mut lookup = Lookup::<Pod>::default();
        let (one, other) = (ObjectRef::new("one").within("ns"), ObjectRef::new("other").within("ns"));
        lookup.set(one.clone(), vec!["a".into(), "b".into()]);
        lookup.set(other.clone(), vec!["b".into()]);
        assert_eq!(lookup.under("a"), std::slice::from_ref(&one));
        assert_eq!(lookup.under("b").len(), 2);
        lookup.set(one.clone(), vec!["c".into()]);
        assert!(lookup.under("a").is_empty());
        assert_eq!(lookup.under("b"), [other]);
        lookup.set(one, Vec::new());
        assert!(lookup.under("c").is_empty());
        assert_eq!(lookup.keys.len(), 1);
        lookup.clear();
        assert!(lookup.under("b").is_empty());
    }
}
