//! Parses requests.

use hyper::body::Bytes;
use hyper::http::{Method, Request, header};
use serde_json::Value;

use super::kinds::Kind;
use super::outcome::Refusal;

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

/// A parsed request.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) method: Method,
    pub(super) target: Target,
    query: Vec<(String, String)>,
    pub(super) body: Value,
    pub(super) content_type: String,
    /// Whether responses carry metadata only.
    pub(super) partial: bool,
    agent: String,
}

impl Parsed {
    pub(super) fn of(request: &Request<Bytes>) -> Result<Self, Refusal> {
        let path: Vec<String> = request.uri().path().split('/').skip(1).map(decode).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let target = target(&path)
            .ok_or_else(|| Refusal::new(404, "NotFound", "the server could not find the requested resource"))?;
        let query = request.uri().query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = query.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query = query.map(|(name, value)| (decode(name), decode(value))).collect();
        let text = |name: header::HeaderName| {
            request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let body = match request.body() {
            body if body.is_empty() => Value::Null,
            body => serde_json::from_slice(body).map_err(|error| Refusal::bad(&error.to_string()))?,
        };
        Ok(Self {
            method: request.method().clone(),
            target,
            query,
            body,
            content_type: text(header::CONTENT_TYPE),
            partial: text(header::ACCEPT).contains("as=PartialObjectMetadata"),
            agent: text(header::USER_AGENT),
        })
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(super) fn is_watch(&self) -> bool {
        matches!(self.query("watch"), Some("true" | "1"))
    }

    /// The field manager: the client's parameter, or else the first word of its user agent.
    pub(super) fn manager(&self) -> &str {
        self.query("fieldManager").unwrap_or_else(|| self.agent.split('/').next().unwrap_or_default())
    }
}

fn target(path: &[&str]) -> Option<Target> {
    let (group, version, rest) = match path {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let own = |text: &&str| (*text).to_owned();
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, plural, ..] if !plural.is_empty() => (Some(own(namespace)), &rest[2..]),
        _ => (None, rest),
    };
    let kind = Kind::of_path(group, version, rest.first()?)?;
    let part = |index: usize| rest.get(index).filter(|part| !part.is_empty()).map(own);
    (rest.len() <= 3).then(|| Target { kind, namespace, name: part(1), subresource: part(2) })
}

/// Decodes percent signs and plus signs, as in a form.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = || text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match bytes[at] {
            b'%' if hex().is_some() => {
                out.extend(hex());
                at += 2;
            }
            b'+' => out.push(b' '),
            byte => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}
