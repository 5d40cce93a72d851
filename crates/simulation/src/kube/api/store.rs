//! Objects and the log of their changes.
//!
//! Versions only rise.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::Millis;
use super::kinds::Kind;

/// One state of one object.
#[derive(Debug)]
pub struct Object {
    pub value: Value,
    json: OnceLock<Bytes>,
}

/// Shared by the store, the log and all readers.
pub type Shared = Arc<Object>;

impl Object {
    pub fn new(value: Value) -> Self {
        Self { value, json: OnceLock::new() }
    }

    pub fn json(&self) -> Bytes {
        self.json.get_or_init(|| Bytes::from(self.value.to_string())).clone()
    }

    /// A text field of `metadata`, or an empty text.
    fn meta(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.meta("name")
    }

    pub fn namespace(&self) -> &str {
        self.meta("namespace")
    }

    pub fn uid(&self) -> &str {
        self.meta("uid")
    }

    pub fn version(&self) -> &str {
        self.meta("resourceVersion")
    }

    pub fn is_deleting(&self) -> bool {
        !self.meta("deletionTimestamp").is_empty()
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["labels"][name].as_str()
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.value["metadata"]["annotations"][name].as_str()
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change in the log.
#[derive(Clone, Debug)]
pub struct Entry {
    pub version: u64,
    pub at: Millis,
    pub kind: Kind,
    pub change: Change,
    /// The new state, or the last state of a deleted object with the version of the deletion.
    pub object: Shared,
    pub before: Option<Shared>,
}

/// Namespace (empty for cluster-wide kinds) and name.
pub(super) type Key = (String, String);
pub(super) type Objects = BTreeMap<Key, Shared>;

/// All objects of all kinds.
#[derive(Debug)]
pub(super) struct Store {
    version: u64,
    kinds: BTreeMap<Kind, Objects>,
    log: VecDeque<Entry>,
    /// Versions up to this one are forgotten.
    compacted: u64,
}

/// The first version, as if the cluster had run before.
const FIRST_VERSION: u64 = 1_000;

impl Store {
    pub(super) fn new() -> Self {
        Self { version: FIRST_VERSION, kinds: BTreeMap::new(), log: VecDeque::new(), compacted: FIRST_VERSION }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(super) fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Shared> {
        self.kinds.get(&kind)?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(super) fn objects(&self, kind: Kind) -> impl Iterator<Item = &Shared> {
        self.kinds.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// Writes a state with the next version.
    pub(super) fn put(&mut self, kind: Kind, mut value: Value, now: Millis) -> Shared {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(Object::new(value));
        let key = (object.namespace().to_owned(), object.name().to_owned());
        let before = self.kinds.entry(kind).or_default().insert(key, object.clone());
        let change = if before.is_some() { Change::Modified } else { Change::Added };
        self.record(kind, change, object.clone(), before, now);
        object
    }

    /// Deletes an object.
    ///
    /// `last` is its final state.
    pub(super) fn remove(&mut self, kind: Kind, mut last: Value, now: Millis) -> Shared {
        self.version += 1;
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(Object::new(last));
        let key = (object.namespace().to_owned(), object.name().to_owned());
        let before = self.kinds.entry(kind).or_default().remove(&key);
        self.record(kind, Change::Deleted, object.clone(), before, now);
        object
    }

    fn record(&mut self, kind: Kind, change: Change, object: Shared, before: Option<Shared>, at: Millis) {
        self.log.push_back(Entry { version: self.version, at, kind, change, object, before });
    }

    /// Every change after `version`, oldest first.
    pub(super) fn after(&self, version: u64) -> impl Iterator<Item = &Entry> {
        let skipped = version.saturating_sub(self.compacted);
        self.log.range(usize::try_from(skipped).unwrap_or(usize::MAX).min(self.log.len())..)
    }

    /// The newest version written at or before `at`.
    ///
    /// Every poll of every watch calls this, so it must not walk the log.
    pub(super) fn version_at(&self, at: Millis) -> u64 {
        self.compacted + self.log.partition_point(|entry| entry.at <= at) as u64
    }

    /// Forgets changes up to `version`.
    ///
    /// Requests for older ones get 410.
    pub(super) fn compact(&mut self, version: u64) {
        while self.compacted < version.min(self.version) && self.log.pop_front().is_some() {
            self.compacted += 1;
        }
    }

    /// All objects of a kind at `version`, or `None` if the store has forgotten it.
    pub(super) fn at(&self, kind: Kind, version: u64) -> Option<Objects> {
        if version < self.compacted || version > self.version {
            return None;
        }
        let mut objects = self.kinds.get(&kind).cloned().unwrap_or_default();
        let newer: Vec<_> = self.after(version).filter(|entry| entry.kind == kind).collect();
        for entry in newer.into_iter().rev() {
            let key = (entry.object.namespace().to_owned(), entry.object.name().to_owned());
            match &entry.before {
                Some(before) => objects.insert(key, before.clone()),
                None => objects.remove(&key),
            };
        }
        Some(objects)
    }
}
