//! Create, replace, patch, apply and delete, for requests and for simulated components.

use serde_json::{Value, json};

use super::kinds::Kind;
use super::meta::{is_same, manage, seconds, tidy};
use super::outcome::{By, DeleteOptions, Part, Propagation, Refusal};
use super::server::ApiServer;
use super::store::Shared;
use super::{merge, schema, strategy};

/// The result of a deletion.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is deleted.
    Gone(Shared),
    /// The object waits for finalizers, or for its kubelet.
    Ending(Shared),
}

impl ApiServer {
    pub fn create(&mut self, kind: Kind, namespace: &str, mut value: Value, by: By<'_>) -> Result<Shared, Refusal> {
        if !value.is_object() {
            return Err(Refusal::bad("the body is no object"));
        }
        let given = value["metadata"]["name"].as_str().map(str::to_owned);
        let generated = value["metadata"]["generateName"].as_str().map(str::to_owned);
        let name = match (given.filter(|name| !name.is_empty()), generated) {
            (Some(name), _) => name,
            (None, Some(prefix)) => prefix + &self.names.suffix(),
            (None, None) => {
                return Err(Refusal::invalid(
                    kind,
                    "",
                    "metadata.name: Required value: name or generateName is required",
                ));
            }
        };
        if !value["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty() {
            return Err(Refusal::bad("resourceVersion should not be set on objects to be created"));
        }
        self.admit_into(kind, namespace, &name)?;
        let facts = kind.facts();
        value["apiVersion"] = json!(kind.api_version());
        value["kind"] = json!(facts.name);
        let metadata = &mut value["metadata"];
        metadata["name"] = json!(name);
        if facts.namespaced {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(self.names.uid());
        metadata["creationTimestamp"] = json!(seconds(self.stamp(by.now)));
        if let Some(metadata) = metadata.as_object_mut() {
            for field in
                ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "resourceVersion"]
            {
                metadata.remove(field);
            }
        }
        strategy::prepare_create(kind, &mut value, &mut self.names);
        self.schemas.fit(kind, &mut value)?;
        schema::rules(kind, None, &value)?;
        tidy(&mut value);
        manage(None, &mut value, by.manager, self.stamp(by.now));
        if self.store.get(kind, namespace, &name).is_some() {
            return Err(Refusal::exists(kind, &name));
        }
        Ok(self.store.put(kind, value, by.now))
    }

    /// Refuses to create an object in a namespace that does not exist or is being deleted.
    fn admit_into(&self, kind: Kind, namespace: &str, name: &str) -> Result<(), Refusal> {
        if !kind.facts().namespaced {
            return Ok(());
        }
        match self.store.get(Kind::Namespace, "", namespace) {
            None => Err(Refusal::not_found(Kind::Namespace, namespace)),
            Some(found) if found.is_deleting() => Err(Refusal::new(
                403,
                "Forbidden",
                format!(
                    "{} \"{name}\" is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
                    kind.resource()
                ),
            )),
            Some(_) => Ok(()),
        }
    }

    /// A PUT of the whole object.
    ///
    /// If it contains a version, the version must be the current one.
    pub fn replace(
        &mut self,
        kind: Kind,
        (namespace, name): (&str, &str),
        value: Value,
        part: Part,
        by: By<'_>,
    ) -> Result<Shared, Refusal> {
        let uid = value["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
        let found = self.store.get(kind, namespace, name);
        if let Some(uid) = uid {
            let is = found.as_ref().map_or("", |found| found.uid());
            if is != uid {
                let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {is}");
                return Err(Refusal::conflict(
                    kind,
                    name,
                    &format!("StorageError: invalid object, Code: 4, AdditionalErrorMsg: {why}"),
                ));
            }
        }
        let Some(found) = found else {
            // Only a Lease can be created by a PUT.
            if kind == Kind::Lease && part == Part::Main {
                let mut value = value;
                value["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
                value["metadata"]["name"] = json!(name);
                return self.create(kind, namespace, value, by);
            }
            return Err(Refusal::not_found(kind, name));
        };
        if value["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty() && !kind.facts().unconditional {
            let why = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update";
            return Err(Refusal::invalid(kind, name, why));
        }
        self.update(kind, &found, value, part, by)
    }

    /// A merge patch.
    pub fn merge(
        &mut self,
        kind: Kind,
        (namespace, name): (&str, &str),
        patch: &Value,
        part: Part,
        by: By<'_>,
    ) -> Result<Shared, Refusal> {
        let found = self.store.get(kind, namespace, name).ok_or_else(|| Refusal::not_found(kind, name))?;
        let mut value = found.value.clone();
        merge::merge(&mut value, patch);
        if value["metadata"]["uid"] != found.value["metadata"]["uid"] {
            return Err(Refusal::invalid(kind, name, "metadata.uid: Invalid value: field is immutable"));
        }
        self.update(kind, &found, value, part, by)
    }

    /// Server-side apply, always forced.
    ///
    /// It removes fields that this manager applied before and omits now.
    pub fn apply(
        &mut self,
        kind: Kind,
        (namespace, name): (&str, &str),
        patch: &Value,
        by: By<'_>,
    ) -> Result<Shared, Refusal> {
        let slot = (kind, namespace.to_owned(), name.to_owned(), by.manager.to_owned());
        let Some(found) = self.store.get(kind, namespace, name) else {
            if patch["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()) {
                return Err(Refusal::conflict(kind, name, "uid mismatch: no existing object was found"));
            }
            let mut value = patch.clone();
            value["metadata"]["name"] = json!(name);
            let made = self.create(kind, namespace, value, by)?;
            self.applied.insert(slot, (made.uid().to_owned(), patch.clone()));
            return Ok(made);
        };
        let before = self.applied.get(&slot).filter(|(uid, _)| uid == found.uid()).map(|(_, patch)| patch.clone());
        let mut value = found.value.clone();
        merge::prune(&mut value, &before.unwrap_or_default(), patch);
        merge::merge(&mut value, patch);
        let written = self.update(kind, &found, value, Part::Main, by)?;
        self.applied.insert(slot, (written.uid().to_owned(), patch.clone()));
        Ok(written)
    }

    /// Reads, changes and writes an object in one step, for simulated components.
    ///
    /// Returns `None` if there is no such object.
    pub fn edit(
        &mut self,
        kind: Kind,
        (namespace, name): (&str, &str),
        part: Part,
        by: By<'_>,
        change: impl FnOnce(&mut Value),
    ) -> Option<Shared> {
        let found = self.store.get(kind, namespace, name)?;
        let mut value = found.value.clone();
        change(&mut value);
        self.update(kind, &found, value, part, by).ok()
    }

    fn update(
        &mut self,
        kind: Kind,
        found: &Shared,
        mut value: Value,
        part: Part,
        by: By<'_>,
    ) -> Result<Shared, Refusal> {
        let (old, name) = (&found.value, found.name());
        let version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && version != found.version() {
            return Err(Refusal::modified(kind, name));
        }
        if !value.is_object() {
            return Err(Refusal::bad("the body is no object"));
        }
        strategy::prepare_update(kind, part, old, &mut value);
        keep_metadata(old, &mut value);
        if part == Part::Main {
            new_finalizers(kind, found, &value)?;
            strategy::validate_update(kind, old, &value)?;
        }
        if part == Part::Status {
            strategy::validate_status(kind, old, &value)?;
        }
        self.schemas.fit(kind, &mut value)?;
        schema::rules(kind, Some(old), &value)?;
        tidy(&mut value);
        if kind.facts().counts && strategy::spec_differs(old, &value) {
            raise_generation(&mut value);
        }
        manage(Some(old), &mut value, by.manager, self.stamp(by.now));
        if is_same(old, &value) {
            return Ok(found.clone());
        }
        if found.is_deleting() && can_be_deleted(kind, &value) {
            return Ok(self.store.remove(kind, value, by.now));
        }
        Ok(self.store.put(kind, value, by.now))
    }

    pub fn delete(
        &mut self,
        kind: Kind,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
        by: By<'_>,
    ) -> Result<Deleted, Refusal> {
        let found = self.store.get(kind, namespace, name).ok_or_else(|| Refusal::not_found(kind, name))?;
        let differs = |wanted: &Option<String>, is: &str| wanted.as_ref().is_some_and(|wanted| wanted != is);
        if differs(&options.uid, found.uid()) || differs(&options.version, found.version()) {
            return Err(Refusal::conflict(kind, name, "the preconditions of the deletion do not hold"));
        }
        if options.dry_run {
            return Ok(Deleted::Ending(found));
        }
        let mut value = found.value.clone();
        let grace = grace(kind, &value, options);
        let metadata = &mut value["metadata"];
        let known = metadata["deletionGracePeriodSeconds"].as_i64();
        if !found.is_deleting() || known.is_some_and(|known| grace < known) {
            metadata["deletionTimestamp"] = json!(seconds(self.stamp(by.now) + grace * 1_000));
            metadata["deletionGracePeriodSeconds"] = json!(grace);
        }
        if !found.is_deleting() {
            if kind.facts().counts {
                raise_generation(&mut value);
            }
            add_propagation(kind, &mut value, options.propagation);
        }
        if kind == Kind::Namespace {
            value["status"]["phase"] = json!("Terminating");
        }
        if can_be_deleted(kind, &value) {
            return Ok(Deleted::Gone(self.store.remove(kind, value, by.now)));
        }
        if is_same(&found.value, &value) {
            return Ok(Deleted::Ending(found));
        }
        Ok(Deleted::Ending(self.store.put(kind, value, by.now)))
    }
}

/// Keeps the metadata that clients cannot write.
fn keep_metadata(old: &Value, value: &mut Value) {
    let kept = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "managedFields",
        "resourceVersion",
    ];
    if !value["metadata"].is_object() {
        value["metadata"] = json!({});
    }
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    for field in kept {
        match old["metadata"].get(field) {
            Some(known) => metadata.insert(field.to_owned(), known.clone()),
            None => metadata.remove(field),
        };
    }
}

fn finalizers(value: &Value) -> Vec<&str> {
    value["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn new_finalizers(kind: Kind, found: &Shared, value: &Value) -> Result<(), Refusal> {
    let old = finalizers(&found.value);
    match finalizers(value).into_iter().find(|finalizer| !old.contains(finalizer)) {
        Some(new) if found.is_deleting() => {
            let why = format!(
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {new:?}"
            );
            Err(Refusal::invalid(kind, found.name(), &why))
        }
        _ => Ok(()),
    }
}

fn raise_generation(value: &mut Value) {
    let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
    value["metadata"]["generation"] = json!(generation + 1);
}

/// The grace period.
///
/// Only a pod on a node has one.
fn grace(kind: Kind, value: &Value, options: &DeleteOptions) -> i64 {
    let is_bound = value["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let has_ended = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if kind != Kind::Pod || !is_bound || has_ended {
        return 0;
    }
    let own = value["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace_seconds.unwrap_or(own).max(0)
}

/// Adds the finalizer of the propagation policy.
///
/// Without a policy, dependents of a Job stay, and dependents of other kinds are collected later.
fn add_propagation(kind: Kind, value: &mut Value, asked: Option<Propagation>) {
    let finalizer = match asked {
        Some(Propagation::Foreground) => "foregroundDeletion",
        Some(Propagation::Orphan) => "orphan",
        None if kind == Kind::Job => "orphan",
        Some(Propagation::Background) | None => return,
    };
    let mut all: Vec<String> = finalizers(value).into_iter().map(str::to_owned).collect();
    all.push(finalizer.to_owned());
    value["metadata"]["finalizers"] = json!(all);
}

fn can_be_deleted(kind: Kind, value: &Value) -> bool {
    let waits = match kind {
        Kind::Pod => value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() > 0,
        Kind::Namespace => value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()),
        _ => false,
    };
    finalizers(value).is_empty() && !waits
}
