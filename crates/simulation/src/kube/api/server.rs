//! The server: from a request to its response.

use std::collections::BTreeMap;

use hyper::body::Bytes;
use hyper::http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::super::Millis;
use super::http;
use super::kinds::Kind;
use super::merge;
use super::meta::Names;
use super::outcome::{By, DeleteOptions, Part, Refusal};
use super::request::Parsed;
use super::schema::Schemas;
use super::selector::Selector;
use super::store::{Entry, Shared, Store};
use super::verbs::Deleted;
use super::watch::{Watch, partial};

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// One response.
    Unary(Response<Bytes>),
    /// A response with code 200.
    ///
    /// Its body consists of the lines of this watch ([`ApiServer::lines`]).
    Watch(Watch),
}

/// UID and last applied configuration, by kind, namespace, name and manager.
type Applied = BTreeMap<(Kind, String, String, String), (String, Value)>;

/// The API server.
#[derive(Debug)]
pub struct ApiServer {
    pub(super) store: Store,
    pub(super) schemas: Schemas,
    pub(super) names: Names,
    pub(super) applied: Applied,
    /// Number of Events by reason.
    ///
    /// Events are not in the store and not compared, because their names contain real time.
    pub events: BTreeMap<String, u64>,
    event_objects: BTreeMap<String, Value>,
    /// Maximum number of objects on a page of a list, even if the client requests more.
    pub page_size: Option<usize>,
    /// By how much the server's clock was set since the start.
    ///
    /// The times in calls do not include it. They are those of the other components of the control plane.
    pub clock_step: Millis,
}

impl ApiServer {
    /// An empty server with the namespace `default`.
    ///
    /// The seed determines UIDs and generated names.
    pub fn new(seed: u64, now: Millis) -> Self {
        let mut server = Self {
            store: Store::new(),
            schemas: Schemas::new(),
            names: Names::new(seed),
            applied: BTreeMap::new(),
            events: BTreeMap::new(),
            event_objects: BTreeMap::new(),
            page_size: None,
            clock_step: 0,
        };
        let default = json!({"metadata": {"name": "default"}});
        let _ = server.create(Kind::Namespace, "", default, By { now, manager: "kube-apiserver" });
        server
    }

    /// Handles a request.
    pub fn handle(&mut self, request: &Request<Bytes>, now: Millis) -> Answer {
        let stamp = self.stamp(now);
        match request.uri().path() {
            "/version" => {
                return Answer::Unary(http::value(StatusCode::OK, &json!({"major": "1", "minor": "33"}), stamp));
            }
            "/readyz" | "/livez" => return Answer::Unary(http::json(StatusCode::OK, Bytes::from_static(b"ok"), stamp)),
            _ => {}
        }
        match Parsed::of(request).and_then(|parsed| self.carry_out(&parsed, now)) {
            Ok(answer) => answer,
            Err(refusal) => Answer::Unary(http::refusal(&refusal, stamp)),
        }
    }

    /// The time that the server's clock shows.
    pub const fn stamp(&self, now: Millis) -> Millis {
        now + self.clock_step
    }

    /// Builds a response for the caller: 429 with Retry-After, 500, 503 or 504.
    pub fn refuse(refusal: &Refusal, now: Millis) -> Response<Bytes> {
        http::refusal(refusal, now)
    }

    /// The refusal of an overloaded server.
    ///
    /// kube's client retries after this number of seconds.
    pub fn too_many_requests(retry_after: u32) -> Refusal {
        let refusal = Refusal::new(429, "TooManyRequests", "Too many requests, please try again later.");
        Refusal { retry_after: Some(retry_after), ..refusal }
    }

    pub fn version(&self) -> u64 {
        self.store.version()
    }

    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Shared> {
        self.store.get(kind, namespace, name)
    }

    /// All objects of a kind, by namespace and name.
    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = &Shared> {
        self.store.objects(kind)
    }

    /// Every change after `version`, oldest first.
    ///
    /// Oracles and simulated components read it.
    pub fn changes_after(&self, version: u64) -> impl Iterator<Item = &Entry> {
        self.store.after(version)
    }

    /// Forgets changes up to `version`.
    ///
    /// Later requests for an older version get 410.
    pub fn compact(&mut self, version: u64) {
        self.store.compact(version);
    }

    fn carry_out(&mut self, request: &Parsed, now: Millis) -> Result<Answer, Refusal> {
        let target = &request.target;
        if target.kind == Kind::Event {
            return self.event(request, now).map(Answer::Unary);
        }
        if target.namespace.is_some() && !target.kind.facts().namespaced {
            return Err(Refusal::new(404, "NotFound", "the server could not find the requested resource"));
        }
        let Some(name) = &target.name else {
            return self.collection(request, now);
        };
        let (kind, namespace) = (target.kind, target.namespace.clone().unwrap_or_default());
        if namespace.is_empty() && kind.facts().namespaced {
            return Err(Refusal::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ));
        }
        let place = (namespace.as_str(), name.as_str());
        let by = By { now, manager: request.manager() };
        let part = part(request)?;
        let written = match request.method {
            Method::GET => self.store.get(kind, place.0, place.1).ok_or_else(|| Refusal::not_found(kind, name))?,
            Method::PUT => self.replace(kind, place, request.body.clone(), part, by)?,
            Method::PATCH if request.content_type.contains("apply-patch") => {
                self.apply(kind, place, &request.body, by)?
            }
            Method::PATCH if request.content_type.contains("merge-patch") => {
                self.merge(kind, place, &request.body, part, by)?
            }
            Method::PATCH => return Err(Refusal::new(415, "UnsupportedMediaType", "only merge patches and apply")),
            Method::DELETE => {
                let deleted = self.delete(kind, place, &DeleteOptions::of_body(&request.body), by)?;
                return Ok(Answer::Unary(deletion(kind, &deleted, self.stamp(now))));
            }
            _ => {
                return Err(Refusal::new(
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method on the requested resource",
                ));
            }
        };
        Ok(Answer::Unary(object(StatusCode::OK, &written, request.partial, self.stamp(now))))
    }

    fn collection(&mut self, request: &Parsed, now: Millis) -> Result<Answer, Refusal> {
        let target = &request.target;
        let namespace = target.namespace.clone();
        match request.method {
            Method::POST => {
                let by = By { now, manager: request.manager() };
                let namespace = namespace.unwrap_or_default();
                let made = self.create(target.kind, &namespace, request.body.clone(), by)?;
                Ok(Answer::Unary(object(StatusCode::CREATED, &made, request.partial, self.stamp(now))))
            }
            Method::GET => {
                let (labels, fields) = (request.query("labelSelector"), request.query("fieldSelector"));
                let selector = Selector::parse(namespace, labels, fields)?;
                if request.is_watch() {
                    return self.watch(request, selector, now).map(Answer::Watch);
                }
                Ok(Answer::Unary(http::json(StatusCode::OK, self.list(request, &selector)?, self.stamp(now))))
            }
            _ => Err(Refusal::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )),
        }
    }

    fn watch(&self, request: &Parsed, selector: Selector, now: Millis) -> Result<Watch, Refusal> {
        let version = match request.query("resourceVersion") {
            None | Some("0") => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| Refusal::bad("resourceVersion: Invalid value"))?),
        };
        let seconds = request.query("timeoutSeconds").and_then(|text| text.parse::<Millis>().ok()).unwrap_or(1_800);
        Ok(Watch {
            kind: request.target.kind,
            selector,
            version: version.unwrap_or(self.store.version()),
            until: now + seconds * 1_000,
            bookmarks: request.query("allowWatchBookmarks") == Some("true"),
            partial: request.partial,
            initial: version.is_none(),
        })
    }

    fn event(&mut self, request: &Parsed, now: Millis) -> Result<Response<Bytes>, Refusal> {
        let mut event = match (&request.method, &request.target.name) {
            (&Method::POST, _) => {
                let mut event = request.body.clone();
                event["metadata"]["uid"] = json!("event");
                event
            }
            (&Method::PATCH, Some(name)) => {
                let found = self.event_objects.get(name).ok_or_else(|| Refusal::not_found(Kind::Event, name))?;
                let mut event = found.clone();
                merge::merge(&mut event, &request.body);
                event
            }
            _ => return Err(Refusal::new(405, "MethodNotAllowed", "events are written only")),
        };
        event["metadata"]["resourceVersion"] = json!("1");
        *self.events.entry(event["reason"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let response = http::value(StatusCode::CREATED, &event, self.stamp(now));
        self.event_objects.insert(name, event);
        Ok(response)
    }
}

fn part(request: &Parsed) -> Result<Part, Refusal> {
    match request.target.subresource.as_deref() {
        None => Ok(Part::Main),
        Some("status") if request.target.kind.facts().has_status => Ok(Part::Status),
        Some(_) => Err(Refusal::new(404, "NotFound", "the server could not find the requested resource")),
    }
}

fn object(code: StatusCode, object: &Shared, as_partial: bool, now: Millis) -> Response<Bytes> {
    if as_partial { http::value(code, &partial(&object.value), now) } else { http::json(code, object.json(), now) }
}

fn deletion(kind: Kind, deleted: &Deleted, now: Millis) -> Response<Bytes> {
    match deleted {
        Deleted::Ending(last) => object(StatusCode::OK, last, false, now),
        Deleted::Gone(last) if kind == Kind::Pod => object(StatusCode::OK, last, false, now),
        Deleted::Gone(last) => {
            let details = json!({"name": last.name(), "kind": kind.facts().plural, "uid": last.uid()});
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            http::value(StatusCode::OK, &status, now)
        }
    }
}
