//! The operator's own authority over time: which one signs, which ones are trusted. Pure.
//!
//! A new authority is published before it signs anything, and an old one is trusted until it expires. So a client that reads
//! `ca.crt` once a week always trusts the served certificate.

use k8s_openapi::ByteString;

use super::{Data, Span, union};

const DAY: i64 = 86_400;
/// How long an authority is valid.
pub const AUTHORITY_LIFE: i64 = 5 * 365 * DAY;
/// How long a member's certificate is valid.
pub const CERTIFICATE_LIFE: i64 = 90 * DAY;
/// How much earlier the validity of a certificate begins, for clocks that are behind.
pub const BACKDATED: i64 = 3600;
/// How long the next authority is published before it signs.
pub const OVERLAP: i64 = 7 * DAY;

/// A certificate and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

opaque!(Pair);

impl Pair {
    fn span(&self) -> Option<Span> {
        Span::of_pem(self.certificate.as_bytes())
    }
}

/// The content of an authority's Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// The signing authority.
    pub current: Option<Pair>,
    /// The next signing authority, which is already trusted.
    pub next: Option<Pair>,
    /// The previous signing authority, which is still trusted. Its key is deleted.
    pub previous: Option<String>,
}

impl Authority {
    /// Reads the content of its Secret. A pair without both parts is missing.
    pub fn from_data(data: &Data) -> Self {
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let pair =
            |name: &str| Some(Pair { certificate: text(&format!("{name}.crt"))?, key: text(&format!("{name}.key"))? });
        Self { current: pair("ca"), next: pair("next"), previous: text("previous.crt") }
    }

    /// The content for its Secret.
    pub fn data(&self) -> Data {
        let pair = |name: &str, pair: &Option<Pair>| {
            let pair = pair.clone().map(|pair| [("crt", pair.certificate), ("key", pair.key)]);
            pair.into_iter().flatten().map(|(end, text)| (format!("{name}.{end}"), text)).collect::<Vec<_>>()
        };
        let previous = self.previous.iter().map(|text| ("previous.crt".to_owned(), text.clone()));
        let all = pair("ca", &self.current).into_iter().chain(pair("next", &self.next)).chain(previous);
        all.map(|(key, text)| (key, ByteString(text.into_bytes()))).collect()
    }

    /// All trusted authorities, in PEM.
    pub fn trusted(&self) -> String {
        let pairs = [&self.current, &self.next].into_iter().flatten().map(|pair| pair.certificate.as_str());
        pairs.chain(self.previous.as_deref()).fold(String::new(), |all, one| union(&all, one))
    }
}

/// The authority after all steps that are due. `make` makes a new one.
///
/// `now` is in seconds of Unix time.
///
/// # Errors
/// If `make` fails.
pub fn advance<E>(mut authority: Authority, now: i64, make: impl Fn() -> Result<Pair, E>) -> Result<Authority, E> {
    // An authority from the future was made while the API server's clock was ahead. Clients would not trust it before
    // that time.
    let is_valid = |span: &Span| now < span.not_after && now >= span.not_before;
    loop {
        let Some(current) = authority.current.as_ref().and_then(Pair::span).filter(is_valid) else {
            authority = Authority { current: Some(make()?), next: None, previous: None };
            continue;
        };
        let is_past = |span: Span| now >= span.not_after;
        // The previous authority is dropped when every certificate that it signed has expired.
        authority.previous.take_if(|pem| Span::of_pem(pem.as_bytes()).is_none_or(is_past));
        match authority.next.as_ref().and_then(Pair::span) {
            // It has been published for the required time, so it signs from now on.
            Some(next) if now >= next.not_before + BACKDATED + OVERLAP => {
                authority.previous = authority.current.take().map(|pair| pair.certificate);
                authority.current = authority.next.take();
            }
            None if current.is_old(now) => authority.next = Some(make()?),
            _ => return Ok(authority),
        }
    }
}
