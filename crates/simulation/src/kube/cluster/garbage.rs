//! The garbage collector: it deletes objects without an existing owner.

use serde_json::{Value, json};

use super::super::Millis;
use super::super::api::{ApiServer, By, DeleteOptions, Kind, Part, Propagation, Shared};
use super::jobs::untrack;
use super::{Cluster, Place, Task, by, place};

fn owners(object: &Shared) -> impl Iterator<Item = &Value> {
    object.value["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// Every object that names this UID as an owner.
fn dependents(uid: &str, api: &ApiServer) -> Vec<(Kind, Shared)> {
    let of = |kind: Kind| {
        api.objects(kind)
            .filter(|object| owners(object).any(|owner| owner["uid"] == uid))
            .map(move |object| (kind, object.clone()))
    };
    Kind::all().flat_map(of).collect()
}

/// Whether the owner of a reference exists.
///
/// It must be in the same namespace.
fn is_there(owner: &Value, namespace: &str, api: &ApiServer) -> bool {
    let words = (owner["apiVersion"].as_str(), owner["kind"].as_str(), owner["name"].as_str());
    let (Some(version), Some(kind), Some(name)) = words else { return true };
    // If this server does not have the kind, assume that the owner exists.
    let Some(kind) = Kind::named(version, kind) else { return true };
    let namespace = if kind.facts().namespaced { namespace } else { "" };
    api.get(kind, namespace, name).is_some_and(|found| owner["uid"] == found.uid())
}

impl Cluster {
    /// Checks each dependent of a deleted owner, after delays of their own.
    pub(super) fn collect(&mut self, uid: &str, api: &mut ApiServer, now: Millis) {
        for (kind, object) in dependents(uid, api) {
            let task = Task::CheckOwners(kind, place(object.namespace(), object.name()));
            self.soon(now, "collect one", object.uid(), self.settings.collect, task);
        }
    }

    pub(super) fn check_owners(&mut self, kind: Kind, at: &Place, api: &mut ApiServer, now: Millis) {
        let Some(object) = api.get(kind, &at.0, &at.1) else { return };
        let by = by(now, "generic-garbage-collector");
        let (there, gone): (Vec<_>, Vec<_>) =
            owners(&object).partition(|owner| is_there(owner, object.namespace(), api));
        if gone.is_empty() {
            return;
        }
        if kind == Kind::Pod {
            untrack(&object, api, by);
        }
        if there.is_empty() {
            let propagation = Some(Propagation::Background);
            let options = DeleteOptions { uid: Some(object.uid().to_owned()), propagation, ..DeleteOptions::default() };
            let _ = api.delete(kind, (&at.0, &at.1), &options, by);
            return;
        }
        let there: Vec<Value> = there.into_iter().cloned().collect();
        let _ =
            api.edit(kind, (&at.0, &at.1), Part::Main, by, |value| value["metadata"]["ownerReferences"] = json!(there));
    }

    /// Handles an owner with a deletion policy.
    ///
    /// A foreground deletion removes the dependents first, and an orphaning one removes their references.
    pub(super) fn dependents(&mut self, kind: Kind, at: &Place, api: &mut ApiServer, now: Millis) {
        let Some(owner) = api.get(kind, &at.0, &at.1).filter(|owner| owner.is_deleting()) else { return };
        let by = by(now, "generic-garbage-collector");
        let has =
            |name: &str| owner.value["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(name)));
        if has("orphan") {
            for (kind, object) in dependents(owner.uid(), api) {
                if kind == Kind::Pod && self.suspends_jobs() {
                    untrack(&object, api, by);
                }
                let _ = api.edit(kind, (object.namespace(), object.name()), Part::Main, by, |value| {
                    if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
                        owners.retain(|found| found["uid"] != owner.uid());
                    }
                });
            }
            drop_finalizer(kind, &owner, "orphan", api, by);
        } else if has("foregroundDeletion") {
            let all = dependents(owner.uid(), api);
            let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
            for (kind, object) in all.iter().filter(|(_, object)| !object.is_deleting()) {
                let _ = api.delete(*kind, (object.namespace(), object.name()), &options, by);
            }
            let blocks = |object: &Shared| {
                owners(object).any(|found| found["uid"] == owner.uid() && found["blockOwnerDeletion"] == json!(true))
            };
            if dependents(owner.uid(), api).iter().any(|(_, object)| blocks(object)) {
                self.soon(now, "foreground", owner.uid(), self.settings.retry, Task::Dependents(kind, at.clone()));
            } else {
                drop_finalizer(kind, &owner, "foregroundDeletion", api, by);
            }
        }
    }
}

fn drop_finalizer(kind: Kind, owner: &Shared, name: &str, api: &mut ApiServer, by: By<'_>) {
    let _ = api.edit(kind, (owner.namespace(), owner.name()), Part::Main, by, |value| {
        if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != name);
        }
    });
}
