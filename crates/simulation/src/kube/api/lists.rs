//! Lists, page by page.

use hyper::body::Bytes;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::outcome::Refusal;
use super::request::Parsed;
use super::selector::Selector;
use super::server::ApiServer;
use super::store::Key;
use super::watch::partial;

impl ApiServer {
    /// Returns one page at the version of the first page.
    ///
    /// If the server has forgotten that version, it answers 410 like the real server.
    pub(super) fn list(&self, request: &Parsed, selector: &Selector) -> Result<Bytes, Refusal> {
        let kind = request.target.kind;
        let asked = request.query("limit").and_then(|limit| limit.parse::<usize>().ok()).filter(|limit| *limit > 0);
        let limit = asked.unwrap_or(usize::MAX).min(self.page_size.unwrap_or(usize::MAX));
        let (version, after) = match request.query("continue") {
            Some(token) => parse_token(token).ok_or_else(|| Refusal::bad("continue key is not valid"))?,
            None => (self.store.version(), None),
        };
        let objects = self.store.at(kind, version).ok_or_else(|| {
            Refusal::expired("The provided continue parameter is too old to display a consistent list result.")
        })?;
        let mut found = objects
            .iter()
            .filter(|(key, object)| after.as_ref().is_none_or(|after| *key > after) && selector.matches(object))
            .peekable();
        let (mut items, mut last) = (Vec::new(), None);
        while items.len() < limit
            && let Some((key, object)) = found.next()
        {
            let json = if request.partial { partial(&object.value).to_string().into() } else { object.json() };
            items.push(json);
            last = Some(key.clone());
        }
        let token = last.filter(|_| found.peek().is_some()).map(|key| token(version, &key));
        Ok(body(kind, request.partial, version, token, &items))
    }
}

fn body(kind: Kind, partial: bool, version: u64, token: Option<String>, items: &[Bytes]) -> Bytes {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(token) = token {
        metadata["continue"] = Value::String(token);
    }
    let (name, api_version) = if partial {
        ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned())
    } else {
        (kind.facts().name, kind.api_version())
    };
    let head =
        format!("{{\"kind\":\"{name}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
    let mut out = Vec::with_capacity(head.len() + items.iter().map(|item| item.len() + 1).sum::<usize>() + 2);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(&items.join(&b","[..]));
    out.extend_from_slice(b"]}");
    Bytes::from(out)
}

fn token(version: u64, (namespace, name): &Key) -> String {
    format!("{version}:{namespace}:{name}")
}

fn parse_token(token: &str) -> Option<(u64, Option<Key>)> {
    let mut parts = token.splitn(3, ':');
    let version = parts.next()?.parse().ok()?;
    Some((version, Some((parts.next()?.to_owned(), parts.next()?.to_owned()))))
}
