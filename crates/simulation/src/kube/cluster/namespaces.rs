//! The namespace controller: it deletes the objects of a namespace repeatedly until none is left.

use serde_json::json;

use super::super::Millis;
use super::super::api::{ApiServer, DeleteOptions, Kind, Part, Propagation, Shared};
use super::super::chance::part;
use super::{Cluster, Task, by};

impl Cluster {
    pub(super) fn empty_namespace(&mut self, name: &str, api: &mut ApiServer, now: Millis) {
        let Some(namespace) = api.get(Kind::Namespace, "", name).filter(|found| found.is_deleting()) else { return };
        let by = by(now, "namespace-controller");
        let mut kinds: Vec<Kind> = Kind::all().filter(|kind| kind.facts().namespaced).collect();
        // The order is arbitrary, so that no part of the product can rely on it.
        kinds.sort_by_key(|kind| super::super::mix(part(kind.facts().plural) ^ part(namespace.uid())));
        let mut left = false;
        for kind in kinds {
            let all: Vec<Shared> = api.objects(kind).filter(|object| object.namespace() == name).cloned().collect();
            left |= !all.is_empty();
            for object in all.iter().filter(|object| !object.is_deleting()) {
                let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
                let _ = api.delete(kind, (name, object.name()), &options, by);
            }
        }
        if left {
            return self.soon(
                now,
                "namespace",
                name,
                self.settings.empty_namespace,
                Task::EmptyNamespace(name.to_owned()),
            );
        }
        let _ = api.edit(Kind::Namespace, ("", name), Part::Whole, by, |value| value["spec"]["finalizers"] = json!([]));
    }
}
