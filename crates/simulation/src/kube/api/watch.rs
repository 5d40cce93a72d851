//! Watches: the log of one kind, line by line, up to a version that the caller chooses.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::super::Millis;
use super::kinds::Kind;
use super::outcome::Refusal;
use super::selector::Selector;
use super::server::ApiServer;
use super::store::{Change, Entry, Object};

/// One open watch.
///
/// The caller owns it, and requests its lines.
#[derive(Clone, Debug)]
pub struct Watch {
    pub kind: Kind,
    pub(super) selector: Selector,
    /// The version up to which the caller took lines.
    pub version: u64,
    /// When the server ends it regularly.
    pub until: Millis,
    /// Whether the server can send bookmarks.
    pub bookmarks: bool,
    pub(super) partial: bool,
    /// Whether it begins with all existing objects.
    pub(super) initial: bool,
}

/// Lines of a watch, each with a line feed at its end.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    pub lines: Vec<Bytes>,
    /// Whether the stream ends after them.
    pub end: bool,
}

impl ApiServer {
    /// The lines of the changes up to the version `through`.
    ///
    /// A version in the past makes the watch lag. A watch that is behind the server's log gets an ERROR with 410, and
    /// ends.
    pub fn lines(&self, watch: &mut Watch, through: u64) -> Lines {
        let through = through.min(self.store.version());
        if std::mem::take(&mut watch.initial) {
            let objects = self.store.at(watch.kind, through.max(self.store.compacted())).unwrap_or_default();
            let selected = objects.values().filter(|object| watch.selector.matches(object));
            let lines = selected.map(|object| watch.line("ADDED", object)).collect();
            watch.version = through.max(watch.version);
            return Lines { lines, end: false };
        }
        if watch.version < self.store.compacted() {
            let why = format!("too old resource version: {} ({})", watch.version, self.store.compacted());
            return self.fail(watch, &Refusal::expired(&why));
        }
        let entries = self.store.after(watch.version).take_while(|entry| entry.version <= through);
        let lines = entries.filter(|entry| entry.kind == watch.kind).filter_map(|entry| watch.event(entry)).collect();
        watch.version = watch.version.max(through);
        Lines { lines, end: false }
    }

    /// Ends a watch with an ERROR event inside the stream.
    ///
    /// For example, 410 makes the client list again.
    pub fn fail(&self, _watch: &Watch, refusal: &Refusal) -> Lines {
        let line = format!("{}\n", json!({"type": "ERROR", "object": refusal.status()}));
        Lines { lines: vec![Bytes::from(line)], end: true }
    }

    /// Ends a watch with 410, so that the client lists again.
    pub fn expire(&self, watch: &Watch) -> Lines {
        self.fail(watch, &Refusal::expired("too old resource version"))
    }

    /// A bookmark at the version of the watch.
    pub fn bookmark(&self, watch: &Watch) -> Lines {
        let object = json!({
            "kind": watch.kind.facts().name, "apiVersion": watch.kind.api_version(),
            "metadata": {"resourceVersion": watch.version.to_string(), "creationTimestamp": null},
        });
        let line = format!("{}\n", json!({"type": "BOOKMARK", "object": object}));
        Lines { lines: vec![Bytes::from(line)], end: false }
    }

    /// The newest version written at or before `at`, for a watch that lags.
    pub fn version_at(&self, at: Millis) -> u64 {
        self.store.version_at(at)
    }

    /// The time and version of the first change that the watch has not sent.
    pub fn pending(&self, watch: &Watch) -> Option<(Millis, u64)> {
        if watch.initial || watch.version < self.store.compacted() {
            return Some((Millis::MIN, watch.version));
        }
        let mut news = self.store.after(watch.version).filter(|entry| entry.kind == watch.kind);
        news.find(|entry| watch.event_type(entry).is_some()).map(|entry| (entry.at, entry.version))
    }
}

impl Watch {
    /// The event type of a change for this watch.
    ///
    /// An object that enters the selection is added, and an object that leaves it is deleted.
    fn event_type(&self, entry: &Entry) -> Option<&'static str> {
        let is = entry.change != Change::Deleted && self.selector.matches(&entry.object);
        let was = entry.before.as_ref().is_some_and(|before| self.selector.matches(before));
        match (was, is) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        }
    }

    fn event(&self, entry: &Entry) -> Option<Bytes> {
        let type_ = self.event_type(entry)?;
        match &entry.before {
            // The event has the last state inside the selection, and the version of the change by which the object left
            // it.
            Some(before) if type_ == "DELETED" && entry.change != Change::Deleted => {
                let mut value = before.value.clone();
                value["metadata"]["resourceVersion"] = json!(entry.version.to_string());
                Some(self.line(type_, &Object::new(value)))
            }
            _ => Some(self.line(type_, &entry.object)),
        }
    }

    fn line(&self, type_: &str, object: &Object) -> Bytes {
        let object = if self.partial { Bytes::from(partial(&object.value).to_string()) } else { object.json() };
        let mut line = Vec::with_capacity(object.len() + 40);
        line.extend_from_slice(b"{\"type\":\"");
        line.extend_from_slice(type_.as_bytes());
        line.extend_from_slice(b"\",\"object\":");
        line.extend_from_slice(&object);
        line.extend_from_slice(b"}\n");
        Bytes::from(line)
    }
}

/// The object as `PartialObjectMetadata`.
pub(super) fn partial(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}
